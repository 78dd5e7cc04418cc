//! Work on a capturing stream becomes the next node of its graph.
//!
//! Each function returns whether it has taken the work. `false`: the stream does not capture, and
//! the caller does the work.

use super::lock_registry;
use crate::Answer;
use crate::graph::exec::{Exec, Step};
use crate::graph::model::Graphs;
use crate::graph::task::{self, Task};
use crate::launch::Shape;
use crate::memory::graph_pool::Allocation;
use crate::process::{Driver, handle, lock};
use crate::stream::{self, Queue};
use driver_sys::cuda::*;
use std::sync::Arc;

/// Takes any work.
#[inline]
pub fn work(driver: &Driver, queue: Queue, task: impl FnOnce() -> Answer<Task>) -> Answer<bool> {
    if driver.captures.is_idle() {
        return Ok(false);
    }
    lock_registry(driver).registry.take(&mut lock(&driver.graphs), queue, |_| task())
}

/// Takes the launch of a checked kernel. It takes the stream's handle and is not inlined, so that
/// launches keep nothing for it on their stack.
#[cold]
pub fn kernel(on: CUstream, function: CUfunction, shape: &Shape) -> Answer<bool> {
    let (driver, queue) = stream::resolve(on)?;
    work(driver, queue, || {
        let call = CUDA_KERNEL_NODE_PARAMS {
            func: function,
            gridDimX: shape.grid[0],
            gridDimY: shape.grid[1],
            gridDimZ: shape.grid[2],
            blockDimX: shape.block[0],
            blockDimY: shape.block[1],
            blockDimZ: shape.block[2],
            sharedMemBytes: shape.shared,
            kernelParams: core::ptr::null_mut(),
            extra: core::ptr::null_mut(),
            kern: core::ptr::null_mut(),
            ctx: handle(queue.context().1),
        };
        Ok(Task::Kernel(call))
    })
}

/// Takes an allocation from a pool; returns its address.
pub fn allocation(
    driver: &Driver,
    queue: Queue,
    new: impl FnOnce() -> Answer<Arc<Allocation>>,
) -> Answer<Option<u64>> {
    let mut made = None;
    work(driver, queue, || Ok(Task::Allocate(Arc::clone(made.insert(new()?)))))?;
    Ok(made.map(|made| made.address()))
}

/// Takes the free of memory, which must be a graph's.
pub fn free(driver: &Driver, queue: Queue, address: u64) -> Answer<bool> {
    work(driver, queue, || task::free(driver, address))
}

/// Takes a copy.
pub fn copy(driver: &Driver, queue: Queue, volume: impl FnOnce() -> CUDA_MEMCPY3D) -> Answer<bool> {
    work(driver, queue, || task::copy(driver, volume(), handle(queue.context().1)))
}

/// Takes the launch of a graph, as a child graph.
pub fn graph(driver: &Driver, queue: Queue, exec: &Exec) -> Answer<bool> {
    if driver.captures.is_idle() {
        return Ok(false);
    }
    let state = lock(&exec.state);
    let copied = |graphs: &mut Graphs| copied(graphs, &state.steps);
    lock_registry(driver).registry.take(&mut lock(&driver.graphs), queue, copied)
}

/// Creates a graph of the same steps, for a node.
fn copied(graphs: &mut Graphs, steps: &[Step]) -> Answer<Task> {
    if steps.iter().any(|step| step.task.is_memory()) {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    let child = graphs.create();
    let mut made: Vec<usize> = Vec::with_capacity(steps.len());
    for step in steps {
        let after: Vec<_> = step.after.iter().map(|before| made[*before]).collect();
        let task = match &step.task {
            // The steps of a child graph come before the step of its node.
            Task::Child(_) => Task::Empty,
            task => task.clone(),
        };
        made.push(graphs.add(child, task, &after)?);
    }
    graphs.graph_mut(child)?.is_child = true;
    Ok(Task::Child(child))
}
