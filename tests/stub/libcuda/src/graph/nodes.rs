//! The functions that add nodes and read their parameters.

use super::task::{self, Task};
use super::with;
use crate::Answer;
use crate::boundary::{In, Out};
use crate::process::{driver, handle};
use driver_sys::cuda::*;

/// A list of nodes that the program passes.
pub fn handles(nodes: In<CUgraphNode>, count: usize) -> Answer<Vec<usize>> {
    (0..count).map(|index| Ok(nodes.get_at(index)? as usize)).collect()
}

/// Adds a node that depends on others.
pub fn add(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    task: impl FnOnce() -> Answer<Task>,
) -> Answer {
    driver()?;
    let after = handles(after, count)?;
    with(|graphs| graphs.graph(graph as usize).map(drop))?;
    if node.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let task = task()?;
    with(|graphs| node.put(handle(graphs.add(graph as usize, task, &after)?)))
}

/// Reads the work of a node.
pub fn read<T>(node: CUgraphNode, pick: impl FnOnce(&Task) -> Option<T>, out: Out<T>) -> Answer {
    with(|graphs| {
        let found = pick(&graphs.node(node as usize)?.task).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        out.put(found)
    })
}

/// The first version of a kernel's parameters, as the second.
pub fn newer(call: In<CUDA_KERNEL_NODE_PARAMS_v1>) -> Answer<CUDA_KERNEL_NODE_PARAMS> {
    let call = call.get()?;
    Ok(CUDA_KERNEL_NODE_PARAMS {
        func: call.func,
        gridDimX: call.gridDimX,
        gridDimY: call.gridDimY,
        gridDimZ: call.gridDimZ,
        blockDimX: call.blockDimX,
        blockDimY: call.blockDimY,
        blockDimZ: call.blockDimZ,
        sharedMemBytes: call.sharedMemBytes,
        kernelParams: call.kernelParams,
        extra: call.extra,
        kern: core::ptr::null_mut(),
        ctx: core::ptr::null_mut(),
    })
}

/// `cuGraphAddKernelNode`
pub fn add_kernel(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    call: In<CUDA_KERNEL_NODE_PARAMS_v1>,
) -> Answer {
    add(node, graph, after, count, || task::kernel(driver()?, newer(call)?))
}

/// `cuGraphAddKernelNode_v2`
pub fn add_kernel_v2(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    call: In<CUDA_KERNEL_NODE_PARAMS>,
) -> Answer {
    add(node, graph, after, count, || task::kernel(driver()?, call.get()?))
}

/// `cuGraphAddMemcpyNode`
pub fn add_copy(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    copy: In<CUDA_MEMCPY3D>,
    context: CUcontext,
) -> Answer {
    add(node, graph, after, count, || task::copy(driver()?, copy.get()?, context))
}

/// `cuGraphAddEmptyNode`
pub fn add_empty(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
) -> Answer {
    add(node, graph, after, count, || Ok(Task::Empty))
}

/// `cuGraphChildGraphNodeGetGraph`
pub fn get_child(node: CUgraphNode, child: Out<CUgraph>) -> Answer {
    let pick =
        |task: &Task| if let Task::Child(child) = task { Some(handle(*child)) } else { None };
    read(node, pick, child)
}
