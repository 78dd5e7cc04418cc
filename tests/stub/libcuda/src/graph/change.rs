//! Changes of single steps of an executable graph. A step is named by its node.

use super::exec::{Step, find};
use super::params::{self, NewNode};
use super::task::{self, Kernel, Task};
use super::{update, with};
use crate::Answer;
use crate::boundary::{In, Out};
use crate::process::{driver, handle, lock};
use driver_sys::cuda::*;

/// Runs a function with the step of a node.
fn at_step<T>(
    exec: CUgraphExec,
    node: CUgraphNode,
    run: impl FnOnce(&mut Step) -> Answer<T>,
) -> Answer<T> {
    let exec = find(exec)?;
    let source = with(|graphs| {
        let (graph, id) = graphs.locate(node as usize)?;
        Ok((graphs.graph(graph)?.id, id))
    })?;
    let mut state = lock(&exec.state);
    let step = state.steps.iter_mut().find(|step| step.source == source);
    run(step.ok_or(CUDA_ERROR_INVALID_VALUE)?)
}

/// Replaces the work of a step. The new work must be of its type, and the change must be allowed.
fn replace(exec: CUgraphExec, node: CUgraphNode, task: impl FnOnce() -> Answer<Task>) -> Answer {
    at_step(exec, node, |_| Ok(()))?;
    let mut task = task()?;
    at_step(exec, node, |step| {
        if let (Task::Kernel(old), Task::Kernel(new)) = (&step.task, &mut task) {
            new.attributes.clone_from(&old.attributes);
        }
        if step.task.refuses(&task).is_some() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        step.task = task;
        Ok(())
    })
}

fn kernel(call: Answer<CUDA_KERNEL_NODE_PARAMS>) -> Answer<Task> {
    Ok(Task::Kernel(Kernel::checked(driver()?, call?)?))
}

/// `cuGraphExecKernelNodeSetParams`
pub fn set_kernel(
    exec: CUgraphExec,
    node: CUgraphNode,
    call: In<CUDA_KERNEL_NODE_PARAMS_v1>,
) -> Answer {
    replace(exec, node, || kernel(call.get().map(|call| params::kernel_v1(&call))))
}

/// `cuGraphExecKernelNodeSetParams_v2`
pub fn set_kernel_v2(
    exec: CUgraphExec,
    node: CUgraphNode,
    call: In<CUDA_KERNEL_NODE_PARAMS>,
) -> Answer {
    replace(exec, node, || kernel(call.get()))
}

/// `cuGraphExecMemcpyNodeSetParams`
pub fn set_copy(
    exec: CUgraphExec,
    node: CUgraphNode,
    copy: In<CUDA_MEMCPY3D>,
    context: CUcontext,
) -> Answer {
    replace(exec, node, || task::copy(driver()?, copy.get()?, context))
}

/// `cuGraphExecMemsetNodeSetParams`
pub fn set_fill(
    exec: CUgraphExec,
    node: CUgraphNode,
    rows: In<CUDA_MEMSET_NODE_PARAMS>,
    context: CUcontext,
) -> Answer {
    replace(exec, node, || task::fill(driver()?, params::fill_in(&rows.get()?, context)))
}

/// `cuGraphExecHostNodeSetParams`
pub fn set_host(exec: CUgraphExec, node: CUgraphNode, call: In<CUDA_HOST_NODE_PARAMS>) -> Answer {
    replace(exec, node, || task::host(call.get()?))
}

/// `cuGraphExecEventRecordNodeSetEvent`
pub fn set_record(exec: CUgraphExec, node: CUgraphNode, event: CUevent) -> Answer {
    replace(exec, node, || Ok(Task::Record(params::event(driver()?, event)?)))
}

/// `cuGraphExecEventWaitNodeSetEvent`
pub fn set_wait(exec: CUgraphExec, node: CUgraphNode, event: CUevent) -> Answer {
    replace(exec, node, || Ok(Task::Wait(params::event(driver()?, event)?)))
}

/// `cuGraphExecNodeSetParams`
pub fn set_any(exec: CUgraphExec, node: CUgraphNode, described: In<CUgraphNodeParams>) -> Answer {
    let mut child = None;
    let result = replace(exec, node, || match params::read(driver()?, &described.get()?)? {
        NewNode::Task(task) if task.is_memory() => Err(CUDA_ERROR_NOT_SUPPORTED),
        NewNode::Task(task) => Ok(*task),
        NewNode::Copied(graph) | NewNode::Moved(graph) => {
            child = Some(graph);
            Err(CUDA_ERROR_INVALID_VALUE)
        }
    });
    match child {
        Some(graph) => update::set_child(exec, node, handle(graph)),
        None => result,
    }
}

/// `cuGraphNodeSetEnabled`: of a kernel, a copy or a fill.
pub fn set_enabled(exec: CUgraphExec, node: CUgraphNode, is_enabled: u32) -> Answer {
    at_step(exec, node, |step| {
        if !matches!(step.task, Task::Kernel(_) | Task::Copy(..) | Task::Fill(_)) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        step.is_enabled = is_enabled != 0;
        Ok(())
    })
}

/// `cuGraphNodeGetEnabled`
pub fn get_enabled(exec: CUgraphExec, node: CUgraphNode, is_enabled: Out<u32>) -> Answer {
    at_step(exec, node, |step| is_enabled.put(u32::from(step.is_enabled)))
}
