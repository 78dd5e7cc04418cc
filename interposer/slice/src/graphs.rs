//! Graph memory: what the allocation nodes of graphs take.
//!
//! Each device has one pool of graph memory. Creating a node or an executable graph takes only
//! addresses. The first upload or launch takes the memory, and the pool keeps it for later launches
//! until it is trimmed. Other graphs take over memory of graphs that do not run. Only the driver
//! knows which; it reports what the pool has reserved.
//!
//! The driver chooses the addresses when nodes are added. Allocations of a graph that never live at
//! the same time can get the same addresses. So an executable graph has a *need*: the bytes at the
//! addresses of all its allocations. Before an upload or a launch, the charge is raised by the
//! need, unless the graph's memory is in the pool already. Afterwards the charge is set to what the
//! driver reports.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use driver_sys::cuda::{
    CU_GRAPH_NODE_TYPE_EMPTY, CU_GRAPH_NODE_TYPE_GRAPH, CU_GRAPH_NODE_TYPE_MEM_ALLOC,
    CU_GRAPH_NODE_TYPE_MEM_FREE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_MEM_ALLOC_NODE_PARAMS_v1,
    CUDA_SUCCESS, CUdevice, CUdeviceptr, CUgraph, CUgraphNode, CUresult,
};
use vgpu_driver::guard::lock;
use vgpu_driver::location;
use vgpu_driver::real::{self, Outcome};

use crate::cards;
use crate::current::limited;
use crate::limited::{Card, Limited};
use crate::pools::graph_memory::{ANY_CHARGED, GraphPool, Reserved, pool_of};
use crate::pools::{self, Busy};
use crate::reported::Reported;
use crate::table::{Entry, Full, Table, Then};

/// How many executable graphs with allocation nodes this process has. The wrappers of graph
/// launches read it from assembly.
pub static ALLOCATING: AtomicU32 = AtomicU32::new(0);

static EXECUTABLES: Table<Executable> = Table::new();

/// On how many devices one graph can allocate.
const MOST_DEVICES: usize = 16;

/// The pool takes memory of the card in units of this many bytes, measured on an H200. Where the
/// card's granule is unknown, memory is counted as it is requested.
const POOL_UNIT: u64 = 32 << 20;

/// How long a launch waits for launches of other threads to show what they have taken.
const OTHERS_PATIENCE: Duration = Duration::from_millis(100);

/// An executable graph that allocates.
#[derive(Clone, Copy)]
struct Executable {
    handle: u64,
    needs: Needs,
}

// SAFETY: numbers; without a handle it is an empty entry.
unsafe impl Entry for Executable {
    fn key(&self) -> u64 {
        self.handle
    }
}

/// What an executable graph needs, by device.
pub type Needs = [Need; MOST_DEVICES];

/// What an executable graph needs on a device.
#[derive(Clone, Copy, Default)]
pub struct Need {
    /// 0 if it needs nothing.
    bytes: u64,
    device: CUdevice,
    /// The pool's epoch in which the graph's memory came into the pool; 0: it never did.
    resident: u32,
    /// Whether some of it stays allocated when the graph has run.
    has_outputs: bool,
    /// By how much launches in progress may let the pool grow.
    growth: u64,
}

impl Need {
    /// The most bytes that the pool can have with one more launch of the graph, and the bytes by
    /// which this launch may let the pool grow.
    fn most_in(&self, pool: &GraphPool, reserved: u64) -> (u64, u64) {
        let most = pool.most(reserved);
        let growth = if self.resident == pool.epoch {
            // Bytes that other launches in progress have taken are not part of this graph.
            self.bytes.min(pool.resident.saturating_sub(most.saturating_sub(pool.growth)))
        } else {
            self.bytes
        };
        (most + growth, growth)
    }
}

/// The needs of a graph. Without a slice they are 0, and the driver is not asked. A graph that
/// allocates on too many devices is refused.
pub fn needs_of(graph: CUgraph) -> Outcome<Needs> {
    let mut needs = Needs::default();
    let Some(limited) = limited() else { return Ok(needs) };
    let mut found = Found::default();
    found.add_graph(graph);
    found.allocated.sort_unstable();
    let mut end_of_last = 0;
    for Range { device, begin, end } in found.allocated {
        let is_of = |need: &&mut Need| need.bytes == 0 || need.device == device;
        let need = needs.iter_mut().find(is_of).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        if need.bytes == 0 {
            (need.device, end_of_last) = (device, 0);
        }
        need.bytes += end.saturating_sub(begin.max(end_of_last));
        need.has_outputs |= !found.freed.contains(&begin);
        end_of_last = end_of_last.max(end);
    }
    for need in needs.iter_mut().filter(|need| need.bytes > 0) {
        if cards::of_device(limited, need.device).is_some_and(Card::is_granule_known) {
            need.bytes = need.bytes.next_multiple_of(POOL_UNIT);
        }
    }
    Ok(needs)
}

/// The addresses of an allocation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Range {
    device: CUdevice,
    begin: u64,
    end: u64,
}

/// The allocations and frees of a graph's nodes.
#[derive(Default)]
struct Found {
    allocated: Vec<Range>,
    freed: HashSet<CUdeviceptr>,
}

impl Found {
    fn add_graph(&mut self, graph: CUgraph) {
        let mut count = 0;
        // SAFETY: a handle that the driver checks, and a local variable.
        if unsafe { real::cuGraphGetNodes(graph, std::ptr::null_mut(), &raw mut count) }
            != CUDA_SUCCESS
        {
            return;
        }
        let mut nodes: Vec<CUgraphNode> = vec![std::ptr::null_mut(); count];
        // SAFETY: room for as many nodes as the driver has counted.
        if unsafe { real::cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count) }
            == CUDA_SUCCESS
        {
            nodes.into_iter().take(count).for_each(|node| self.add_node(node));
        }
    }

    fn add_node(&mut self, node: CUgraphNode) {
        let mut kind = CU_GRAPH_NODE_TYPE_EMPTY;
        // SAFETY: the driver's own handle, and a local variable.
        let result = unsafe { real::cuGraphNodeGetType(node, &raw mut kind) };
        match kind {
            _ if result != CUDA_SUCCESS => {}
            CU_GRAPH_NODE_TYPE_MEM_ALLOC => self.allocated.extend(allocated_by(node)),
            CU_GRAPH_NODE_TYPE_MEM_FREE => {
                let mut address: CUdeviceptr = 0;
                // SAFETY: as above.
                unsafe { real::cuGraphMemFreeNodeGetParams(node, &raw mut address) };
                self.freed.insert(address);
            }
            CU_GRAPH_NODE_TYPE_GRAPH => {
                let mut child: CUgraph = std::ptr::null_mut();
                // SAFETY: as above.
                let result = unsafe { real::cuGraphChildGraphNodeGetGraph(node, &raw mut child) };
                if result == CUDA_SUCCESS {
                    self.add_graph(child);
                }
            }
            _ => {}
        }
    }
}

/// The allocation of a node, if it is on a device.
fn allocated_by(node: CUgraphNode) -> Option<Range> {
    // SAFETY: zero bytes are a valid value of this structure of numbers and pointers.
    let mut parameters: CUDA_MEM_ALLOC_NODE_PARAMS_v1 = unsafe { std::mem::zeroed() };
    // SAFETY: the driver's own handle, and a local variable.
    if unsafe { real::cuGraphMemAllocNodeGetParams(node, &raw mut parameters) } != CUDA_SUCCESS {
        return None;
    }
    let properties = &parameters.poolProps;
    let device = location::device_of(&properties.location, properties.allocType)?;
    let begin = parameters.dptr;
    Some(Range { device, begin, end: begin.saturating_add(parameters.bytesize as u64) })
}

/// The driver has created an executable graph with these needs.
pub fn instantiated(handle: u64, needs: Needs) -> Result<(), Full> {
    if needs.iter().all(|need| need.bytes == 0) {
        return Ok(());
    }
    if EXECUTABLES.insert(Executable { handle, needs })?.is_none() {
        ALLOCATING.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Destroys an executable graph; `call` calls the driver. The pool keeps its memory.
pub fn destroy(handle: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    if limited().is_none() {
        return call();
    }
    // Before the driver's call: afterwards it may hand out the handle again.
    let Some(executable) = EXECUTABLES.remove(handle) else { return call() };
    let result = call();
    if result != CUDA_SUCCESS {
        // There was room for this entry a moment ago.
        let _ = EXECUTABLES.insert(executable);
        return result;
    }
    ALLOCATING.fetch_sub(1, Ordering::Relaxed);
    for need in executable.needs.iter().filter(|need| need.bytes > 0) {
        let Some(pool) = pool_of(need.device) else { continue };
        let mut pool = lock(pool);
        // Memory of its outputs stays in use until the program frees them.
        if need.resident == pool.epoch && !need.has_outputs {
            pool.resident = pool.resident.saturating_sub(need.bytes);
        }
    }
    result
}

/// Charges what an upload or a launch of an executable graph may take. `wait` waits until the work
/// is done after which it runs. Returns whether [`after_launch`] must follow.
pub fn before_launch(handle: u64, wait: &dyn Fn()) -> Outcome<bool> {
    if limited().is_none() {
        return Ok(false);
    }
    let Some(Executable { mut needs, .. }) = EXECUTABLES.get(handle) else { return Ok(false) };
    reserve(&mut needs, wait)?;
    EXECUTABLES.change(handle, |executable| {
        for (stored, need) in executable.needs.iter_mut().zip(&needs) {
            stored.growth += need.growth;
        }
        Then::Keep
    });
    Ok(true)
}

/// The driver has uploaded or launched an executable graph, or has refused to.
pub fn after_launch(handle: u64, is_launched: bool) {
    let mut needs = Needs::default();
    EXECUTABLES.change(handle, |executable| {
        needs = executable.needs;
        executable.needs.iter_mut().for_each(|need| need.growth = 0);
        Then::Keep
    });
    settle(&mut needs, is_launched);
    EXECUTABLES.change(handle, |executable| {
        for (stored, need) in executable.needs.iter_mut().zip(&needs) {
            stored.resident = need.resident;
        }
        Then::Keep
    });
}

/// Charges what these needs may add to the pools: all or nothing.
pub fn reserve(needs: &mut Needs, wait: &dyn Fn()) -> Outcome {
    let Some(limited) = limited() else { return Ok(()) };
    let mut refused = Ok(());
    for need in needs.iter_mut().filter(|need| need.bytes > 0) {
        ANY_CHARGED.store(true, Ordering::Relaxed);
        refused = reserve_one(limited, need, wait);
        if refused.is_err() {
            break;
        }
    }
    if refused.is_err() {
        settle(needs, false);
    }
    refused
}

fn reserve_one(limited: &'static Limited, need: &mut Need, wait: &dyn Fn()) -> Outcome {
    need.growth = 0;
    let Some(pool) = pool_of(need.device) else { return Ok(()) };
    let card = cards::of_device(limited, need.device).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    let until = Instant::now() + OTHERS_PATIENCE;
    loop {
        let mut pool = lock(pool);
        let reserved = Reserved(need.device);
        // Other launches may take less than they need: graphs share memory.
        if pool.growth > 0 && Instant::now() < until {
            let (most, _) = need.most_in(&pool, reserved.reserved().unwrap_or(0));
            if most > pool.charge.bytes && !pool.charge.set(limited, card, most) {
                drop(pool);
                thread::sleep(Duration::from_micros(50));
                continue;
            }
        }
        let mut charge = pool.charge;
        let charged = Cell::new((0, 0));
        let wanted = |_| {
            charged.set(need.most_in(&pool, reserved.reserved().unwrap_or(0)));
            charged.get().0
        };
        let make_room = |card: &Card, _| {
            pools::trim(limited, card, Busy::Skip);
            // The driver does not take memory from a graph that runs. The launch would wait for it.
            wait();
            // The driver may have trimmed memory pools, also of other devices.
            pools::refresh(limited, Busy::Skip);
            reserved.trim();
        };
        let outcome = charge.raise(&reserved, limited, card, wanted, make_room);
        pool.charge = charge;
        if outcome.is_ok() {
            (pool.most, need.growth) = charged.get();
            pool.growth += need.growth;
        }
        return outcome;
    }
}

/// Corrects the charges after the driver's call.
pub fn settle(needs: &mut Needs, is_launched: bool) {
    let Some(limited) = limited() else { return };
    for need in needs.iter_mut().filter(|need| need.bytes > 0) {
        let card = cards::of_device(limited, need.device);
        let (Some(pool), Some(card)) = (pool_of(need.device), card) else { continue };
        let mut pool = lock(pool);
        pool.growth = pool.growth.saturating_sub(std::mem::take(&mut need.growth));
        if is_launched && need.resident != pool.epoch {
            need.resident = pool.epoch;
            pool.resident += need.bytes;
        }
        pool.follow(limited, card);
    }
}
