//! Virtual memory management: physical allocations, address reservations, and mappings of the one
//! at the other.
//!
//! A physical allocation has a card or the host, but no address and no context. It lives until its
//! last handle, its last mapping and its last reference of another kind ([`bound`]) are gone, and the
//! ledger releases its bytes at that moment.
//!
//! Its bytes are a range of a memory file. A program can have thousands of allocations, so those of
//! one card share a file; only an allocation that can be exported has its own. Bytes appear at an
//! address when `cuMemSetAccess` grants access.
//!
//! The table stays locked during calls of the engine, so that table and ledger always agree. Lock
//! order: this table, then [`crate::memory::mapped`].

pub mod addresses;
pub mod bound;
pub mod physical;
pub mod share;

use crate::Answer;
use crate::memory::mapped::Place;
use crate::memory::refused;
use crate::process::Driver;
use driver_sys::cuda::*;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use stub_engine::arena::{Arena, CHUNK};
use stub_engine::ledger::Kind;
use stub_engine::memory_file::MemoryFile;

/// The unit of sizes and addresses.
pub const GRANULARITY: u64 = CHUNK;
/// The most bytes of allocations on the host.
const HOST_BYTES: u64 = 1 << 40;
/// Bytes of a card's file per byte of the card: allocations do not move, so it needs spare room.
const SPARE: u64 = 4;

/// The file of one card, or of the host, and which ranges of it are in use.
struct Store {
    file: MemoryFile,
    ranges: Arena,
}

/// The bytes of a physical allocation.
pub enum Bytes {
    /// A range of the card's store, from this offset on.
    Stored(u64),
    /// A file of its own.
    Own(MemoryFile),
}

/// A physical allocation.
struct Physical {
    bytes: u64,
    location: CUmemLocation,
    place: Place,
    /// The engine's card; `None` on the host.
    card: Option<usize>,
    memory: Bytes,
    /// The types of handles that it was created for: none if it is imported.
    handle_types: CUmemAllocationHandleType,
    is_direct: bool,
    handles: u64,
    /// Mappings, tiles of sparse arrays and bindings.
    mappings: u64,
    is_written: bool,
}

/// The physical allocations of this process.
#[derive(Default)]
pub struct Vmm {
    /// By the engine's card; `None` on the host.
    stores: BTreeMap<Option<usize>, Store>,
    /// By handle. Handles are not used again.
    all: BTreeMap<u64, Physical>,
    bound: Vec<bound::Bound>,
    /// By handle.
    multicasts: BTreeMap<u64, bound::Multicast>,
    last: u64,
}

impl Vmm {
    /// The types of handles that an allocation was created for.
    pub fn handle_types(&self, handle: u64) -> CUmemAllocationHandleType {
        self.all.get(&handle).map_or(CU_MEM_HANDLE_TYPE_NONE, |found| found.handle_types)
    }

    /// The allocation of a handle that the program holds.
    fn held(&mut self, handle: u64) -> Answer<&mut Physical> {
        let found = self.all.get_mut(&handle).filter(|found| found.handles > 0);
        found.ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    fn new_handle(&mut self) -> u64 {
        // Like the address of an object, and never a small number.
        self.last += 64;
        (1 << 32) + self.last
    }

    fn insert(&mut self, physical: Physical) -> u64 {
        let handle = self.new_handle();
        self.all.insert(handle, physical);
        handle
    }

    /// A range of a card's store.
    fn store(&mut self, driver: &Driver, card: Option<usize>, bytes: u64) -> Answer<u64> {
        if let Entry::Vacant(place) = self.stores.entry(card) {
            let size = match card {
                Some(card) => driver.engine.cards()[card].profile.memory * SPARE,
                None => HOST_BYTES,
            };
            let file = MemoryFile::create("store", size).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
            place.insert(Store { file, ranges: Arena::new(size) });
        }
        let store = self.stores.get_mut(&card).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        store.ranges.allocate(bytes, 0).ok_or(CUDA_ERROR_OUT_OF_MEMORY)
    }

    /// The file that has an allocation's bytes, and where.
    fn file_of(&self, handle: u64, bytes: u64) -> Option<(&MemoryFile, Range<u64>)> {
        let physical = self.all.get(&handle)?;
        match &physical.memory {
            Bytes::Own(file) => Some((file, 0..bytes)),
            Bytes::Stored(offset) => {
                Some((&self.stores.get(&physical.card)?.file, *offset..offset + bytes))
            }
        }
    }

    /// Frees an allocation that has neither handles nor mappings any more.
    fn free_unused(&mut self, driver: &Driver, handle: u64) {
        let is_used = |found: &Physical| found.handles > 0 || found.mappings > 0;
        if self.all.get(&handle).is_none_or(is_used) {
            return;
        }
        let Some(physical) = self.all.remove(&handle) else { return };
        // Before its bytes can be allocated again, as in `memory::free_at`.
        uncharge(driver, &physical);
        let Bytes::Stored(offset) = physical.memory else { return };
        if let Some(store) = self.stores.get_mut(&physical.card) {
            if physical.is_written {
                store.file.punch(&(offset..offset + physical.bytes));
            }
            store.ranges.free(offset);
        }
    }
}

/// Charges an allocation to its card. One that can be exported is counted once for all processes.
fn charge(driver: &Driver, card: Option<usize>, memory: Option<&MemoryFile>, bytes: u64) -> Answer {
    let Some(card) = card else { return Ok(()) };
    let charged = match memory {
        Some(file) => driver.engine.hold(card, [file.inode(), 0], bytes),
        None => driver.engine.charge(card, Kind::Requested, bytes),
    };
    charged.map_err(refused)
}

fn uncharge(driver: &Driver, physical: &Physical) {
    let Some(card) = physical.card else { return };
    match &physical.memory {
        Bytes::Own(file) => driver.engine.drop_hold(card, [file.inode(), 0]),
        Bytes::Stored(_) => driver.engine.release(card, Kind::Requested, physical.bytes),
    }
}

/// The place of a location, and the engine's card.
pub fn place_of(driver: &Driver, location: CUmemLocation) -> Answer<(Place, Option<usize>)> {
    match location.r#type {
        CU_MEM_LOCATION_TYPE_DEVICE => {
            // SAFETY: every field of the union is a number.
            let device = unsafe { location.unnamed1.id };
            Ok((Place::Device(device), Some(driver.card(device)?.index)))
        }
        CU_MEM_LOCATION_TYPE_HOST
        | CU_MEM_LOCATION_TYPE_HOST_NUMA
        | CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => Ok((Place::Host, None)),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}
