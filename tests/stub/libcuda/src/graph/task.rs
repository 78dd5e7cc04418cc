//! The work of a node: its parameters, which are checked when they are set.
//!
//! A kernel belongs to its module's context; a kernel of a library belongs to the context that is
//! named or current.

use crate::memory::graph_pool::Allocation;
use crate::process::{Driver, handle};
use crate::{
    Answer, context, launch,
    memory::{fill, volume},
    module::{self, function},
};
use driver_sys::cuda::*;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The work of a node.
#[derive(Clone)]
pub enum Task {
    /// `func` is set, whichever of `func` and `kern` the program has set. The arguments are kept as
    /// addresses: only the kernel's image has their number, and nothing here reads them.
    Kernel(CUDA_KERNEL_NODE_PARAMS),
    /// In a context.
    Copy(CUDA_MEMCPY3D, CUcontext),
    Fill(CUDA_MEMSET_NODE_PARAMS_v2),
    Host(CUDA_HOST_NODE_PARAMS),
    /// The handle of a graph that belongs to the node.
    Child(usize),
    Empty,
    /// Makes an allocation.
    Allocate(Arc<Allocation>),
    /// Frees it.
    Free(Arc<Allocation>),
}

// SAFETY: the addresses in it are the program's; code that uses them checks them first or has the
// program's word, as with every other call.
unsafe impl Send for Task {}
// SAFETY: as above.
unsafe impl Sync for Task {}

/// A kernel with valid parameters and its context.
pub fn kernel(driver: &'static Driver, mut call: CUDA_KERNEL_NODE_PARAMS) -> Answer<Task> {
    if call.func.is_null() {
        call.func = call.kern.cast();
    }
    if !call.kernelParams.is_null() && !call.extra.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    function::find(driver, call.func).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    let function = launch::check(driver, call.func, &shape(&call))?.function;
    let module = function.module.load(Ordering::Relaxed);
    call.ctx = if let Some(context) = module::context_of(driver, module) {
        handle(context)
    } else {
        let (_, context, own_handle) = context::named(call.ctx)?;
        module::load_kernel(driver, function, context)?;
        handle(own_handle)
    };
    Ok(Task::Kernel(call))
}

/// The extent of a node's launch.
pub fn shape(call: &CUDA_KERNEL_NODE_PARAMS) -> launch::Shape {
    launch::Shape {
        grid: [call.gridDimX, call.gridDimY, call.gridDimZ],
        block: [call.blockDimX, call.blockDimY, call.blockDimZ],
        shared: call.sharedMemBytes,
    }
}

/// The context of a node that names one; NULL is the current one.
fn context_of(context: CUcontext) -> Answer<CUcontext> {
    context::named(context).map(|(_, _, found)| handle(found))
}

/// A copy's volume.
pub fn copy(driver: &Driver, copy: CUDA_MEMCPY3D, context: CUcontext) -> Answer<Task> {
    let context = context_of(context)?;
    if copy.WidthInBytes == 0 || copy.Height == 0 || copy.Depth == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    volume::check(driver, &copy)?;
    Ok(Task::Copy(copy, context))
}

/// Rows of elements set to a value.
pub fn fill(driver: &Driver, mut rows: CUDA_MEMSET_NODE_PARAMS_v2) -> Answer<Task> {
    rows.ctx = context_of(rows.ctx)?;
    if rows.width == 0 || rows.height == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    fill::check(driver, &rows)?;
    Ok(Task::Fill(rows))
}

/// The free of an allocation of a graph.
pub fn free(driver: &Driver, address: u64) -> Answer<Task> {
    driver.graph_memory.find(address).map(Task::Free).ok_or(CUDA_ERROR_INVALID_VALUE)
}

impl Task {
    /// Whether it allocates or frees.
    pub fn is_memory(&self) -> bool {
        matches!(self, Self::Allocate(_) | Self::Free(_))
    }

    /// The header's number for its type.
    pub fn kind(&self) -> CUgraphNodeType {
        match self {
            Self::Kernel(_) => CU_GRAPH_NODE_TYPE_KERNEL,
            Self::Copy(..) => CU_GRAPH_NODE_TYPE_MEMCPY,
            Self::Fill(_) => CU_GRAPH_NODE_TYPE_MEMSET,
            Self::Host(_) => CU_GRAPH_NODE_TYPE_HOST,
            Self::Child(_) => CU_GRAPH_NODE_TYPE_GRAPH,
            Self::Empty => CU_GRAPH_NODE_TYPE_EMPTY,
            Self::Allocate(_) => CU_GRAPH_NODE_TYPE_MEM_ALLOC,
            Self::Free(_) => CU_GRAPH_NODE_TYPE_MEM_FREE,
        }
    }

    /// The handle of its context; 0 if it has none.
    pub fn context(&self) -> usize {
        let context = match self {
            Self::Kernel(call) => call.ctx,
            Self::Copy(_, context) => *context,
            Self::Fill(rows) => rows.ctx,
            _ => core::ptr::null_mut(),
        };
        context as usize
    }

    /// Whether other work can replace it in an executable graph: a kernel of the same context, or a
    /// copy between the same kinds of memory.
    pub fn accepts(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Kernel(old), Self::Kernel(new)) => old.ctx == new.ctx,
            (Self::Copy(old, _), Self::Copy(new, _)) => {
                old.srcMemoryType == new.srcMemoryType && old.dstMemoryType == new.dstMemoryType
            }
            _ => false,
        }
    }
}
