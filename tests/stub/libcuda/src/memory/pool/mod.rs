//! Memory pools: memory of a card that a process keeps, and allocates and frees in stream order.
//!
//! A pool belongs to a device, not to a context. Every device has a default pool until the process
//! ends; a program can create others and choose the current one. A pool reserves chunks of the card
//! ([`stub_engine::pool`] has the arithmetic). Free chunks beyond its release threshold return to
//! the card when the program next waits for a stream, an event or a context.
//!
//! A pool stays locked during calls of the engine, so that pool and ledger always agree. Lock
//! order: pool, arena.

pub mod calls;
pub mod share;

use crate::Answer;
use crate::memory::{refused, shared_runs, unplace};
use crate::process::{Driver, lock};
use crate::slab::Slab;
use crate::stream::Queue;
use crate::stream::work::{self, Mark};
use driver_sys::cuda::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use stub_engine::backing::Area;
use stub_engine::memory_file::MemoryFile;
use stub_engine::pool::{self as arithmetic, Live, Spot};

/// A memory pool.
#[derive(Default)]
pub struct Pool {
    ordinal: AtomicI32,
    /// The engine's card.
    card: AtomicUsize,
    /// Index in the slab: the owner number of its chunks.
    index: AtomicU32,
    is_default: AtomicBool,
    /// Whether it is destroyed but still has allocations.
    is_ending: AtomicBool,
    threshold: AtomicU64,
    /// The most bytes that it may reserve; 0 for as many as the card has.
    largest: AtomicU64,
    /// Whether memory may be reused across streams, in the three ways that have attributes.
    reuse: [AtomicI32; 3],
    layout: Mutex<arithmetic::Pool>,
    /// The bytes of its chunks, if other processes can have them.
    file: Mutex<Option<Arc<MemoryFile>>>,
    /// Whether it is a pool of another process.
    is_imported: AtomicBool,
}

/// The status of lanes while a pool checks its free ranges: each lane is queried once.
struct Ahead {
    driver: &'static Driver,
    /// The last finished mark, by lane.
    done: BTreeMap<u32, Mark>,
    forecasts: BTreeMap<Mark, Option<u64>>,
}

impl Ahead {
    fn new(driver: &'static Driver) -> Self {
        Self { driver, done: BTreeMap::new(), forecasts: BTreeMap::new() }
    }

    fn is_done(&mut self, mark: Mark) -> bool {
        let done = self.done.entry(mark.lane()).or_insert_with(|| {
            Mark::new(mark.lane(), work::status_of(self.driver, mark).lane_done)
        });
        mark <= *done
    }

    fn forecast(&mut self, mark: Mark) -> Option<u64> {
        let ask = || work::forecast(self.driver, mark);
        *self.forecasts.entry(mark).or_insert_with(ask)
    }

    /// Whether a stream's new work runs after a mark is done, by the forecast. The driver could add
    /// a wait for it, which would cost nothing.
    fn is_before(&mut self, mark: Mark, queue: Queue) -> bool {
        if self.is_done(mark) {
            return true;
        }
        let tail = queue.tail(self.driver);
        let (ready, starts) = (self.forecast(mark), self.forecast(tail));
        ready.zip(starts).is_some_and(|(ready, starts)| ready <= starts)
    }
}

/// All pools of this process.
pub struct Pools {
    all: Slab<Pool>,
    /// By device ordinal.
    defaults: Vec<usize>,
    /// By device ordinal.
    current: Vec<AtomicUsize>,
    /// Whether a pool may have memory to release, so that a wait costs one load when none has.
    has_spare: AtomicBool,
}

impl Pools {
    /// Default pools for devices with these cards.
    pub fn new(devices: &[usize]) -> Self {
        let all = Slab::new();
        let defaults: Vec<_> = (0..)
            .zip(devices)
            .map(|(ordinal, card)| insert(&all, ordinal, *card, true).unwrap_or_default())
            .collect();
        let current = defaults.iter().map(|pool| AtomicUsize::new(*pool)).collect();
        Self { all, defaults, current, has_spare: AtomicBool::new(false) }
    }

    /// The pool of a handle that is not destroyed.
    fn find(&self, pool: CUmemoryPool) -> Answer<&Pool> {
        let found = self.all.get(pool as usize);
        found.filter(|pool| !pool.is_ending.load(Ordering::Acquire)).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// The handle and device of the pool with this owner number.
    pub fn of(&self, index: u32) -> Option<(usize, i32)> {
        let (handle, pool) = self.all.at(index as usize)?;
        Some((handle, pool.ordinal.load(Ordering::Relaxed)))
    }
}

fn insert(all: &Slab<Pool>, ordinal: i32, card: usize, is_default: bool) -> Option<usize> {
    all.insert(|pool, handle| {
        pool.ordinal.store(ordinal, Ordering::Relaxed);
        pool.card.store(card, Ordering::Relaxed);
        pool.index.store(all.index(handle).unwrap_or_default() as u32, Ordering::Relaxed);
        pool.is_default.store(is_default, Ordering::Relaxed);
        pool.is_ending.store(false, Ordering::Relaxed);
        pool.threshold.store(0, Ordering::Relaxed);
        pool.largest.store(0, Ordering::Relaxed);
        for way in &pool.reuse {
            way.store(1, Ordering::Relaxed);
        }
        *lock(&pool.layout) = arithmetic::Pool::default();
        *lock(&pool.file) = None;
        pool.is_imported.store(false, Ordering::Relaxed);
    })
}

impl Pool {
    /// The space of its chunks.
    fn space(&self, driver: &Driver) -> Answer<usize> {
        let card = self.card.load(Ordering::Relaxed);
        driver.backing.space(Area::Pooled, card).ok_or(CUDA_ERROR_OUT_OF_MEMORY)
    }

    /// Allocates on a stream; returns the device pointer.
    fn alloc(&self, driver: &'static Driver, bytes: u64, queue: Queue) -> Answer<u64> {
        let space = self.space(driver)?;
        let mut layout = lock(&self.layout);
        // Another thread may have destroyed it since the handle was looked up.
        if self.is_ending.load(Ordering::Relaxed) || self.is_imported.load(Ordering::Relaxed) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut ahead = Ahead::new(driver);
        layout.share_done(|mark| ahead.is_done(mark));
        let spot = match layout.find_room(bytes, queue.id(), |mark| ahead.is_before(mark, queue)) {
            Some(spot) => {
                let card = self.card.load(Ordering::Relaxed);
                driver.engine.charge_pool(card, [0; 2], bytes).map_err(refused)?;
                spot
            }
            None => self.grow(driver, &mut layout, space, bytes)?,
        };
        Ok(driver.backing.pointer(space, layout.take(spot, bytes)))
    }

    /// Reserves more of the card, and charges an allocation there.
    fn grow(
        &self,
        driver: &Driver,
        layout: &mut MutexGuard<arithmetic::Pool>,
        space: usize,
        bytes: u64,
    ) -> Answer<Spot> {
        let card = self.card.load(Ordering::Relaxed);
        let [wanted, least] = arithmetic::rooms(bytes).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let rooms = match self.largest.load(Ordering::Relaxed).checked_sub(layout.reserved.now) {
            _ if self.largest.load(Ordering::Relaxed) == 0 => [wanted, least],
            Some(left) if wanted <= left => [wanted, least],
            Some(left) if least <= left => [least, least],
            _ => return Err(CUDA_ERROR_OUT_OF_MEMORY),
        };
        let room = driver.engine.charge_pool(card, rooms, bytes).map_err(refused)?;
        let mark = self.index.load(Ordering::Relaxed);
        let Some(chunk) = self.place(driver, space, room, mark) else {
            driver.engine.release_pool(card, bytes, room);
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        };
        Ok(layout.grow(chunk, room))
    }

    /// Finds addresses for a chunk, and gives them the pool's file if it has one.
    fn place(&self, driver: &Driver, space: usize, room: u64, mark: u32) -> Option<u64> {
        let mut arena = lock(&driver.arenas[space]);
        let chunk = arena.allocate(room, mark)?;
        if let Some(file) = &*lock(&self.file)
            && shared_runs::share_new(driver, &mut arena, space, chunk, file).is_err()
        {
            arena.free(chunk);
            return None;
        }
        Some(chunk)
    }

    /// Releases unused chunks to the card, as long as `keep` bytes stay.
    fn shrink(&self, driver: &Driver, layout: &mut arithmetic::Pool, keep: u64) {
        let (chunks, bytes) = layout.shrink(keep);
        let Ok(space) = self.space(driver) else { return };
        if bytes > 0 {
            // Before the addresses are free, as in `free_at`.
            driver.engine.release_pool(self.card.load(Ordering::Relaxed), 0, bytes);
        }
        for chunk in &chunks {
            // The pool's layout has the chunk.
            let _ = unplace(driver, space, *chunk);
        }
    }

    /// Releases what is beyond the threshold; `true` when some memory is not yet free for that.
    fn release_spare(&self, driver: &'static Driver, handle: usize) -> bool {
        let mut layout = lock(&self.layout);
        let mut ahead = Ahead::new(driver);
        layout.share_done(|mark| ahead.is_done(mark));
        let is_ending = self.is_ending.load(Ordering::Acquire);
        let keep = if is_ending { 0 } else { self.threshold.load(Ordering::Relaxed) };
        self.shrink(driver, &mut layout, keep);
        if is_ending && layout.is_empty() {
            *lock(&self.file) = None;
            driver.pools.all.remove(handle);
        }
        layout.is_pending()
    }

    /// Frees an allocation, in the order of a stream or, without one, at once.
    fn free(&self, driver: &Driver, offset: u64, queue: Option<Queue>) -> Answer {
        let (stream, ready) =
            queue.map_or((0, Mark::NONE), |queue| (queue.id(), queue.tail(driver)));
        let mut layout = lock(&self.layout);
        let bytes = layout.free(offset, stream, ready).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        driver.engine.release_pool(self.card.load(Ordering::Relaxed), bytes, 0);
        Ok(())
    }
}

/// Frees the allocation that starts at an offset of a pool's space.
pub fn free_allocation(
    driver: &'static Driver,
    space: usize,
    offset: u64,
    queue: Option<Queue>,
) -> Answer {
    let chunk = lock(&driver.arenas[space]).find(offset).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let found = driver.pools.all.at(chunk.owner as usize);
    let (handle, pool) = found.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    pool.free(driver, offset, queue)?;
    driver.pools.has_spare.store(true, Ordering::Release);
    if pool.is_ending.load(Ordering::Acquire) {
        pool.release_spare(driver, handle);
    }
    Ok(())
}

/// First offset and bytes of the allocation that contains an offset, in the pool with this owner
/// number.
pub fn find_live(driver: &Driver, index: u32, offset: u64) -> Option<(u64, u64)> {
    let (_, pool) = driver.pools.all.at(index as usize)?;
    let Live { base, bytes } = lock(&pool.layout).find(offset)?;
    Some((base, bytes))
}

/// Lets all pools release what they need not keep, after a wait of the program.
#[inline]
pub fn release_spare(driver: &'static Driver) {
    if driver.pools.has_spare.load(Ordering::Acquire) {
        release_all_spare(driver);
    }
}

#[cold]
fn release_all_spare(driver: &'static Driver) {
    driver.pools.has_spare.store(false, Ordering::Release);
    for (handle, pool) in driver.pools.all.live() {
        if pool.release_spare(driver, handle) {
            driver.pools.has_spare.store(true, Ordering::Release);
        }
    }
}

/// Frees everything in a device's default pool, as the reset of its primary context does.
pub fn empty_default(driver: &Driver, device: CUdevice) {
    let found = driver.pools.defaults.get(device as usize);
    let Some(pool) = found.and_then(|pool| driver.pools.all.get(*pool)) else { return };
    let live = lock(&pool.layout).live();
    for offset in live {
        // Another thread may have freed it meanwhile.
        let _ = pool.free(driver, offset, None);
    }
    let mut layout = lock(&pool.layout);
    layout.share_done(|_| true);
    pool.shrink(driver, &mut layout, 0);
}
