//! Executable graphs: a graph's nodes as steps, in an order in which the engine can run them.
//!
//! A step records its node, because programs name the step by that node. The steps of a child graph
//! come before the step of its node. Each step belongs to a branch; the steps of a branch run one
//! after the other.

use super::memory;
use super::model::Graphs;
use super::objects::Destructors;
use super::run::{self, Running};
use super::task::Task;
use super::with;
use crate::Answer;
use crate::boundary::{Out, Text};
use crate::context::Context;
use crate::memory::graph_pool::Footprint;
use crate::process::{Driver, driver, handle, lock};
use core::ffi::c_char;
use driver_sys::cuda::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// A step of an executable graph.
pub struct Step {
    /// The id of the graph and the local id of its node.
    pub source: (u32, u32),
    /// The handle of that node.
    pub node: usize,
    pub task: Task,
    /// The steps that it depends on.
    pub after: Vec<usize>,
    /// A disabled step does nothing, but keeps its dependencies.
    pub is_enabled: bool,
    /// The index of its branch.
    pub branch: usize,
}

/// An executable graph.
pub struct Exec {
    pub id: u32,
    pub flags: u64,
    objects: BTreeMap<usize, u32>,
    pub state: Mutex<State>,
}

/// The part of an executable graph that launches and changes lock.
pub struct State {
    pub steps: Vec<Step>,
    pub running: Running,
    pub memory: Footprint,
}

/// Why a graph cannot be executed: the error, its kind, and a node that causes it.
pub type Fault = (CUresult, CUgraphInstantiateResult, usize);

/// The steps of a graph; the error names a node of a circle.
pub fn plan(graphs: &Graphs, graph: usize) -> Result<Vec<Step>, Fault> {
    let mut steps = Vec::new();
    lay_out(graphs, graph, &[], &mut steps)?;
    assign_branches(&mut steps);
    Ok(steps)
}

/// Appends the steps of a graph that depends on `entry`; returns its last steps.
fn lay_out(
    graphs: &Graphs,
    graph: usize,
    entry: &[usize],
    steps: &mut Vec<Step>,
) -> Result<Vec<usize>, Fault> {
    let found = graphs.graph(graph).map_err(|error| (error, CUDA_GRAPH_INSTANTIATE_ERROR, 0))?;
    let mut waiting: BTreeMap<u32, usize> =
        found.nodes.iter().map(|(id, node)| (*id, node.after.len())).collect();
    // Take the oldest node that can come next, so that equal graphs have equal steps.
    let mut ready: std::collections::BTreeSet<u32> =
        waiting.iter().filter(|(_, count)| **count == 0).map(|(id, _)| *id).collect();
    let mut steps_by_node = BTreeMap::new();
    let mut ends = Vec::new();
    while let Some(id) = ready.pop_first() {
        waiting.remove(&id);
        let Some(node) = found.nodes.get(&id) else { continue };
        let mut after: Vec<usize> =
            node.after.iter().filter_map(|link| steps_by_node.get(&link.node).copied()).collect();
        if node.after.is_empty() {
            after.extend_from_slice(entry);
        }
        if let Task::Child(child) = node.task {
            let child_ends = lay_out(graphs, child, &after, steps)?;
            if !child_ends.is_empty() {
                after = child_ends;
            }
        }
        steps_by_node.insert(id, steps.len());
        if node.dependents.is_empty() {
            ends.push(steps.len());
        }
        steps.push(Step {
            source: (found.id, id),
            node: node.handle,
            task: node.task.clone(),
            after,
            is_enabled: true,
            branch: 0,
        });
        for dependent in &node.dependents {
            if let Some(count) = waiting.get_mut(dependent) {
                *count -= 1;
                if *count == 0 {
                    ready.insert(*dependent);
                }
            }
        }
    }
    match waiting.first_key_value().and_then(|(id, _)| found.nodes.get(id)) {
        None => Ok(ends),
        Some(node) => {
            let fault = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
            Err((CUDA_ERROR_INVALID_VALUE, fault, node.handle))
        }
    }
}

/// Assigns branches: a step continues the branch of the first predecessor that has no follower yet,
/// unless they belong to different contexts.
fn assign_branches(steps: &mut [Step]) {
    // The context and the last step of each branch.
    let mut branches: Vec<(usize, usize)> = Vec::new();
    for index in 0..steps.len() {
        let context = steps[index].task.context();
        let joins = |before: &usize| {
            let (other, last) = branches[steps[*before].branch];
            last == *before && (context == other || context == 0 || other == 0)
        };
        let joined = steps[index].after.iter().copied().find(joins);
        let branch = joined.map_or(branches.len(), |before| steps[before].branch);
        if branch == branches.len() {
            branches.push((context, index));
        }
        branches[branch] = (branches[branch].0.max(context), index);
        steps[index].branch = branch;
    }
}

/// The executable graph of a handle.
pub fn find(exec: CUgraphExec) -> Answer<Arc<Exec>> {
    let found = |graphs: &mut Graphs| graphs.execs.get(&(exec as usize)).cloned();
    with(|graphs| found(graphs).ok_or(CUDA_ERROR_INVALID_VALUE))
}

/// Ends the queues of executable graphs in a context that is about to end.
pub fn leave_all(driver: &Driver, context: &Context, own_handle: usize) {
    let execs: Vec<_> = lock(&driver.graphs).execs.values().cloned().collect();
    for exec in execs {
        lock(&exec.state).running.leave(driver, context, own_handle);
    }
}

/// Frees on launch; node priorities have no effect, because the engine has none.
const KNOWN_FLAGS: u64 = (CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
    | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) as u64;
/// Kernels compute nothing, so no kernel can launch a graph.
const DEVICE_LAUNCH: u64 = CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH as u64;

fn make(graph: CUgraph, flags: u64) -> Result<usize, Fault> {
    let plainly = |error| (error, CUDA_GRAPH_INSTANTIATE_ERROR, 0);
    if flags & !(KNOWN_FLAGS | DEVICE_LAUNCH) != 0 {
        return Err(plainly(CUDA_ERROR_INVALID_VALUE));
    }
    if flags & DEVICE_LAUNCH != 0 {
        return Err(plainly(CUDA_ERROR_NOT_SUPPORTED));
    }
    let driver = driver().map_err(plainly)?;
    let mut graphs = lock(&driver.graphs);
    let found = graphs.graph(graph as usize).map_err(plainly)?;
    let is_taken = found.has_memory() && graphs.execs.contains_key(&found.executable);
    if found.captures > 0 || is_taken {
        return Err(plainly(CUDA_ERROR_INVALID_VALUE));
    }
    let objects = found.objects.clone();
    let steps = plan(&graphs, graph as usize)?;
    let parts = memory::parts(&steps)?;
    let frees_first = flags & u64::from(CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
    let memory = Footprint::new(driver, parts, frees_first);
    graphs.objects.retain_all(&objects);
    let (made, id) = (graphs.new_handle(), graphs.new_id());
    let state = Mutex::new(State { running: Running::new(&steps), steps, memory });
    graphs.execs.insert(made, Arc::new(Exec { id, flags, objects, state }));
    graphs.graph_mut(graph as usize).map_err(plainly)?.executable = made;
    Ok(made)
}

fn instantiate_into(exec: Out<CUgraphExec>, graph: CUgraph, flags: u64) -> Result<(), Fault> {
    if exec.is_null() {
        return Err((CUDA_ERROR_INVALID_VALUE, CUDA_GRAPH_INSTANTIATE_ERROR, 0));
    }
    exec.put_optional(handle(make(graph, flags)?));
    Ok(())
}

/// `cuGraphInstantiateWithFlags`
pub fn instantiate_with_flags(exec: Out<CUgraphExec>, graph: CUgraph, flags: u64) -> Answer {
    driver()?;
    instantiate_into(exec, graph, flags).map_err(|(error, ..)| error)
}

/// `cuGraphInstantiate`, `cuGraphInstantiate_v2`: with outputs for a faulty node and a log.
pub fn instantiate(
    exec: Out<CUgraphExec>,
    graph: CUgraph,
    fault: Out<CUgraphNode>,
    log: Out<c_char>,
    log_size: usize,
) -> Answer {
    driver()?;
    let result = instantiate_into(exec, graph, 0);
    fault.put_optional(handle(result.as_ref().err().map_or(0, |(_, _, node)| *node)));
    if !log.is_null() && log_size > 0 {
        log.put_text(if result.is_err() { "the graph has a circle" } else { "" }, log_size)?;
    }
    result.map_err(|(error, ..)| error)
}

/// Instantiates a graph, and uploads it on a stream if the flags say so.
fn instantiate_and_upload(
    exec: Out<CUgraphExec>,
    graph: CUgraph,
    params: &CUDA_GRAPH_INSTANTIATE_PARAMS,
) -> Result<(), Fault> {
    let upload = u64::from(CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD);
    instantiate_into(exec, graph, params.flags & !upload)?;
    if params.flags & upload != 0 {
        let made = exec.read().unwrap_or_default();
        if let Err(error) = run::upload(made, params.hUploadStream) {
            let _ = destroy(made);
            return Err((error, CUDA_GRAPH_INSTANTIATE_ERROR, 0));
        }
    }
    Ok(())
}

/// `cuGraphInstantiateWithParams`
pub fn instantiate_with_params(
    exec: Out<CUgraphExec>,
    graph: CUgraph,
    params: Out<CUDA_GRAPH_INSTANTIATE_PARAMS>,
) -> Answer {
    driver()?;
    let mut updated = params.read()?;
    let result = instantiate_and_upload(exec, graph, &updated);
    (updated.result_out, updated.hErrNode_out) = match result {
        Ok(()) => (CUDA_GRAPH_INSTANTIATE_SUCCESS, handle(0)),
        Err((_, kind, node)) => (kind, handle(node)),
    };
    params.put(updated)?;
    result.map_err(|(error, ..)| error)
}

/// `cuGraphExecDestroy`: a launch that runs continues.
pub fn destroy(exec: CUgraphExec) -> Answer {
    let due: Destructors = with(|graphs| {
        let removed = graphs.execs.remove(&(exec as usize)).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        Ok(graphs.objects.release_all(&removed.objects))
    })?;
    due.run();
    Ok(())
}

/// `cuGraphExecGetFlags`
pub fn get_flags(exec: CUgraphExec, flags: Out<u64>) -> Answer {
    flags.put(find(exec)?.flags)
}

/// `cuGraphExecGetId`
pub fn get_id(exec: CUgraphExec, id: Out<u32>) -> Answer {
    id.put(find(exec)?.id)
}

/// `cuGraphDebugDotPrint`
pub fn print(graph: CUgraph, path: Text, flags: u32) -> Answer {
    let driver = driver()?;
    let text = with(|graphs| super::dot::text(driver, graphs, graph as usize, flags))?;
    std::fs::write(path.get()?, text).map_err(|_| CUDA_ERROR_OPERATING_SYSTEM)
}
