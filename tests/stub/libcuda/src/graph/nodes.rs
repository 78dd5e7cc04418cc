//! The functions that add nodes, and read and change their parameters.

use super::model::{Behind, Edge};
use super::params::{self, NewNode};
use super::task::{self, Kernel, Task};
use super::with;
use crate::Answer;
use crate::boundary::{In, Out};
use crate::process::{driver, handle};
use driver_sys::cuda::*;

/// The nodes that a new one depends on. Without edge data the edges are plain.
pub fn behind(
    nodes: In<CUgraphNode>,
    edges: In<CUgraphEdgeData>,
    count: usize,
) -> Answer<Vec<Behind>> {
    let edge = |index| edges.get_at(index).map_or_else(|_| Ok(Edge::default()), Edge::from_c);
    (0..count).map(|index| Ok((nodes.get_at(index)? as usize, edge(index)?))).collect()
}

pub fn add_behind(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: &[Behind],
    new: impl FnOnce() -> Answer<NewNode>,
) -> Answer {
    with(|graphs| graphs.graph(graph as usize).map(drop))?;
    if node.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let new = new()?;
    with(|graphs| {
        let added = graphs.add(graph as usize, Task::Empty, after)?;
        match graphs.grant(graph as usize, added, new) {
            Ok(task) => {
                graphs.node_mut(added)?.task = task;
                node.put(handle(added))
            }
            Err(error) => {
                let _ = graphs.remove(added);
                Err(error)
            }
        }
    })
}

/// Adds a node with plain edges.
pub fn add(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    task: impl FnOnce() -> Answer<Task>,
) -> Answer {
    driver()?;
    let plain = In::of(core::ptr::null());
    add_behind(node, graph, &behind(after, plain, count)?, || task().map(NewNode::from))
}

/// Reads the work of a node.
pub fn read<T>(node: CUgraphNode, pick: impl FnOnce(&Task) -> Option<T>, out: Out<T>) -> Answer {
    with(|graphs| {
        let found = pick(&graphs.node(node as usize)?.task).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        out.put(found)
    })
}

/// Replaces the work of a node by other work of its type. A kernel keeps its attributes.
fn replace(node: CUgraphNode, task: impl FnOnce() -> Answer<Task>) -> Answer {
    with(|graphs| graphs.node(node as usize).map(drop))?;
    let mut task = task()?;
    with(|graphs| {
        let found = graphs.node_mut(node as usize)?;
        if found.task.kind() != task.kind() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if let (Task::Kernel(old), Task::Kernel(new)) = (&found.task, &mut task) {
            new.attributes.clone_from(&old.attributes);
        }
        found.task = task;
        Ok(())
    })
}

/// The kernel in a structure of either version.
fn kernel(call: Answer<CUDA_KERNEL_NODE_PARAMS>) -> Answer<Task> {
    Ok(Task::Kernel(Kernel::checked(driver()?, call?)?))
}

fn kernel_v1(call: In<CUDA_KERNEL_NODE_PARAMS_v1>) -> Answer<Task> {
    kernel(call.get().map(|call| params::kernel_v1(&call)))
}

fn kernel_call(task: &Task) -> Option<CUDA_KERNEL_NODE_PARAMS> {
    if let Task::Kernel(kernel) = task { Some(kernel.call) } else { None }
}

/// `cuGraphAddKernelNode`
pub fn add_kernel(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    call: In<CUDA_KERNEL_NODE_PARAMS_v1>,
) -> Answer {
    add(node, graph, after, count, || kernel_v1(call))
}

/// `cuGraphAddKernelNode_v2`
pub fn add_kernel_v2(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    call: In<CUDA_KERNEL_NODE_PARAMS>,
) -> Answer {
    add(node, graph, after, count, || kernel(call.get()))
}

/// `cuGraphKernelNodeGetParams`
pub fn get_kernel(node: CUgraphNode, call: Out<CUDA_KERNEL_NODE_PARAMS_v1>) -> Answer {
    read(node, |task| kernel_call(task).map(|call| params::to_kernel_v1(&call)), call)
}

/// `cuGraphKernelNodeGetParams_v2`
pub fn get_kernel_v2(node: CUgraphNode, call: Out<CUDA_KERNEL_NODE_PARAMS>) -> Answer {
    read(node, kernel_call, call)
}

/// `cuGraphKernelNodeSetParams`
pub fn set_kernel(node: CUgraphNode, call: In<CUDA_KERNEL_NODE_PARAMS_v1>) -> Answer {
    replace(node, || kernel_v1(call))
}

/// `cuGraphKernelNodeSetParams_v2`
pub fn set_kernel_v2(node: CUgraphNode, call: In<CUDA_KERNEL_NODE_PARAMS>) -> Answer {
    replace(node, || kernel(call.get()))
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

/// `cuGraphMemcpyNodeGetParams`
pub fn get_copy(node: CUgraphNode, copy: Out<CUDA_MEMCPY3D>) -> Answer {
    read(node, |task| if let Task::Copy(copy, _) = task { Some(*copy) } else { None }, copy)
}

/// `cuGraphMemcpyNodeSetParams`: in the context that the node has.
pub fn set_copy(node: CUgraphNode, copy: In<CUDA_MEMCPY3D>) -> Answer {
    let context = with(|graphs| match graphs.node(node as usize)?.task {
        Task::Copy(_, context) => Ok(context as usize),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    })?;
    replace(node, || task::copy(driver()?, copy.get()?, handle(context)))
}

/// `cuGraphAddMemsetNode`
pub fn add_fill(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    rows: In<CUDA_MEMSET_NODE_PARAMS>,
    context: CUcontext,
) -> Answer {
    add(node, graph, after, count, || task::fill(driver()?, params::fill_in(&rows.get()?, context)))
}

/// `cuGraphMemsetNodeGetParams`
pub fn get_fill(node: CUgraphNode, rows: Out<CUDA_MEMSET_NODE_PARAMS>) -> Answer {
    let pick = |task: &Task| {
        if let Task::Fill(rows) = task { Some(params::to_fill_v1(rows)) } else { None }
    };
    read(node, pick, rows)
}

/// `cuGraphMemsetNodeSetParams`: in the context that the node has.
pub fn set_fill(node: CUgraphNode, rows: In<CUDA_MEMSET_NODE_PARAMS>) -> Answer {
    let context = with(|graphs| match graphs.node(node as usize)?.task {
        Task::Fill(rows) => Ok(rows.ctx as usize),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    })?;
    replace(node, || task::fill(driver()?, params::fill_in(&rows.get()?, handle(context))))
}

/// `cuGraphAddHostNode`
pub fn add_host(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    call: In<CUDA_HOST_NODE_PARAMS>,
) -> Answer {
    add(node, graph, after, count, || task::host(call.get()?))
}

/// `cuGraphHostNodeGetParams`
pub fn get_host(node: CUgraphNode, call: Out<CUDA_HOST_NODE_PARAMS>) -> Answer {
    read(node, |task| if let Task::Host(call) = task { Some(*call) } else { None }, call)
}

/// `cuGraphHostNodeSetParams`
pub fn set_host(node: CUgraphNode, call: In<CUDA_HOST_NODE_PARAMS>) -> Answer {
    replace(node, || task::host(call.get()?))
}

/// `cuGraphAddChildGraphNode`: the node has a copy of the graph.
pub fn add_child(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    child: CUgraph,
) -> Answer {
    driver()?;
    let plain = In::of(core::ptr::null());
    let after = behind(after, plain, count)?;
    add_behind(node, graph, &after, || Ok(NewNode::Copied(child as usize)))
}

/// `cuGraphChildGraphNodeGetGraph`
pub fn get_child(node: CUgraphNode, child: Out<CUgraph>) -> Answer {
    let pick =
        |task: &Task| if let Task::Child(child) = task { Some(handle(*child)) } else { None };
    read(node, pick, child)
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

/// `cuGraphAddEventRecordNode`
pub fn add_record(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    event: CUevent,
) -> Answer {
    add(node, graph, after, count, || Ok(Task::Record(params::event(driver()?, event)?)))
}

/// `cuGraphEventRecordNodeGetEvent`
pub fn get_record(node: CUgraphNode, event: Out<CUevent>) -> Answer {
    read(node, |task| if let Task::Record(event) = task { Some(*event) } else { None }, event)
}

/// `cuGraphEventRecordNodeSetEvent`
pub fn set_record(node: CUgraphNode, event: CUevent) -> Answer {
    replace(node, || Ok(Task::Record(params::event(driver()?, event)?)))
}

/// `cuGraphAddEventWaitNode`
pub fn add_wait(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    event: CUevent,
) -> Answer {
    add(node, graph, after, count, || Ok(Task::Wait(params::event(driver()?, event)?)))
}

/// `cuGraphEventWaitNodeGetEvent`
pub fn get_wait(node: CUgraphNode, event: Out<CUevent>) -> Answer {
    read(node, |task| if let Task::Wait(event) = task { Some(*event) } else { None }, event)
}

/// `cuGraphEventWaitNodeSetEvent`
pub fn set_wait(node: CUgraphNode, event: CUevent) -> Answer {
    replace(node, || Ok(Task::Wait(params::event(driver()?, event)?)))
}

/// `cuGraphAddNode`
pub fn add_any(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    described: Out<CUgraphNodeParams>,
) -> Answer {
    add_any_v2(node, graph, after, In::of(core::ptr::null()), count, described)
}

/// `cuGraphAddNode_v2`, `cuGraphAddNode_v3`
pub fn add_any_v2(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    edges: In<CUgraphEdgeData>,
    count: usize,
    described: Out<CUgraphNodeParams>,
) -> Answer {
    let driver = driver()?;
    let after = behind(after, edges, count)?;
    let mut made = None;
    add_behind(node, graph, &after, || {
        let new = params::read(driver, &described.read()?)?;
        made = new.allocation().cloned();
        Ok(new)
    })?;
    if let Some(made) = made {
        let mut params = described.read()?;
        params.unnamed2.alloc.dptr = made.address();
        described.put(params)?;
    }
    Ok(())
}

/// `cuGraphNodeGetParams`
pub fn get_any(node: CUgraphNode, out: Out<CUgraphNodeParams>) -> Answer {
    read(node, |task| Some(params::write(task)), out)
}

/// `cuGraphNodeSetParams`, `cuGraphNodeSetParams_v2`: a child graph's nodes are changed one by one,
/// and nodes that allocate or free cannot change.
pub fn set_any(node: CUgraphNode, described: In<CUgraphNodeParams>) -> Answer {
    replace(node, || match params::read(driver()?, &described.get()?)? {
        NewNode::Task(task) if !task.is_memory() => Ok(*task),
        _ => Err(CUDA_ERROR_NOT_SUPPORTED),
    })
}

fn kernel_of<T>(node: CUgraphNode, run: impl FnOnce(&mut Kernel) -> Answer<T>) -> Answer<T> {
    with(|graphs| match &mut graphs.node_mut(node as usize)?.task {
        Task::Kernel(kernel) => run(kernel),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    })
}

/// `cuGraphKernelNodeGetAttribute`: zeros if it was never set.
pub fn get_attribute(
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
pub fn set_attribute(
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
pub fn copy_attributes(to: CUgraphNode, from: CUgraphNode) -> Answer {
    let attributes = kernel_of(from, |kernel| Ok(kernel.attributes.clone()))?;
    kernel_of(to, |kernel| {
        kernel.attributes = attributes;
        Ok(())
    })
}
