//! Launches, and other work on streams: where the wrappers' jumps lead when launches need
//! admission.

use driver_sys::cuda::{CUDA_LAUNCH_PARAMS, CUDA_SUCCESS, CUlaunchConfig, CUresult, CUstream};
use vgpu_compute::admission::{self, Next};
use vgpu_compute::launch::{Launch, stream_name};
use vgpu_compute::notices;
use vgpu_driver::callers;
use vgpu_driver::guard::guard;
use vgpu_driver::real::Outcome;
use vgpu_driver::symbols::Symbol;

use crate::form::Form;
use crate::graphs;
use crate::jump::Frame;

/// How the arguments of a launch function are laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arguments {
    /// Function, grid, block, shared bytes, stream.
    Kernel,
    /// The same; NULL is the thread's own default stream.
    KernelOfThread,
    /// A configuration with grid and stream, function.
    Config,
    /// The same; NULL is the thread's own default stream.
    ConfigOfThread,
    /// An executable graph, stream.
    Graph,
    /// The same; NULL is the thread's own default stream.
    GraphOfThread,
    /// Function and, for one of them, a grid of two; the default stream.
    Old,
    /// Function, a grid of two, stream.
    OldAsync,
    /// A list of kernels, one per device.
    Several,
}

/// The most devices that one cooperative launch can have.
const MAX_SEVERAL: usize = 64;

/// A launch function.
pub(crate) struct LaunchRow {
    pub(crate) symbol: Symbol,
    pub(crate) arguments: Arguments,
    /// The address of the function that also records an event behind the launch.
    pub(crate) then_record: fn() -> usize,
}

/// A function that puts other work into a stream.
pub(crate) struct StreamOpRow {
    pub(crate) symbol: Symbol,
    /// The position of the stream among the arguments.
    pub(crate) stream: usize,
}

/// Called by the launch wrappers on the slow path, with the program's arguments. Returns the
/// address to jump to.
pub(crate) extern "C" fn launch(row: &'static LaunchRow, frame: &Frame) -> usize {
    if callers::is_driver(frame.return_address()) {
        return row.symbol.callable();
    }
    let Some(allocates) = guard(|| allocates(row.arguments, frame)) else {
        return graphs::refusal();
    };
    if allocates.is_err() {
        return graphs::refusal();
    }
    let records = guard(|| admit(row.arguments, frame)) == Some(Next::LaunchAndRecord);
    match (allocates, records) {
        (Ok(Some(form)), _) => graphs::then_settle(form, records),
        (_, true) => (row.then_record)(),
        (_, false) => row.symbol.callable(),
    }
}

/// Charges the memory of a graph that allocates, and returns the form of its launch. Memory fails
/// closed: an error refuses the launch.
fn allocates(arguments: Arguments, frame: &Frame) -> Outcome<Option<Form>> {
    let form = match arguments {
        Arguments::Graph => Form::Plain,
        Arguments::GraphOfThread => Form::PerThread,
        _ => return Ok(None),
    };
    let is_charged = graphs::before_launch(frame.argument(0), frame.argument(1), form)?;
    Ok(is_charged.then_some(form))
}

fn admit(arguments: Arguments, frame: &Frame) -> Next {
    let Some(limited) = admission::required() else { return Next::Launch };
    if arguments == Arguments::Several {
        return admission::admit_each(limited, read_each(frame));
    }
    read(arguments, frame).map_or(Next::Launch, |launch| admission::admit(limited, launch))
}

/// Called by the wrappers of other work on streams on the slow path. Returns the address to jump
/// to.
pub(crate) extern "C" fn stream_op(row: &'static StreamOpRow, frame: &Frame) -> usize {
    if callers::is_driver(frame.return_address()) {
        return row.symbol.callable();
    }
    guard(|| {
        let per_thread = row.symbol.name().ends_with("_ptsz");
        notices::stream_op(frame.argument(row.stream), per_thread);
    });
    row.symbol.callable()
}

/// The launch that a wrapper was called with; `None` if it has no configuration, which the driver
/// refuses.
fn read(arguments: Arguments, frame: &Frame) -> Option<Launch> {
    use Arguments::{
        Config, ConfigOfThread, Graph, GraphOfThread, Kernel, KernelOfThread, Old, OldAsync,
        Several,
    };
    let per_thread = matches!(arguments, KernelOfThread | ConfigOfThread | GraphOfThread);
    let (function, stream) = match arguments {
        Kernel | KernelOfThread => (0, frame.argument(8)),
        Config | ConfigOfThread => {
            // SAFETY: the program's own argument, which the driver is about to read as well.
            let config = unsafe { (frame.argument(0) as *const CUlaunchConfig).as_ref() }?;
            (1, config.hStream as usize)
        }
        Graph | GraphOfThread => (0, frame.argument(1)),
        Old => (0, 0),
        OldAsync => (0, frame.argument(3)),
        Several => return None,
    };
    let function = frame.argument(function);
    Some(Launch { function, stream: stream_name(stream, per_thread) })
}

/// The kernels of a launch on several devices. The driver reads the list as well.
fn read_each(frame: &Frame) -> impl Iterator<Item = Launch> {
    let list = frame.argument(0) as *const CUDA_LAUNCH_PARAMS;
    let count = if list.is_null() { 0 } else { frame.argument(1) as u32 as usize };
    (0..count.min(MAX_SEVERAL)).map(move |index| {
        // SAFETY: the program's own list, with this many entries.
        let one = unsafe { &*list.add(index) };
        Launch { function: one.function as usize, stream: stream_name(one.hStream as usize, false) }
    })
}

/// The calling thread may have another current context.
pub(crate) fn context_changed(result: CUresult) {
    if result == CUDA_SUCCESS {
        notices::context_changed();
    }
}

around! {
    stream_destroy(stream: CUstream) -> CUresult = cuStreamDestroy_v2, |call| {
        notices::stream_ending(stream as usize);
        call()
    };
    stream_destroy_v1(stream: CUstream) -> CUresult = cuStreamDestroy, |call| {
        notices::stream_ending(stream as usize);
        call()
    };
}
