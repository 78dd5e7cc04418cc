//! Changes of single steps of an executable graph. A step is named by its node.

use super::exec::find;
use super::nodes::newer;
use super::task::{self, Task};
use crate::Answer;
use crate::boundary::In;
use crate::process::{driver, lock};
use driver_sys::cuda::*;

/// Replaces the work of a step by work that the driver would accept in its place.
fn replace(exec: CUgraphExec, node: CUgraphNode, task: impl FnOnce() -> Answer<Task>) -> Answer {
    let exec = find(exec)?;
    let task = task()?;
    let mut state = lock(&exec.state);
    let step = state.steps.iter_mut().find(|step| step.node == node as usize);
    let step = step.filter(|step| step.task.accepts(&task)).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    step.task = task;
    Ok(())
}

/// `cuGraphExecKernelNodeSetParams`
pub fn set_kernel(
    exec: CUgraphExec,
    node: CUgraphNode,
    call: In<CUDA_KERNEL_NODE_PARAMS_v1>,
) -> Answer {
    replace(exec, node, || task::kernel(driver()?, newer(call)?))
}

/// `cuGraphExecKernelNodeSetParams_v2`
pub fn set_kernel_v2(
    exec: CUgraphExec,
    node: CUgraphNode,
    call: In<CUDA_KERNEL_NODE_PARAMS>,
) -> Answer {
    replace(exec, node, || task::kernel(driver()?, call.get()?))
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
