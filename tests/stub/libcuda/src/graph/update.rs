//! Updates: an executable graph gets the parameters of a graph of the same shape.

use super::exec::{self, Exec, Step};
use super::with;
use crate::Answer;
use crate::boundary::Out;
use crate::process::{driver, handle, lock};
use driver_sys::cuda::*;

/// Why an update is impossible, with the nodes that cause it.
struct Mismatch {
    result: CUgraphExecUpdateResult,
    node: usize,
    from: usize,
}

impl Mismatch {
    fn of(result: CUgraphExecUpdateResult, node: usize) -> Self {
        Self { result, node, from: 0 }
    }
}

/// Whether the steps of a graph can replace others, pair by pair.
fn compare(old: &[Step], new: &[Step]) -> Result<(), Mismatch> {
    let changed = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    if old.len() != new.len() {
        return Err(Mismatch::of(changed, 0));
    }
    for (old, step) in old.iter().zip(new) {
        if old.task.kind() != step.task.kind() {
            return Err(Mismatch::of(CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, step.node));
        }
        if old.after.len() != step.after.len() {
            return Err(Mismatch::of(changed, step.node));
        }
        if let Some(before) = step.after.iter().find(|before| !old.after.contains(before)) {
            return Err(Mismatch { result: changed, node: step.node, from: new[*before].node });
        }
        if let Some(result) = old.task.refuses(&step.task) {
            return Err(Mismatch::of(result, step.node));
        }
    }
    Ok(())
}

fn take_over(exec: &Exec, graph: usize) -> Result<(), Mismatch> {
    let plan = with(|graphs| exec::plan(graphs, graph).map_err(|(error, ..)| error));
    let new = plan.map_err(|_| Mismatch::of(CU_GRAPH_EXEC_UPDATE_ERROR, 0))?;
    let mut state = lock(&exec.state);
    if let Some(step) = new.iter().find(|step| step.task.is_memory()) {
        return Err(Mismatch::of(CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED, step.node));
    }
    compare(&state.steps, &new)?;
    for (old, new) in state.steps.iter_mut().zip(new) {
        old.task = new.task;
    }
    Ok(())
}

fn update_to(exec: CUgraphExec, graph: CUgraph) -> Answer<Result<(), Mismatch>> {
    driver()?;
    let exec = exec::find(exec)?;
    with(|graphs| graphs.graph(graph as usize).map(drop))?;
    Ok(take_over(&exec, graph as usize))
}

fn answer(result: &Result<(), Mismatch>) -> Answer {
    if result.is_ok() { Ok(()) } else { Err(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) }
}

/// `cuGraphExecUpdate_v2`
pub fn update_v2(
    exec: CUgraphExec,
    graph: CUgraph,
    info: Out<CUgraphExecUpdateResultInfo>,
) -> Answer {
    let result = update_to(exec, graph)?;
    let (kind, node, from) = match &result {
        Ok(()) => (CU_GRAPH_EXEC_UPDATE_SUCCESS, 0, 0),
        Err(mismatch) => (mismatch.result, mismatch.node, mismatch.from),
    };
    info.put_optional(CUgraphExecUpdateResultInfo {
        result: kind,
        errorNode: handle(node),
        errorFromNode: handle(from),
    });
    answer(&result)
}

/// `cuGraphExecUpdate`
pub fn update(
    exec: CUgraphExec,
    graph: CUgraph,
    node: Out<CUgraphNode>,
    kind: Out<CUgraphExecUpdateResult>,
) -> Answer {
    let result = update_to(exec, graph)?;
    let (found, fault) = match &result {
        Ok(()) => (CU_GRAPH_EXEC_UPDATE_SUCCESS, 0),
        Err(mismatch) => (mismatch.result, mismatch.node),
    };
    node.put_optional(handle(fault));
    kind.put_optional(found);
    answer(&result)
}

/// `cuGraphExecChildGraphNodeSetParams`: the nodes of a child graph get the parameters of a graph
/// of its shape.
pub fn set_child(exec: CUgraphExec, node: CUgraphNode, child: CUgraph) -> Answer {
    let exec = exec::find(exec)?;
    let (own, new) = with(|graphs| {
        let super::task::Task::Child(own) = graphs.node(node as usize)?.task else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        let plan = |graph| exec::plan(graphs, graph).map_err(|(error, ..)| error);
        Ok((plan(own)?, plan(child as usize)?))
    })?;
    compare(&own, &new).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    let mut state = lock(&exec.state);
    for (own, new) in own.iter().zip(new) {
        let step = state.steps.iter_mut().find(|step| step.source == own.source);
        step.ok_or(CUDA_ERROR_INVALID_VALUE)?.task = new.task;
    }
    Ok(())
}
