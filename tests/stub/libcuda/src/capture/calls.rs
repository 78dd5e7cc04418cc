//! The driver functions that begin, end and inspect captures.

use super::{MODE, Member, Registry, Sequence, lock_registry, take_apart};
use crate::Answer;
use crate::boundary::{In, Out};
use crate::graph::nodes::handles;
use crate::process::{driver, handle, lock};
use crate::stream::{Queue, resolve};
use driver_sys::cuda::*;
use std::mem::size_of;

fn check_mode(mode: CUstreamCaptureMode) -> Answer {
    if mode > CU_STREAM_CAPTURE_MODE_RELAXED { Err(CUDA_ERROR_INVALID_VALUE) } else { Ok(()) }
}

/// Begins a capture into a graph of the program, or into a new one.
fn begin_into(
    on: CUstream,
    mode: CUstreamCaptureMode,
    target: Option<(CUgraph, Vec<usize>)>,
) -> Answer {
    let (driver, queue) = resolve(on)?;
    check_mode(mode)?;
    if matches!(queue, Queue::Legacy(..)) {
        return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    let registry = &mut lock_registry(driver).registry;
    if registry.members.contains_key(&queue.id()) {
        return Err(CUDA_ERROR_ILLEGAL_STATE);
    }
    let mut graphs = lock(&driver.graphs);
    let has_target = target.is_some();
    let (graph, after) = match target {
        Some((graph, after)) => {
            for node in &after {
                if graphs.locate(*node)?.0 != graph as usize {
                    return Err(CUDA_ERROR_INVALID_VALUE);
                }
            }
            (graph as usize, after)
        }
        None => (graphs.create(), Vec::new()),
    };
    graphs.graph_mut(graph)?.captures += 1;
    let sequence = driver.new_id();
    registry.sequences.insert(
        sequence,
        Sequence {
            graph,
            has_target,
            origin: queue.id(),
            mode,
            thread: std::thread::current().id(),
            is_valid: true,
            left: Vec::new(),
        },
    );
    registry.members.insert(queue.id(), Member::new(queue, sequence, after));
    Ok(())
}

/// `cuStreamBeginCapture`, from before there were modes
pub fn begin(on: CUstream) -> Answer {
    begin_into(on, CU_STREAM_CAPTURE_MODE_GLOBAL, None)
}

/// `cuStreamBeginCapture_v2`
pub fn begin_v2(on: CUstream, mode: CUstreamCaptureMode) -> Answer {
    begin_into(on, mode, None)
}

/// `cuStreamBeginCaptureToGraph`
pub fn begin_to_graph(
    on: CUstream,
    graph: CUgraph,
    after: In<CUgraphNode>,
    edges: In<CUgraphEdgeData>,
    count: usize,
    mode: CUstreamCaptureMode,
) -> Answer {
    driver()?;
    if edges.get().is_ok() {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    begin_into(on, mode, Some((graph, handles(after, count)?)))
}

/// `cuStreamEndCapture`
pub fn end(on: CUstream, graph: Out<CUgraph>) -> Answer {
    let (driver, queue) = resolve(on)?;
    let answer = (|| {
        let registry = &mut lock_registry(driver).registry;
        let graphs = &mut lock(&driver.graphs);
        let member = registry.members.get(&queue.id()).ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
        let number = member.sequence;
        let sequence = registry.sequences.get(&number).ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
        if sequence.origin != queue.id() {
            return Err(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
        }
        let is_bound = sequence.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        if is_bound && sequence.thread != std::thread::current().id() {
            return Err(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
        }
        let answer = if graph.is_null() {
            Err(CUDA_ERROR_INVALID_VALUE)
        } else if !sequence.is_valid {
            Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
        } else if registry.is_unjoined(graphs, number, member) {
            Err(CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
        } else {
            Ok(())
        };
        let captured = take_apart(registry, graphs, number, answer.is_ok());
        if answer.is_ok() {
            graph.put_optional(handle(captured));
        }
        answer
    })();
    if answer.is_err() {
        graph.put_optional(handle(0));
    }
    answer
}

/// A stream's capture status, and the number of its sequence.
fn look(queue: Queue, registry: &Registry) -> Answer<(CUstreamCaptureStatus, u64)> {
    if matches!(queue, Queue::Legacy(..)) && !registry.within(queue.context().1, true).is_empty() {
        return Err(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    Ok(match registry.members.get(&queue.id()) {
        None => (CU_STREAM_CAPTURE_STATUS_NONE, 0),
        Some(member) if registry.is_valid(member.sequence) => {
            (CU_STREAM_CAPTURE_STATUS_ACTIVE, member.sequence)
        }
        Some(member) => (CU_STREAM_CAPTURE_STATUS_INVALIDATED, member.sequence),
    })
}

/// `cuStreamIsCapturing`
pub fn is_capturing(on: CUstream, status: Out<CUstreamCaptureStatus>) -> Answer {
    let (driver, queue) = resolve(on)?;
    if driver.captures.is_idle() {
        return status.put(CU_STREAM_CAPTURE_STATUS_NONE);
    }
    status.put(look(queue, &lock_registry(driver).registry)?.0)
}

/// `cuStreamGetCaptureInfo`, from before it returned graphs
pub fn info(on: CUstream, status: Out<CUstreamCaptureStatus>, id: Out<u64>) -> Answer {
    let none = Out::of(core::ptr::null_mut());
    info_v2(on, status, id, none.cast(), none.cast(), none)
}

/// `cuStreamGetCaptureInfo_v2`
pub fn info_v2(
    on: CUstream,
    status: Out<CUstreamCaptureStatus>,
    id: Out<u64>,
    graph: Out<CUgraph>,
    nodes: Out<*const CUgraphNode>,
    count: Out<usize>,
) -> Answer {
    info_v3(on, status, id, graph, nodes, Out::of(core::ptr::null_mut()), count)
}

// An array of numbers is returned as an array of handles.
const _: () = assert!(size_of::<usize>() == size_of::<CUgraphNode>());

/// `cuStreamGetCaptureInfo_v3`
pub fn info_v3(
    on: CUstream,
    status: Out<CUstreamCaptureStatus>,
    id: Out<u64>,
    graph: Out<CUgraph>,
    nodes: Out<*const CUgraphNode>,
    edges: Out<*const CUgraphEdgeData>,
    count: Out<usize>,
) -> Answer {
    let (driver, queue) = resolve(on)?;
    if status.is_null() || !edges.is_null() && nodes.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let registry = &mut lock_registry(driver).registry;
    let (found, sequence) = look(queue, registry)?;
    status.put(found)?;
    if found != CU_STREAM_CAPTURE_STATUS_ACTIVE {
        return Ok(());
    }
    let captured = registry.sequences.get(&sequence).map_or(0, |sequence| sequence.graph);
    let Some(member) = registry.members.get_mut(&queue.id()) else { return Ok(()) };
    member.shown.clone_from(&member.after);
    id.put_optional(sequence);
    graph.put_optional(handle(captured));
    nodes.put_optional(member.shown.as_ptr().cast());
    // All edges are plain.
    edges.put_optional(core::ptr::null());
    count.put_optional(member.after.len());
    Ok(())
}

/// `cuThreadExchangeStreamCaptureMode`
pub fn exchange_mode(mode: Out<CUstreamCaptureMode>) -> Answer {
    driver()?;
    let new = mode.read()?;
    check_mode(new)?;
    mode.put(MODE.replace(new))
}
