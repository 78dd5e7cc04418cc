//! Nodes that allocate and free memory.
//!
//! An allocation node gets its address when it is added, by the dependencies that the graph's nodes
//! were added with ([`stub_engine::graph_pool::layout`]). Instantiation checks that each free node of a graph comes after the allocation node,
//! and computes the footprint. [`crate::memory::graph_pool`] has the pools, and what a launch does.

use super::exec::{Fault, Step};
use super::model::{Graph, Graphs};
use super::nodes::{add, read};
use super::task::{self, Task};
use crate::Answer;
use crate::boundary::{In, Out};
use crate::memory::graph_pool::{Allocation, Block, Move, Part};
use crate::memory::pool::calls::{check_accesses, device_of};
use crate::process::{Driver, driver, lock};
use driver_sys::cuda::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use stub_engine::graph_pool::layout::{self, Ancestors, Layout};

/// The work of a new allocation node: memory of a device that stays in this process.
fn allocation(driver: &Driver, params: &CUDA_MEM_ALLOC_NODE_PARAMS) -> Answer<Arc<Allocation>> {
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
    check_accesses(driver, accesses, params.accessDescCount, device)?;
    Ok(Arc::new(Allocation::new(driver, device, params.bytesize as u64)?))
}

/// The parameters of an allocation node, without access of other devices.
fn describe(made: &Allocation) -> CUDA_MEM_ALLOC_NODE_PARAMS {
    // SAFETY: a structure of numbers and pointers, for which zero is valid.
    let mut params: CUDA_MEM_ALLOC_NODE_PARAMS = unsafe { core::mem::zeroed() };
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location.r#type = CU_MEM_LOCATION_TYPE_DEVICE;
    params.poolProps.location.unnamed1.id = made.device;
    (params.bytesize, params.dptr) = (made.bytes as usize, made.address());
    params
}

/// `cuGraphAddMemAllocNode`: also returns the address.
pub fn add_allocation(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    params: Out<CUDA_MEM_ALLOC_NODE_PARAMS>,
) -> Answer {
    let mut made = None;
    add(node, graph, after, count, || {
        let new = allocation(driver()?, &params.read()?)?;
        Ok(Task::Allocate(Arc::clone(made.insert(new))))
    })?;
    let dptr = made.map_or(0, |made| made.address());
    params.put(CUDA_MEM_ALLOC_NODE_PARAMS { dptr, ..params.read()? })
}

/// `cuGraphMemAllocNodeGetParams`
pub fn get_allocation(node: CUgraphNode, params: Out<CUDA_MEM_ALLOC_NODE_PARAMS>) -> Answer {
    let pick = |task: &Task| match task {
        Task::Allocate(made) => Some(describe(made)),
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
    let pick =
        |task: &Task| if let Task::Free(freed) = task { Some(freed.address()) } else { None };
    read(node, pick, address)
}

/// Where the allocations of a graph are.
pub struct Layouts {
    /// The local id of the first node that allocates or frees. Earlier ones do not matter.
    first: u32,
    /// By the dependencies with which the nodes from the first one on were added.
    ancestors: Ancestors,
    blocks: BTreeMap<CUdevice, Vec<(Arc<Block>, Layout)>>,
}

impl Layouts {
    fn new(first: u32) -> Self {
        Self { first, ancestors: Ancestors::new([&[][..]]), blocks: BTreeMap::new() }
    }

    fn index(&self, node: u32) -> Option<usize> {
        node.checked_sub(self.first).map(|index| index as usize)
    }

    /// Records a new node that depends on others.
    pub fn push(&mut self, after: &[u32]) {
        let after: Vec<_> = after.iter().filter_map(|node| self.index(*node)).collect();
        self.ancestors.push(&after);
    }

    /// Places the allocation of a node.
    fn place(&mut self, driver: &Driver, made: &Arc<Allocation>, node: u32) -> Answer {
        let node = self.index(node).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let blocks = self.blocks.entry(made.device).or_default();
        for (block, layout) in blocks.iter_mut() {
            if let Some(offset) = layout.place(made.bytes, node, &self.ancestors) {
                made.place(driver, block, offset);
                return Ok(());
            }
        }
        let reserved = blocks.iter().map(|(block, _)| block.bytes).sum();
        let block = Arc::new(Block::reserve(driver, made.device, reserved, made.bytes)?);
        let mut layout = Layout::new(block.bytes);
        let offset = layout.place(made.bytes, node, &self.ancestors);
        made.place(driver, &block, offset.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?);
        blocks.push((block, layout));
        Ok(())
    }

    /// Records the node that frees an allocation of this graph.
    fn free(&mut self, freed: &Allocation, node: u32) {
        let (Some(node), Some((own, offset))) = (self.index(node), freed.place_in_block()) else {
            return;
        };
        let mut blocks = self.blocks.get_mut(&freed.device).into_iter().flatten();
        if let Some((_, layout)) = blocks.find(|(block, _)| Arc::ptr_eq(block, own)) {
            layout.free(offset, node);
        }
    }
}

impl Graph {
    /// Whether it has allocation or free nodes.
    pub fn has_memory(&self) -> bool {
        self.memory.is_some()
    }
}

impl Graphs {
    /// Refuses a node that may not allocate or free in its graph; records one that may.
    ///
    /// A child graph can have no such node. An allocation is freed by its own graph only, or by
    /// others only, and by each graph at most once.
    pub fn admit(&mut self, graph: usize, node: u32, task: &Task) -> Answer {
        if !task.is_memory() {
            return Ok(());
        }
        let found = self.graph_mut(graph)?;
        if found.is_child {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        match task {
            Task::Allocate(made) => {
                let memory = found.memory.get_or_insert_with(|| Layouts::new(node));
                memory.place(driver()?, made, node)?;
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
                found.memory.get_or_insert_with(|| Layouts::new(node)).free(freed, node);
            }
            _ => {}
        }
        Ok(())
    }
}

/// What a graph's steps do with the graph memory of each device; a fault names a free node that
/// does not come after the allocation node.
pub fn parts(steps: &[Step]) -> Result<Vec<Part>, Fault> {
    if !steps.iter().any(|step| step.task.is_memory()) {
        return Ok(Vec::new());
    }
    let ancestors = Ancestors::new(steps.iter().map(|step| step.after.as_slice()));
    let mut allocations = BTreeMap::new();
    for (index, step) in steps.iter().enumerate() {
        if let Task::Allocate(made) = &step.task {
            allocations.insert(made.id, index);
        }
    }
    for (index, step) in steps.iter().enumerate() {
        if let Task::Free(freed) = &step.task
            && let Some(made) = allocations.get(&freed.id)
            && !ancestors.precedes(*made, index)
        {
            let fault = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
            return Err((CUDA_ERROR_INVALID_VALUE, fault, step.node));
        }
    }
    let plainly = |error| (error, CUDA_GRAPH_INSTANTIATE_ERROR, 0);
    let driver = driver().map_err(plainly)?;
    let devices: std::collections::BTreeSet<_> = steps.iter().filter_map(device).collect();
    devices.into_iter().map(|device| part(driver, steps, device).map_err(plainly)).collect()
}

/// The device of a step that allocates or frees.
fn device(step: &Step) -> Option<CUdevice> {
    match &step.task {
        Task::Allocate(memory) | Task::Free(memory) => Some(memory.device),
        _ => None,
    }
}

fn part(driver: &Driver, steps: &[Step], own: CUdevice) -> Answer<Part> {
    let step = |step: &Step| match &step.task {
        Task::Allocate(made) => Some(Move::Allocate(Arc::clone(made))),
        Task::Free(gone) => Some(Move::Free(Arc::clone(gone))),
        _ => None,
    };
    let own_steps = steps.iter().filter(|step| device(step) == Some(own));
    let moves: Vec<_> = own_steps.filter_map(step).collect();
    let range = |step: &Move| match step {
        Move::Allocate(made) => Some((made.offset(), made.bytes)),
        Move::Free(_) => None,
    };
    let unit = driver.graph_memory.unit(own)?;
    let footprint = layout::footprint(moves.iter().filter_map(range), unit);
    Ok(Part { device: own, footprint, moves })
}
