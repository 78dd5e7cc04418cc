//! Conversion of node parameters between the header's structures and [`Task`].
//!
//! `CUgraphNodeParams` is a tagged union; older functions have a structure for each type, in up to
//! three versions.

use super::memory;
use super::model::Graphs;
use super::task::{self, Kernel, Task};
use crate::Answer;
use crate::memory::graph_pool::Allocation;
use crate::process::{Driver, handle};
use core::ptr::null_mut;
use driver_sys::cuda::*;
use std::sync::Arc;

/// The work of a new node.
pub enum NewNode {
    Task(Box<Task>),
    /// A copy of a graph.
    Copied(usize),
    /// The graph itself, which then belongs to the node.
    Moved(usize),
}

impl NewNode {
    /// What it allocates.
    pub fn allocation(&self) -> Option<&Arc<Allocation>> {
        if let Self::Task(task) = self { task.allocation() } else { None }
    }
}

impl From<Task> for NewNode {
    fn from(task: Task) -> Self {
        Self::Task(Box::new(task))
    }
}

/// A structure of another version with the same fields, and with those that come after `+`.
macro_rules! convert {
    ($from:expr, $to:ident { $($field:ident)* $(+ $($more:ident: $value:expr),*)? }) => {
        $to { $($field: $from.$field,)* $($($more: $value),*)? }
    };
}

macro_rules! convert_kernel {
    ($from:expr, $to:ident $(+ $($more:ident: $value:expr),*)?) => {
        convert!($from, $to {
            func gridDimX gridDimY gridDimZ blockDimX blockDimY blockDimZ sharedMemBytes
            kernelParams extra
            $(+ $($more: $value),*)?
        })
    };
}

macro_rules! convert_fill {
    ($from:expr, $to:ident $(+ $($more:ident: $value:expr),*)?) => {
        convert!($from, $to {
            dst pitch value elementSize width height $(+ $($more: $value),*)?
        })
    };
}

/// The first version of a kernel's parameters, as the second.
pub fn kernel_v1(call: &CUDA_KERNEL_NODE_PARAMS_v1) -> CUDA_KERNEL_NODE_PARAMS {
    convert_kernel!(call, CUDA_KERNEL_NODE_PARAMS + kern: null_mut(), ctx: null_mut())
}

/// The second version as the first.
pub fn to_kernel_v1(call: &CUDA_KERNEL_NODE_PARAMS) -> CUDA_KERNEL_NODE_PARAMS_v1 {
    convert_kernel!(call, CUDA_KERNEL_NODE_PARAMS_v1)
}

fn kernel_v3(call: &CUDA_KERNEL_NODE_PARAMS_v3) -> CUDA_KERNEL_NODE_PARAMS {
    convert_kernel!(call, CUDA_KERNEL_NODE_PARAMS + kern: call.kern, ctx: call.ctx)
}

fn to_kernel_v3(call: &CUDA_KERNEL_NODE_PARAMS) -> CUDA_KERNEL_NODE_PARAMS_v3 {
    convert_kernel!(call, CUDA_KERNEL_NODE_PARAMS_v3 + kern: call.kern, ctx: call.ctx)
}

/// A fill's parameters and its context.
pub fn fill_in(rows: &CUDA_MEMSET_NODE_PARAMS, ctx: CUcontext) -> CUDA_MEMSET_NODE_PARAMS_v2 {
    convert_fill!(rows, CUDA_MEMSET_NODE_PARAMS_v2 + ctx: ctx)
}

/// A fill's parameters without the context.
pub fn to_fill_v1(rows: &CUDA_MEMSET_NODE_PARAMS_v2) -> CUDA_MEMSET_NODE_PARAMS {
    convert_fill!(rows, CUDA_MEMSET_NODE_PARAMS)
}

/// Refuses an invalid event.
pub fn event(driver: &Driver, event: CUevent) -> Answer<CUevent> {
    let found = driver.events.get(event as usize);
    found.map(|_| event).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// The work that tagged parameters describe.
pub fn read(driver: &'static Driver, params: &CUgraphNodeParams) -> Answer<NewNode> {
    if params.reserved0 != [0; 3] || params.reserved2 != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let union = &params.unnamed2;
    // SAFETY: every field of the union is made of numbers and addresses, for which all bits are
    // valid; the tag says which of them the program has set.
    let task = unsafe {
        match params.r#type {
            CU_GRAPH_NODE_TYPE_KERNEL => {
                Task::Kernel(Kernel::checked(driver, kernel_v3(&union.kernel))?)
            }
            CU_GRAPH_NODE_TYPE_MEMCPY => {
                task::copy(driver, union.memcpy.copyParams, union.memcpy.copyCtx)?
            }
            CU_GRAPH_NODE_TYPE_MEMSET => task::fill(driver, union.memset)?,
            CU_GRAPH_NODE_TYPE_HOST => task::host(CUDA_HOST_NODE_PARAMS {
                r#fn: union.host.r#fn,
                userData: union.host.userData,
            })?,
            CU_GRAPH_NODE_TYPE_GRAPH => {
                let child = union.graph.graph as usize;
                return match union.graph.ownership {
                    CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE => Ok(NewNode::Copied(child)),
                    CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE => Ok(NewNode::Moved(child)),
                    _ => Err(CUDA_ERROR_INVALID_VALUE),
                };
            }
            CU_GRAPH_NODE_TYPE_EMPTY => Task::Empty,
            CU_GRAPH_NODE_TYPE_WAIT_EVENT => Task::Wait(event(driver, union.eventWait.event)?),
            CU_GRAPH_NODE_TYPE_EVENT_RECORD => {
                Task::Record(event(driver, union.eventRecord.event)?)
            }
            CU_GRAPH_NODE_TYPE_MEM_ALLOC => memory::allocation(driver, &union.alloc)?,
            CU_GRAPH_NODE_TYPE_MEM_FREE => task::free(driver, union.free.dptr)?,
            CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL..=CU_GRAPH_NODE_TYPE_FABRIC_CPY_BATCH => {
                return Err(CUDA_ERROR_NOT_SUPPORTED);
            }
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
    };
    Ok(NewNode::from(task))
}

/// The tagged parameters of a node's work.
pub fn write(task: &Task) -> CUgraphNodeParams {
    // SAFETY: the structure is made of numbers and addresses; zero is valid for all of them.
    let mut params: CUgraphNodeParams = unsafe { core::mem::zeroed() };
    params.r#type = task.kind();
    let union = &mut params.unnamed2;
    match task {
        Task::Kernel(kernel) => union.kernel = to_kernel_v3(&kernel.call),
        Task::Copy(copy, context) => {
            union.memcpy = CUDA_MEMCPY_NODE_PARAMS_st {
                flags: 0,
                reserved: 0,
                copyCtx: *context,
                copyParams: *copy,
            };
        }
        Task::Fill(rows) => union.memset = *rows,
        Task::Host(call) => {
            union.host = CUDA_HOST_NODE_PARAMS_v2 {
                r#fn: call.r#fn,
                userData: call.userData,
                syncMode: 0,
                unnamed3: CUDA_HOST_NODE_PARAMS_v2_st_unnamed3 { ctx: core::ptr::null_mut() },
            };
        }
        Task::Child(child) => {
            union.graph = CUDA_CHILD_GRAPH_NODE_PARAMS {
                graph: handle(*child),
                ownership: CU_GRAPH_CHILD_GRAPH_OWNERSHIP_INVALID,
            };
        }
        Task::Empty => {}
        Task::Wait(event) => union.eventWait.event = *event,
        Task::Record(event) => union.eventRecord.event = *event,
        Task::Allocate(made) => union.alloc = memory::describe(made),
        Task::Free(freed) => union.free.dptr = freed.address(),
    }
    params
}

impl Graphs {
    /// Whether a graph is another one, or a child graph anywhere in it.
    fn contains(&self, outer: usize, inner: usize) -> bool {
        outer == inner
            || self.graph(outer).is_ok_and(|graph| {
                graph.nodes.values().any(|node| match node.task {
                    Task::Child(child) => self.contains(child, inner),
                    _ => false,
                })
            })
    }

    /// The work of a new node of `graph`, with the child graph that belongs to it.
    pub fn grant(&mut self, graph: usize, node: usize, new: NewNode) -> Answer<Task> {
        match new {
            NewNode::Task(task) => {
                let (_, id) = self.locate(node)?;
                self.admit(graph, id, &task).map(|()| *task)
            }
            NewNode::Copied(child) => self.adopt(child),
            NewNode::Moved(child) => {
                let found = self.graph(child)?;
                if found.has_memory() {
                    return Err(CUDA_ERROR_NOT_SUPPORTED);
                }
                if found.is_child || found.captures > 0 || self.contains(child, graph) {
                    return Err(CUDA_ERROR_INVALID_VALUE);
                }
                self.graph_mut(child)?.is_child = true;
                Ok(Task::Child(child))
            }
        }
    }
}
