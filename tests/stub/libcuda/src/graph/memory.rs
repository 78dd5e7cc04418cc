//! Nodes that allocate and free memory.
//!
//! An allocation node has its address from its creation on. Instantiation checks that each free
//! node of a graph comes after the allocation node, and computes the *footprint*: how many bytes of
//! a device's graph memory pool the graph needs ([`stub_engine::graph_pool::layout`]).
//! [`crate::memory::graph_pool`] has the pools, and what a launch does.

use super::exec::{Fault, Step};
use super::model::Graphs;
use super::nodes::{add, read};
use super::task::{self, Task};
use crate::Answer;
use crate::boundary::{In, Out};
use crate::memory::graph_pool::{Allocation, Move, Part};
use crate::memory::pool::calls::{device_of, read_accesses};
use crate::process::{Driver, driver, lock};
use driver_sys::cuda::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use stub_engine::graph_pool::layout::{self, Ancestors, Place, Request};

/// The work of a new allocation node: memory of a device that stays in this process.
pub fn allocation(driver: &Driver, params: &CUDA_MEM_ALLOC_NODE_PARAMS_v2) -> Answer<Task> {
    let pool = &params.poolProps;
    if pool.allocType != CU_MEM_ALLOCATION_TYPE_PINNED
        || pool.handleTypes != CU_MEM_HANDLE_TYPE_NONE
    {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let device = device_of(driver, pool.location)?;
    if params.accessDescCount > driver.devices.len() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let accesses = In::of(params.accessDescs);
    let accesses = read_accesses(driver, accesses, params.accessDescCount, device)?;
    let mut made = Allocation::new(driver, device, params.bytesize as u64)?;
    (made.largest, made.usage, made.accesses) = (pool.maxSize, pool.usage, accesses);
    Ok(Task::Allocate(made.publish(driver)))
}

/// The parameters of an allocation node. The array in them belongs to the node.
pub fn describe(made: &Allocation) -> CUDA_MEM_ALLOC_NODE_PARAMS_v2 {
    // SAFETY: a structure of numbers and pointers, for which zero is valid.
    let mut params: CUDA_MEM_ALLOC_NODE_PARAMS_v2 = unsafe { core::mem::zeroed() };
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location.r#type = CU_MEM_LOCATION_TYPE_DEVICE;
    params.poolProps.location.unnamed1.id = made.device;
    (params.poolProps.maxSize, params.poolProps.usage) = (made.largest, made.usage);
    if !made.accesses.is_empty() {
        params.accessDescs = made.accesses.as_ptr();
    }
    params.accessDescCount = made.accesses.len();
    (params.bytesize, params.dptr) = (made.bytes as usize, made.address);
    params
}

/// A structure of the other version, which has the same fields.
macro_rules! convert {
    ($from:expr, $to:ident) => {
        $to {
            poolProps: $from.poolProps,
            accessDescs: $from.accessDescs,
            accessDescCount: $from.accessDescCount,
            bytesize: $from.bytesize,
            dptr: $from.dptr,
        }
    };
}

/// `cuGraphAddMemAllocNode`: also returns the address.
pub fn add_allocation(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    params: Out<CUDA_MEM_ALLOC_NODE_PARAMS>,
) -> Answer {
    let mut address = 0;
    add(node, graph, after, count, || {
        let task = allocation(driver()?, &convert!(params.read()?, CUDA_MEM_ALLOC_NODE_PARAMS_v2))?;
        if let Task::Allocate(made) = &task {
            address = made.address;
        }
        Ok(task)
    })?;
    params.put(CUDA_MEM_ALLOC_NODE_PARAMS { dptr: address, ..params.read()? })
}

/// `cuGraphMemAllocNodeGetParams`
pub fn get_allocation(node: CUgraphNode, params: Out<CUDA_MEM_ALLOC_NODE_PARAMS>) -> Answer {
    let pick = |task: &Task| match task {
        Task::Allocate(made) => Some(convert!(describe(made), CUDA_MEM_ALLOC_NODE_PARAMS)),
        _ => None,
    };
    read(node, pick, params)
}

/// `cuGraphAddMemFreeNode`
pub fn add_free(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    address: CUdeviceptr,
) -> Answer {
    add(node, graph, after, count, || task::free(driver()?, address))
}

/// `cuGraphMemFreeNodeGetParams`
pub fn get_free(node: CUgraphNode, address: Out<CUdeviceptr>) -> Answer {
    read(
        node,
        |task| if let Task::Free(freed) = task { Some(freed.address) } else { None },
        address,
    )
}

impl Graphs {
    /// Refuses a node that may not allocate or free in a graph; records one that may.
    ///
    /// A child graph can have no such node. An allocation is freed by its own graph only, or by
    /// others only, and by each graph at most once.
    pub fn admit(&mut self, graph: usize, task: &Task) -> Answer {
        if !task.is_memory() {
            return Ok(());
        }
        let found = self.graph_mut(graph)?;
        if found.is_child {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        match task {
            Task::Allocate(made) => {
                made.graph.set(found.id).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
            }
            Task::Free(freed) => {
                let owner = freed.graph.get().copied().ok_or(CUDA_ERROR_INVALID_VALUE)?;
                let mut freed_by = lock(&freed.freed_by);
                let is_taken = if owner == found.id {
                    !freed_by.is_empty()
                } else {
                    freed_by.contains(&owner)
                };
                if is_taken || !freed_by.insert(found.id) {
                    return Err(CUDA_ERROR_INVALID_VALUE);
                }
            }
            _ => {}
        }
        found.has_memory = true;
        Ok(())
    }
}

/// What a graph's steps do with the graph memory of each device; a fault names a free node that
/// does not come after the allocation node.
pub fn parts(steps: &[Step]) -> Result<Vec<Part>, Fault> {
    if !steps.iter().any(|step| step.task.is_memory()) {
        return Ok(Vec::new());
    }
    let places: Vec<_> =
        steps.iter().map(|step| Place { after: step.after.clone(), branch: step.branch }).collect();
    let ancestors = Ancestors::new(&places);
    let frees = frees(steps);
    let mut allocations = BTreeMap::new();
    for (index, step) in steps.iter().enumerate() {
        if let Task::Allocate(made) = &step.task {
            allocations.insert(made.address, index);
        }
    }
    for (address, free) in &frees {
        if let Some(made) = allocations.get(address)
            && !ancestors.precedes(*made, *free)
        {
            let fault = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
            return Err((CUDA_ERROR_INVALID_VALUE, fault, steps[*free].node));
        }
    }
    let devices: std::collections::BTreeSet<_> = steps.iter().filter_map(device).collect();
    let part = |device| {
        part(steps, device, &ancestors, &frees).ok_or((
            CUDA_ERROR_OUT_OF_MEMORY,
            CUDA_GRAPH_INSTANTIATE_ERROR,
            0,
        ))
    };
    devices.into_iter().map(part).collect()
}

/// The steps that free, by address.
fn frees(steps: &[Step]) -> BTreeMap<u64, usize> {
    let free = |(index, step): (usize, &Step)| match &step.task {
        Task::Free(freed) => Some((freed.address, index)),
        _ => None,
    };
    steps.iter().enumerate().filter_map(free).collect()
}

/// The device of a step that allocates or frees.
fn device(step: &Step) -> Option<CUdevice> {
    match &step.task {
        Task::Allocate(memory) | Task::Free(memory) => Some(memory.device),
        _ => None,
    }
}

fn part(
    steps: &[Step],
    own: CUdevice,
    ancestors: &Ancestors,
    frees: &BTreeMap<u64, usize>,
) -> Option<Part> {
    let own_steps = || steps.iter().enumerate().filter(|(_, step)| device(step) == Some(own));
    let request = |(step, found): (usize, &Step)| match &found.task {
        Task::Allocate(made) => {
            Some(Request { step, free: frees.get(&made.address).copied(), bytes: made.bytes })
        }
        _ => None,
    };
    let requests: Vec<_> = own_steps().filter_map(request).collect();
    let (offsets, footprint) = layout::place(&requests, ancestors)?;
    let mut offsets = offsets.into_iter();
    let step = |(_, step): (usize, &Step)| match &step.task {
        Task::Allocate(made) => Some(Move::Allocate(Arc::clone(made), offsets.next()?)),
        Task::Free(gone) => Some(Move::Free(Arc::clone(gone))),
        _ => None,
    };
    let moves = own_steps().filter_map(step).collect();
    Some(Part { device: own, footprint, moves })
}
