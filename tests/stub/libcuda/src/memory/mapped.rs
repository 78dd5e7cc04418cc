//! Device memory at addresses outside of the cards' arenas: virtual memory, and memory of other
//! processes and other APIs. Each mapping shows a range of a memory file.
//!
//! Copies look an address up here when no arena has it. Most programs have no such memory, which
//! costs them one load.

use crate::Answer;
use crate::process::lock;
use driver_sys::cuda::*;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use stub_engine::MAX_CARDS;
use stub_engine::backing::AddressRange;
use stub_engine::memory_file::MemoryFile;

/// Where memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the card of this device ordinal.
    Device(CUdevice),
    /// On the host.
    Host,
}

/// The purpose of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// `cuMemMap` of the physical allocation with this handle.
    Virtual(u64),
    /// `cuIpcOpenMemHandle`
    Ipc,
    /// `cuExternalMemoryGetMappedBuffer` of the external memory with this handle.
    External(usize),
    /// `cuMemPoolImportPointer` into the pool with this handle.
    Pool(usize),
}

/// Which places have access: `CUmemAccess_flags` of the host, then of each device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access([u8; MAX_CARDS + 1]);

impl Access {
    /// Access of one place for reads and writes.
    pub fn of(place: Place) -> Self {
        let mut access = Self::default();
        access.set(place, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        access
    }

    fn index(place: Place) -> usize {
        match place {
            Place::Host => 0,
            Place::Device(device) => device as usize + 1,
        }
    }

    pub fn get(&self, place: Place) -> CUmemAccess_flags {
        self.0[Self::index(place)].into()
    }

    pub fn set(&mut self, place: Place, flags: CUmemAccess_flags) {
        self.0[Self::index(place)] = flags as u8;
    }

    /// The access of all places together: the bytes are in one address space.
    pub fn all(&self) -> CUmemAccess_flags {
        self.0.iter().fold(0, |all, flags| all | u32::from(*flags))
    }
}

/// A mapping.
#[derive(Debug)]
pub struct Mapped {
    pub bytes: u64,
    pub purpose: Purpose,
    pub place: Place,
    /// The owner number of its context; `None` if it belongs to none.
    pub owner: Option<u32>,
    pub access: Access,
    /// Whether the driver wrote to it.
    pub is_written: bool,
    /// Its addresses, unless they are in one of the program's reservations.
    #[expect(dead_code, reason = "dropping it frees the addresses")]
    pub addresses: Option<AddressRange>,
}

/// What a pointer belongs to.
#[derive(Clone, Copy, Debug)]
pub struct FoundMapping {
    pub base: u64,
    pub bytes: u64,
    pub purpose: Purpose,
    pub place: Place,
    pub owner: Option<u32>,
    pub access: Access,
}

/// Reservations and mappings, by first address.
#[derive(Default)]
pub struct Table {
    /// `cuMemAddressReserve`
    pub reservations: BTreeMap<u64, AddressRange>,
    pub mappings: BTreeMap<u64, Mapped>,
}

/// All mappings of this process.
#[derive(Default)]
pub struct Mappings {
    table: Mutex<Table>,
    /// Whether there has ever been a reservation or a mapping.
    is_used: AtomicBool,
}

const PAGE: u64 = 4096;

impl Mappings {
    /// Locks the table.
    pub fn table(&self) -> std::sync::MutexGuard<'_, Table> {
        lock(&self.table)
    }

    /// Must be called before the first address is returned to the program.
    pub fn mark_used(&self) {
        self.is_used.store(true, Ordering::Release);
    }

    /// Reads the table, unless it has always been empty.
    fn read<T>(&self, read: impl FnOnce(&mut Table) -> Option<T>) -> Option<T> {
        if self.is_used.load(Ordering::Acquire) { read(&mut lock(&self.table)) } else { None }
    }

    /// Whether an address is reserved or mapped.
    pub fn contains(&self, address: u64) -> bool {
        let is_reserved = |table: &Table| {
            let before = table.reservations.range(..=address).next_back();
            before.is_some_and(|(start, range)| address - start < range.bytes)
        };
        self.read(|table| (table.find(address).is_some() || is_reserved(table)).then_some(()))
            .is_some()
    }

    /// The mapping that contains an address.
    pub fn find(&self, address: u64) -> Option<FoundMapping> {
        self.read(|table| {
            let (base, found) = table.find(address)?;
            let Mapped { bytes, purpose, place, owner, access, .. } = *found;
            Some(FoundMapping { base, bytes, purpose, place, owner, access })
        })
    }

    /// Checks that all bytes are mapped and accessible, and records a write. In virtual memory they
    /// may be in several adjacent mappings.
    pub fn check(&self, address: u64, bytes: u64, is_written: bool) -> Answer {
        let needed = if is_written {
            CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        } else {
            CU_MEM_ACCESS_FLAGS_PROT_READ
        };
        let end = address.checked_add(bytes).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let mut at = address;
        let checked = self.read(|table| {
            loop {
                let (base, found) = table.find(at)?;
                if found.access.all() & needed != needed {
                    return None;
                }
                found.is_written |= is_written;
                at = base + found.bytes;
                if at >= end {
                    return Some(());
                }
                let is_virtual = |found: &Mapped| matches!(found.purpose, Purpose::Virtual(_));
                if !is_virtual(found) || !table.mappings.get(&at).is_some_and(is_virtual) {
                    return None;
                }
            }
        });
        checked.ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// Maps a range of a file at an address of the driver's choice; returns the device pointer.
    pub fn add(
        &self,
        file: &MemoryFile,
        range: &Range<u64>,
        purpose: Purpose,
        place: Place,
        owner: Option<u32>,
    ) -> Answer<u64> {
        let pages = range.start / PAGE * PAGE..range.end.next_multiple_of(PAGE);
        let addresses = AddressRange::reserve(pages.end - pages.start, PAGE, 0)
            .map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
        file.map_at(addresses.start, &pages, true).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        let pointer = addresses.start + (range.start - pages.start);
        let mapped = Mapped {
            bytes: range.end - range.start,
            purpose,
            place,
            owner,
            access: Access::of(place),
            is_written: false,
            addresses: Some(addresses),
        };
        self.table().mappings.insert(pointer, mapped);
        self.mark_used();
        Ok(pointer)
    }

    /// Removes a mapping that [`Mappings::add`] made for one of these purposes.
    pub fn remove(&self, pointer: u64, is_for: impl Fn(Purpose) -> bool) -> Option<Mapped> {
        self.read(|table| {
            table.mappings.get(&pointer).filter(|found| is_for(found.purpose))?;
            table.mappings.remove(&pointer)
        })
    }

    /// The pointers of a context's mappings, and their purposes.
    pub fn owned_by(&self, owner: u32) -> Vec<(u64, Purpose)> {
        let found = self.read(|table| {
            let all = table.mappings.iter().filter(|(_, found)| found.owner == Some(owner));
            Some(all.map(|(pointer, found)| (*pointer, found.purpose)).collect())
        });
        found.unwrap_or_default()
    }
}

impl Table {
    fn find(&mut self, address: u64) -> Option<(u64, &mut Mapped)> {
        let (base, found) = self.mappings.range_mut(..=address).next_back()?;
        (address - base < found.bytes).then_some((*base, found))
    }

    /// The first addresses of the mappings that `bytes` from an address on consist of, each of them
    /// whole.
    pub fn whole(&self, address: u64, bytes: u64) -> Answer<Vec<u64>> {
        let end = address.checked_add(bytes).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let (mut at, mut all) = (address, Vec::new());
        while at < end {
            let found = self.mappings.get(&at).ok_or(CUDA_ERROR_INVALID_VALUE)?;
            if !matches!(found.purpose, Purpose::Virtual(_)) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            all.push(at);
            at += found.bytes;
        }
        if at == end && bytes > 0 { Ok(all) } else { Err(CUDA_ERROR_INVALID_VALUE) }
    }

    /// Whether a mapping has one of these addresses.
    pub fn overlaps(&self, address: u64, bytes: u64) -> bool {
        let before = self.mappings.range(..address + bytes).next_back();
        before.is_some_and(|(base, found)| base + found.bytes > address)
    }

    /// The program's reservation that has all of these addresses.
    pub fn reservation(&self, address: u64, bytes: u64) -> Option<&AddressRange> {
        let (start, found) = self.reservations.range(..=address).next_back()?;
        let inside = address - start;
        (inside < found.bytes && bytes <= found.bytes - inside).then_some(found)
    }
}
