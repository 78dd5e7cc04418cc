//! Graph memory: allocations of graphs, and each device's graph memory pool.
//!
//! An [`Allocation`] is what an allocation node makes at each launch. Its addresses are part of a
//! [`Block`] of its graph, fixed from the addition of its node on, and may be those of other
//! allocations too. A block exists until no graph, no executable graph and no live allocation needs
//! it. How many bytes of the card a graph takes is a matter of the pool only
//! ([`stub_engine::graph_pool`] has the arithmetic). All allocations and frees of a launch happen
//! at the call, when its other steps are done.
//!
//! A pool stays locked during calls of the engine, so that pool and ledger always agree. Lock
//! order: graphs, executable graph, pool, known allocations, arena.

use crate::Answer;
use crate::boundary::Out;
use crate::memory::{refused, unplace};
use crate::process::{Driver, driver, lock};
use crate::stream::Queue;
use crate::stream::work;
use core::ffi::c_void;
use driver_sys::cuda::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use stub_engine::backing::Area;
use stub_engine::graph_pool::{Pool, Uses};
use stub_engine::ledger::{Kind, Level, Walk};
use stub_engine::time::Mark;

/// The fewest addresses that a graph reserves at once.
const BLOCK: u64 = 1 << 30;

/// Addresses of a graph on one device. They take no memory of the card.
pub struct Block {
    address: u64,
    /// Its place among all blocks of the graph on this device.
    offset: u64,
    pub bytes: u64,
}

impl Block {
    /// Reserves addresses behind the `offset` bytes that the graph already has on a device, for an
    /// allocation of so many bytes.
    pub fn reserve(driver: &Driver, device: CUdevice, offset: u64, bytes: u64) -> Answer<Self> {
        let space = driver.backing.space(Area::Graphs, card_of(driver, device));
        let space = space.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let bytes = bytes.max(offset).checked_next_multiple_of(BLOCK);
        let bytes = bytes.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let found = lock(&driver.arenas[space]).allocate(bytes, device.cast_unsigned());
        let address = driver.backing.pointer(space, found.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?);
        Ok(Self { address, offset, bytes })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let Ok(driver) = driver() else { return };
        if let Some((space, offset)) = driver.backing.locate(self.address) {
            // The block has the addresses.
            let _ = unplace(driver, space, offset);
        }
    }
}

/// The addresses of an allocation.
struct Placed {
    block: Arc<Block>,
    offset: u64,
}

/// An allocation of a graph.
pub struct Allocation {
    /// A number that no other allocation has; later ones have larger numbers.
    pub id: u64,
    pub device: CUdevice,
    /// From the addition of its node on.
    placed: OnceLock<Placed>,
    pub bytes: u64,
    /// The id of the graph with its allocation node.
    pub graph: OnceLock<u32>,
    /// The ids of the graphs with a free node for it.
    pub freed_by: Mutex<BTreeSet<u32>>,
}

/// The graph memory of this process.
pub struct GraphMemory {
    /// By device ordinal.
    pools: Vec<Mutex<DevicePool>>,
    /// By address and number: several allocations can have the same addresses.
    known: Mutex<BTreeMap<(u64, u64), Known>>,
}

/// An allocation that has its addresses.
struct Known {
    bytes: u64,
    allocation: Weak<Allocation>,
}

/// A device's pool.
struct DevicePool {
    pool: Pool,
    /// Live allocations, by address. They keep their addresses.
    live: BTreeMap<u64, Arc<Allocation>>,
}

/// An allocation or a free of a launch, in the order of the steps.
pub enum Move {
    Allocate(Arc<Allocation>),
    Free(Arc<Allocation>),
}

impl Move {
    pub fn allocation(&self) -> &Arc<Allocation> {
        match self {
            Self::Allocate(allocation) | Self::Free(allocation) => allocation,
        }
    }
}

/// What an executable graph does with the graph memory of one device.
pub struct Part {
    pub device: CUdevice,
    /// Bytes of the pool that it needs.
    pub footprint: u64,
    pub moves: Vec<Move>,
}

impl GraphMemory {
    /// Empty pools, whose units are these, by device ordinal.
    pub fn new(units: impl IntoIterator<Item = u64>) -> Self {
        let pool = |unit| DevicePool { pool: Pool::new(unit), live: BTreeMap::new() };
        let pools = units.into_iter().map(|unit| Mutex::new(pool(unit))).collect();
        Self { pools, known: Mutex::default() }
    }

    /// The allocation that begins at an address: of several the one that its graph does not free
    /// yet, and otherwise the latest.
    pub fn find(&self, address: u64) -> Option<Arc<Allocation>> {
        let found: Vec<_> = {
            let known = lock(&self.known);
            let at_address = known.range((address, 0)..=(address, u64::MAX)).rev();
            at_address.filter_map(|(_, known)| known.allocation.upgrade()).collect()
        };
        let is_open = |found: &&Arc<Allocation>| !found.is_freed_by_owner();
        found.iter().find(is_open).or(found.first()).cloned()
    }

    /// The first address and the bytes of the allocation that `bytes` from an address on are in; of
    /// several the one that begins last, and was added last.
    pub fn containing(&self, address: u64, bytes: u64) -> Option<(u64, u64)> {
        let known = lock(&self.known);
        let mut before = known.range(..=(address, u64::MAX)).rev();
        before.find_map(|((base, _), known)| {
            let distance = address - base;
            let is_inside = distance < known.bytes && bytes <= known.bytes - distance;
            is_inside.then_some((*base, known.bytes))
        })
    }

    /// The unit of a device's pool.
    pub fn unit(&self, device: CUdevice) -> Answer<u64> {
        Ok(lock(self.pool(device)?).pool.unit)
    }

    fn pool(&self, device: CUdevice) -> Answer<&Mutex<DevicePool>> {
        let pool = usize::try_from(device).ok().and_then(|device| self.pools.get(device));
        pool.ok_or(CUDA_ERROR_INVALID_DEVICE)
    }
}

impl Allocation {
    /// An allocation on a device, without addresses.
    pub fn new(driver: &Driver, device: CUdevice, bytes: u64) -> Answer<Self> {
        driver.card(device)?;
        if bytes == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(Self {
            id: driver.new_id(),
            device,
            placed: OnceLock::new(),
            bytes,
            graph: OnceLock::new(),
            freed_by: Mutex::default(),
        })
    }

    /// Places the allocation at an offset of a block, which makes it known by its address.
    pub fn place(self: &Arc<Self>, driver: &Driver, block: &Arc<Block>, offset: u64) {
        let placed = Placed { block: Arc::clone(block), offset };
        if self.placed.set(placed).is_ok() {
            let known = Known { bytes: self.bytes, allocation: Arc::downgrade(self) };
            lock(&driver.graph_memory.known).insert((self.address(), self.id), known);
        }
    }

    /// Its first address; 0 before it has any.
    pub fn address(&self) -> u64 {
        self.placed.get().map_or(0, |placed| placed.block.address + placed.offset)
    }

    /// The block with its addresses, and the offset there.
    pub fn place_in_block(&self) -> Option<(&Arc<Block>, u64)> {
        self.placed.get().map(|placed| (&placed.block, placed.offset))
    }

    /// Its first byte among all blocks of its graph on its device.
    pub fn offset(&self) -> u64 {
        self.placed.get().map_or(0, |placed| placed.block.offset + placed.offset)
    }

    /// Whether the graph of its allocation node also frees it.
    fn is_freed_by_owner(&self) -> bool {
        self.graph.get().is_some_and(|graph| lock(&self.freed_by).contains(graph))
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let Ok(driver) = driver() else { return };
        // The addresses may be free after that.
        lock(&driver.graph_memory.known).remove(&(self.address(), self.id));
    }
}

/// Whether uses of memory are over, or come before new work of a queue.
fn is_over(driver: &Driver, uses: &Uses, queue: Option<Queue>) -> bool {
    let own = queue.map(Queue::id);
    uses.each().all(|(stream, mark)| own == Some(stream) || work::is_done(driver, mark))
}

/// The queue's number, and the mark behind its work.
fn use_of(driver: &Driver, queue: Option<Queue>) -> (u64, Mark) {
    queue.map_or((0, Mark::NONE), |queue| (queue.id(), queue.tail(driver)))
}

fn card_of(driver: &Driver, device: CUdevice) -> usize {
    driver.devices[device as usize]
}

impl DevicePool {
    /// Maps the memory of an executable graph, if it has none now.
    fn map(&mut self, driver: &Driver, owner: u64, part: &Part, queue: Queue) -> Answer {
        if part.footprint == 0 || self.pool.is_mapped(owner) {
            return Ok(());
        }
        let plan = self.pool.plan(part.footprint, |uses| is_over(driver, uses, Some(queue)));
        if plan.missing > 0 {
            let card = card_of(driver, part.device);
            driver.engine.charge(card, Kind::Graphs, plan.missing).map_err(refused)?;
        }
        self.pool.map(owner, part.footprint, &plan);
        Ok(())
    }

    /// Refuses a launch that allocates what is live, or frees what is not.
    fn check(&self, part: &Part, frees_first: bool) -> Answer {
        let mut own = BTreeSet::new();
        for step in &part.moves {
            let address = step.allocation().address();
            let is_fine = match step {
                Move::Allocate(_) => {
                    own.insert(address);
                    frees_first || !self.pool.is_live(address)
                }
                Move::Free(_) => own.contains(&address) || self.pool.is_live(address),
            };
            if !is_fine {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
        }
        Ok(())
    }

    /// Does the allocations and frees of a launch. What is not freed since the last launch is freed
    /// first.
    fn walk(&mut self, driver: &Driver, owner: u64, part: &Part, (stream, mark): (u64, Mark)) {
        if part.footprint > 0 && !self.pool.is_mapped(owner) {
            // The device was reset meanwhile.
            return;
        }
        let mut walk = Walk::default();
        let mut ended = Vec::new();
        let mut free = |found: &mut Self, walk: &mut Walk, address: u64| {
            if let Some(bytes) = found.pool.free(address, stream, mark) {
                walk.free(bytes);
                ended.extend(found.live.remove(&address));
            }
        };
        for step in &part.moves {
            if let Move::Allocate(allocation) = step {
                free(self, &mut walk, allocation.address());
            }
        }
        for step in &part.moves {
            match step {
                Move::Allocate(allocation) => {
                    let (address, bytes) = (allocation.address(), allocation.bytes);
                    self.pool.allocate(address, owner, allocation.offset(), bytes);
                    self.live.insert(address, Arc::clone(allocation));
                    walk.allocate(bytes);
                }
                Move::Free(allocation) => free(self, &mut walk, allocation.address()),
            }
        }
        if walk != Walk::default() {
            driver.engine.walk_graph(card_of(driver, part.device), walk);
        }
        // Addresses are free after the ledger knows it.
        drop(ended);
    }
}

/// An executable graph's graph memory.
pub struct Footprint {
    owner: u64,
    parts: Vec<Part>,
    /// Whether a launch frees what is live since the last one.
    frees_first: bool,
}

impl Footprint {
    pub fn new(driver: &Driver, parts: Vec<Part>, frees_first: bool) -> Self {
        Self { owner: driver.new_id(), parts, frees_first }
    }

    /// Maps its memory before a launch on a queue.
    pub fn map(&self, driver: &Driver, queue: Queue) -> Answer {
        for part in &self.parts {
            lock(driver.graph_memory.pool(part.device)?).map(driver, self.owner, part, queue)?;
        }
        Ok(())
    }

    /// Begins a launch: maps the memory and keeps it mapped. If it fails, nothing has happened.
    pub fn begin(&self, driver: &Driver, queue: Queue) -> Answer {
        for part in &self.parts {
            lock(driver.graph_memory.pool(part.device)?).check(part, self.frees_first)?;
        }
        for part in &self.parts {
            let mut pool = lock(driver.graph_memory.pool(part.device)?);
            if let Err(error) = pool.map(driver, self.owner, part, queue) {
                drop(pool);
                self.end(driver, queue, false);
                return Err(error);
            }
            pool.pool.pin(self.owner);
        }
        Ok(())
    }

    /// Ends a launch; with its allocations and frees, if it has succeeded.
    pub fn end(&self, driver: &Driver, queue: Queue, has_succeeded: bool) {
        if self.parts.is_empty() {
            return;
        }
        let (stream, mark) = use_of(driver, Some(queue));
        for part in &self.parts {
            let Ok(pool) = driver.graph_memory.pool(part.device) else { continue };
            let mut pool = lock(pool);
            if has_succeeded {
                pool.walk(driver, self.owner, part, (stream, mark));
            }
            pool.pool.unpin(self.owner, stream, mark);
        }
    }
}

impl Drop for Footprint {
    /// The memory is free in the pool, except for live allocations.
    fn drop(&mut self) {
        let Ok(driver) = driver() else { return };
        for part in &self.parts {
            if let Ok(pool) = driver.graph_memory.pool(part.device) {
                lock(pool).pool.end(self.owner);
            }
        }
    }
}

/// Frees a live allocation outside of graphs, in the order of a stream or, without one, at once.
pub fn free(driver: &Driver, address: u64, queue: Option<Queue>) -> Answer {
    let device = driver.graph_memory.find(address).ok_or(CUDA_ERROR_INVALID_VALUE)?.device;
    let (stream, mark) = use_of(driver, queue);
    let mut pool = lock(driver.graph_memory.pool(device)?);
    if pool.live.get(&address).is_none_or(|found| found.is_freed_by_owner()) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let bytes = pool.pool.free(address, stream, mark).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let mut walk = Walk::default();
    walk.free(bytes);
    driver.engine.walk_graph(card_of(driver, device), walk);
    pool.live.remove(&address);
    Ok(())
}

/// Frees all graph memory of a device, as the reset of its primary context does.
pub fn empty(driver: &Driver, device: CUdevice) {
    let Ok(pool) = driver.graph_memory.pool(device) else { return };
    let mut pool = lock(pool);
    let card = card_of(driver, device);
    let reserved = pool.pool.reserved.now;
    let (bytes, count) = pool.pool.clear();
    if count > 0 {
        let (change, allocations) = (-(bytes as i64), -(count as i64));
        driver.engine.walk_graph(card, Walk { rise: 0, fall: bytes, bytes: change, allocations });
    }
    if reserved > 0 {
        driver.engine.release(card, Kind::Graphs, reserved);
    }
    pool.live.clear();
}

/// `cuDeviceGraphMemTrim`
pub fn trim(device: CUdevice) -> Answer {
    let driver = driver()?;
    let mut pool = lock(driver.graph_memory.pool(device)?);
    let released = pool.pool.trim(|uses| is_over(driver, uses, None));
    if released > 0 {
        driver.engine.release(card_of(driver, device), Kind::Graphs, released);
    }
    Ok(())
}

/// `cuDeviceGetGraphMemAttribute`
pub fn get_attribute(
    device: CUdevice,
    attribute: CUgraphMem_attribute,
    value: Out<c_void>,
) -> Answer {
    let pool = &lock(driver()?.graph_memory.pool(device)?).pool;
    value.cast().put(match attribute {
        CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT => pool.used.now,
        CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => pool.used.peak,
        CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT => pool.reserved.now,
        CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => pool.reserved.peak,
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    })
}

/// `cuDeviceSetGraphMemAttribute`: peaks can only be reset.
pub fn set_attribute(
    device: CUdevice,
    attribute: CUgraphMem_attribute,
    value: Out<c_void>,
) -> Answer {
    let pool = &mut lock(driver()?.graph_memory.pool(device)?).pool;
    let level: &mut Level = match attribute {
        CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => &mut pool.used,
        CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => &mut pool.reserved,
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    if value.cast::<u64>().read()? != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    level.reset_peak();
    Ok(())
}
