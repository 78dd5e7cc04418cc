//! Graph memory: what the allocation nodes of graphs take.
//!
//! Each device has one pool of graph memory. Creating a node or an executable graph takes only
//! addresses. The first upload or launch takes the memory, and the pool keeps it for later launches
//! until it is trimmed. Other graphs take over memory of graphs that do not run. Only the driver knows
//! which; it reports what the pool has reserved.
//!
//! So an executable graph has a *need*: the most bytes that it has allocated at once, if its nodes run
//! in the order of their creation. Before an upload or a launch, the charge is raised by the need,
//! unless the graph's memory is in the pool already. Afterwards the charge is set to what the driver
//! reports.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use driver_sys::cuda::{
    CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, CU_GRAPH_NODE_TYPE_EMPTY, CU_GRAPH_NODE_TYPE_GRAPH,
    CU_GRAPH_NODE_TYPE_MEM_ALLOC, CU_GRAPH_NODE_TYPE_MEM_FREE, CUDA_ERROR_OUT_OF_MEMORY,
    CUDA_MEM_ALLOC_NODE_PARAMS_v1, CUDA_SUCCESS, CUdevice, CUdeviceptr, CUgraph, CUgraphNode,
    CUresult, cuuint64_t,
};
use vgpu_driver::guard::lock;
use vgpu_driver::real::{self, Outcome};
use vgpu_driver::{location, process};

use crate::cards::{self, MAX_DEVICES};
use crate::current::{Slice, current};
use crate::limited::{Card, Limited};
use crate::measured::{Charge, Measured};
use crate::pools;
use crate::table::{Entry, Full, Table, Then};

/// How many executable graphs with allocation nodes this process has. The wrappers of graph launches
/// read it from assembly.
pub static ALLOCATING: AtomicU32 = AtomicU32::new(0);

/// Whether graph memory was ever charged.
static ANY_CHARGED: AtomicBool = AtomicBool::new(false);

static EXECUTABLES: Table<Executable> = Table::new();
static POOLS: [Mutex<Pool>; MAX_DEVICES] = [const { Mutex::new(Pool::NEW) }; MAX_DEVICES];

/// On how many devices one graph can allocate. What it allocates on more is charged afterwards only.
const MOST_DEVICES: usize = 4;

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
    /// By how much the launch in progress may let the pool grow.
    growth: u64,
}

/// The graph memory of a device.
struct Pool {
    charge: Charge,
    /// By how much launches in progress may let it grow.
    growth: u64,
    /// The needs of all graphs whose memory is in the pool. If that is more than the pool has, some of
    /// them have lost their memory to others.
    resident: u64,
    /// Increased when memory leaves the pool.
    epoch: u32,
}

impl Pool {
    const NEW: Self = Self { charge: Charge::NONE, growth: 0, resident: 0, epoch: 1 };

    /// Memory may have left the pool.
    fn shrunk(&mut self) {
        self.epoch = self.epoch.wrapping_add(1).max(1);
        self.resident = 0;
    }

    /// By how much the pool may grow for a graph.
    fn growth_for(&self, need: &Need, reserved: u64) -> u64 {
        let is_there = need.resident == self.epoch && self.resident <= reserved;
        if is_there { 0 } else { need.bytes }
    }

    /// Sets the charge to what the driver reports, and to what launches in progress may add. Memory
    /// that the driver has already taken is charged beyond the limit, too.
    fn follow(&mut self, limited: &Limited, card: &Card) {
        let Some(reserved) = Reserved(card.device).reserved() else { return };
        let bytes = reserved + self.growth;
        if !self.charge.set(limited, card, bytes) {
            self.charge.force(limited, card, bytes);
        }
    }
}

/// The graph memory of a device, as the driver reports it.
struct Reserved(CUdevice);

impl Measured for Reserved {
    fn reserved(&self) -> Option<u64> {
        let mut bytes: cuuint64_t = 0;
        let attribute = CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT;
        // SAFETY: a local variable of the attribute's width.
        let result = unsafe {
            real::cuDeviceGetGraphMemAttribute(self.0, attribute, (&raw mut bytes).cast())
        };
        (result == CUDA_SUCCESS).then_some(bytes)
    }

    fn trim(&self) {
        // SAFETY: no pointer.
        unsafe { real::cuDeviceGraphMemTrim(self.0) };
    }
}

/// The slice in which graph memory of this process counts, if there is one.
fn limited() -> Option<&'static Limited> {
    match current() {
        Slice::Limited(limited) if !process::is_forked_copy() => Some(limited),
        _ => None,
    }
}

/// Whether graphs may hold memory. Most programs have none, and pay only for this load.
#[inline]
pub fn any_charged() -> bool {
    ANY_CHARGED.load(Ordering::Relaxed)
}

fn pool_of(device: CUdevice) -> Option<&'static Mutex<Pool>> {
    POOLS.get(usize::try_from(device).ok()?)
}

/// The needs of a graph. Without a slice they are 0, and the driver is not asked.
pub fn needs_of(graph: CUgraph) -> Needs {
    let mut counted = Counted::default();
    if limited().is_some() {
        counted.add_graph(graph);
    }
    counted.peaks
}

/// What the nodes of a graph allocate, in order.
#[derive(Default)]
struct Counted {
    /// The largest sums.
    peaks: Needs,
    now: [u64; MOST_DEVICES],
    /// The live allocations: address, bytes, index of the device.
    live: Vec<(CUdeviceptr, u64, usize)>,
}

impl Counted {
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
            CU_GRAPH_NODE_TYPE_MEM_ALLOC => self.allocate(node),
            CU_GRAPH_NODE_TYPE_MEM_FREE => self.free(node),
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

    fn allocate(&mut self, node: CUgraphNode) {
        // SAFETY: zero bytes are a valid value of this structure of numbers and pointers.
        let mut parameters: CUDA_MEM_ALLOC_NODE_PARAMS_v1 = unsafe { std::mem::zeroed() };
        // SAFETY: the driver's own handle, and a local variable.
        if unsafe { real::cuGraphMemAllocNodeGetParams(node, &raw mut parameters) } != CUDA_SUCCESS
        {
            return;
        }
        let properties = &parameters.poolProps;
        let Some(device) = location::device_of(&properties.location, properties.allocType) else {
            return;
        };
        let is_of = |need: &Need| need.bytes == 0 || need.device == device;
        let Some(index) = self.peaks.iter().position(is_of) else { return };
        let bytes = parameters.bytesize as u64;
        if let (Some(peak), Some(now)) = (self.peaks.get_mut(index), self.now.get_mut(index)) {
            *now += bytes;
            peak.device = device;
            peak.bytes = peak.bytes.max(*now);
        }
        self.live.push((parameters.dptr, bytes, index));
    }

    fn free(&mut self, node: CUgraphNode) {
        let mut address: CUdeviceptr = 0;
        // SAFETY: as above.
        if unsafe { real::cuGraphMemFreeNodeGetParams(node, &raw mut address) } != CUDA_SUCCESS {
            return;
        }
        // The most recent allocations are freed first in most programs.
        let Some(position) = self.live.iter().rposition(|(live, ..)| *live == address) else {
            return;
        };
        let (_, bytes, index) = self.live.swap_remove(position);
        if let Some(now) = self.now.get_mut(index) {
            *now -= bytes;
        }
    }
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
        if need.resident == pool.epoch {
            pool.resident = pool.resident.saturating_sub(need.bytes);
        }
    }
    result
}

/// Charges what an upload or a launch of an executable graph may take. `wait` waits until the work is
/// done after which it runs. Returns whether [`after_launch`] must follow.
pub fn before_launch(handle: u64, wait: &dyn Fn()) -> Outcome<bool> {
    let Some(mut executable) = find(handle) else { return Ok(false) };
    reserve(&mut executable.needs, wait)?;
    store(&executable);
    Ok(true)
}

/// The driver has uploaded or launched an executable graph, or has refused to.
pub fn after_launch(handle: u64, is_launched: bool) {
    let Some(mut executable) = find(handle) else { return };
    settle(&mut executable.needs, is_launched);
    store(&executable);
}

fn find(handle: u64) -> Option<Executable> {
    limited()?;
    EXECUTABLES.change(handle, |_| Then::Keep).map(|(executable, _)| executable)
}

fn store(executable: &Executable) {
    EXECUTABLES.change(executable.handle, |stored| {
        stored.needs = executable.needs;
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
    let Some(pool) = pool_of(need.device) else { return Ok(()) };
    let card = cards::of_device(limited, need.device).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    let mut pool = lock(pool);
    let reserved = Reserved(need.device);
    let first_epoch = pool.epoch;
    let growth = pool.growth_for(need, reserved.reserved().unwrap_or(0));
    let Pool { charge, growth: others, .. } = *pool;
    let mut charge = charge;
    let is_trimmed = std::cell::Cell::new(false);
    let wanted = || {
        let growth = if is_trimmed.get() { need.bytes } else { growth };
        reserved.reserved().unwrap_or(0) + others + growth
    };
    let make_room = |card: &Card| {
        is_trimmed.set(true);
        pools::trim_idle(limited, card);
        // The driver does not take memory from a graph that runs. The launch would wait for it.
        wait();
        reserved.trim();
    };
    let outcome = charge.raise(&reserved, limited, card, wanted, make_room);
    pool.charge = charge;
    if is_trimmed.get() {
        pool.shrunk();
    }
    if outcome.is_ok() {
        need.growth = if pool.epoch == first_epoch { growth } else { need.bytes };
        pool.growth += need.growth;
    }
    outcome
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

/// The driver may have returned graph memory of a device to the card.
pub fn trimmed(device: CUdevice) {
    let Some(limited) = limited() else { return };
    let (Some(pool), Some(card)) = (pool_of(device), cards::of_device(limited, device)) else {
        return;
    };
    let mut pool = lock(pool);
    pool.shrunk();
    pool.follow(limited, card);
}

/// Returns to a card the graph memory that no graph uses, unless another thread launches a graph. Only
/// before a refusal, because the next launch has to take it again.
pub(crate) fn trim_if_idle(limited: &Limited, card: &Card) {
    let Some(pool) = pool_of(card.device) else { return };
    let Ok(mut pool) = pool.try_lock() else { return };
    if !pool.charge.is_none() {
        Reserved(card.device).trim();
        pool.shrunk();
        pool.follow(limited, card);
    }
}
