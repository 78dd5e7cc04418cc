//! Executable graphs: a graph's nodes as steps, in an order in which the engine can run them.
//!
//! A step records its node, because programs name the step by that node. The steps of a child graph
//! come before the step of its node. Each step belongs to a branch; the steps of a branch run one
//! after the other.

use super::memory;
use super::model::Graphs;
use super::objects::Objects;
use super::run::{self, Running};
use super::task::Task;
use super::with;
use crate::Answer;
use crate::boundary::Out;
use crate::context::Context;
use crate::memory::graph_pool::Footprint;
use crate::process::{Driver, driver, handle, lock};
use core::ffi::c_char;
use driver_sys::cuda::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// A step of an executable graph.
pub struct Step {
    /// The handle of its node.
    pub node: usize,
    pub task: Task,
    /// The steps that it depends on.
    pub after: Vec<usize>,
    /// The index of its branch.
    pub branch: usize,
}

/// An executable graph.
pub struct Exec {
    /// What it keeps alive.
    _objects: Objects,
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

/// The steps of a graph.
fn plan(graphs: &Graphs, graph: usize) -> Answer<Vec<Step>> {
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
) -> Answer<Vec<usize>> {
    let mut steps_by_node = BTreeMap::new();
    let mut ends = BTreeSet::new();
    for (id, node) in &graphs.graph(graph)?.nodes {
        let mut after: Vec<usize> = node.after.iter().map(|before| steps_by_node[before]).collect();
        for before in &after {
            ends.remove(before);
        }
        if after.is_empty() {
            after.extend_from_slice(entry);
        }
        if let Task::Child(child) = node.task {
            let child_ends = lay_out(graphs, child, &after, steps)?;
            if !child_ends.is_empty() {
                after = child_ends;
            }
        }
        steps_by_node.insert(*id, steps.len());
        ends.insert(steps.len());
        steps.push(Step { node: node.handle, task: node.task.clone(), after, branch: 0 });
    }
    Ok(ends.into_iter().collect())
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
    let steps = plan(&graphs, graph as usize).map_err(plainly)?;
    let parts = memory::parts(&steps)?;
    let frees_first = flags & u64::from(CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
    let memory = Footprint::new(driver, parts, frees_first);
    let made = graphs.new_handle();
    let state = Mutex::new(State { running: Running::new(&steps), steps, memory });
    graphs.execs.insert(made, Arc::new(Exec { _objects: objects, state }));
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
        log.put_text(
            if result.is_err() {
                "a free node does not come after its allocation node"
            } else {
                ""
            },
            log_size,
        )?;
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
    with(|graphs| graphs.execs.remove(&(exec as usize)).ok_or(CUDA_ERROR_INVALID_VALUE)).map(drop)
}
