//! Attributes of kernel nodes: what a launch says beside its parameters. They are kept and given back.

use super::task::{Kernel, Task};
use super::with;
use crate::Answer;
use crate::boundary::{In, Out};
use driver_sys::cuda::*;

fn kernel_of<T>(node: CUgraphNode, run: impl FnOnce(&mut Kernel) -> Answer<T>) -> Answer<T> {
    with(|graphs| match &mut graphs.node_mut(node as usize)?.task {
        Task::Kernel(kernel) => run(kernel),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    })
}

/// `cuGraphKernelNodeGetAttribute`: of one that was never set, zeros.
pub fn get(
    node: CUgraphNode,
    attribute: CUkernelNodeAttrID,
    value: Out<CUkernelNodeAttrValue>,
) -> Answer {
    kernel_of(node, |kernel| {
        if attribute >= CU_LAUNCH_ATTRIBUTE_MAX {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let unset = CUkernelNodeAttrValue { pad: [0; 64] };
        value.put(kernel.attributes.get(&attribute).copied().unwrap_or(unset))
    })
}

/// `cuGraphKernelNodeSetAttribute`
pub fn set(
    node: CUgraphNode,
    attribute: CUkernelNodeAttrID,
    value: In<CUkernelNodeAttrValue>,
) -> Answer {
    kernel_of(node, |kernel| {
        if attribute >= CU_LAUNCH_ATTRIBUTE_MAX {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        kernel.attributes.insert(attribute, value.get()?);
        Ok(())
    })
}

/// `cuGraphKernelNodeCopyAttributes`
pub fn copy(to: CUgraphNode, from: CUgraphNode) -> Answer {
    let attributes = kernel_of(from, |kernel| Ok(kernel.attributes.clone()))?;
    kernel_of(to, |kernel| {
        kernel.attributes = attributes;
        Ok(())
    })
}
