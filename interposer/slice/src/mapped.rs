//! Memory that programs hold by a handle and by mappings of it: physical memory of virtual memory
//! management, and external memory.
//!
//! A program may release a handle while the memory is mapped, and keeps the memory. So the memory is
//! charged until the last reference to its handle, its last mapping and its last exported descriptor
//! are gone. The driver ends whole mappings only, so the addresses at which they begin tell which
//! ones it ends.
//!
//! For memory that processes share by descriptors, the slice is charged, while any process has it or a
//! descriptor keeps it. The account lists it by a number, with which its descriptors are marked
//! (`native/account/src/descriptor.rs`). If the account does not list it, because its owner is not in
//! this slice, the importer is charged when it maps it.
//!
//! Bookkeeping comes before the driver's call, and is undone if the call fails: once the driver has
//! freed memory, another thread may get the same handle or address for new memory.

use std::os::fd::RawFd;
use std::sync::Mutex;

use driver_sys::cuda::{CUDA_ERROR_OUT_OF_MEMORY, CUdevice, CUexternalMemory, CUresult};
use hami_account::descriptor;
use vgpu_driver::guard::{guard, lock};
use vgpu_driver::real::{self, Outcome, check};

use crate::allocations::{Epoch, Owner};
use crate::cards;
use crate::charging::{self, Allocated, Taken};
use crate::current::{Slice, current, limited};
use crate::limited::{Card, Limited};
use crate::shared;
use crate::table::{Entry, Full, Table, Then, table};

/// The least distance between the starts of two mappings, on every known card.
const LEAST_MAPPING: u64 = 64 << 10;

/// A kind of memory with handles and mappings.
pub struct MappedKind {
    objects: &'static Table<Object>,
    mappings: &'static Table<Mapping>,
    /// Drops the only reference to memory that the driver has just handed out, and that the program
    /// never gets.
    undo: unsafe fn(u64) -> CUresult,
    taken: Taken,
}

/// Physical memory of virtual memory management.
pub static PHYSICAL: MappedKind = MappedKind {
    objects: table!(Object),
    mappings: table!(Mapping),
    undo: release_physical,
    taken: Taken::Exactly,
};
/// Memory of another API or another process, imported by `cuImportExternalMemory`.
pub static EXTERNAL: MappedKind = MappedKind {
    objects: table!(Object),
    mappings: table!(Mapping),
    undo: destroy_external,
    taken: Taken::InGranules,
};

unsafe fn release_physical(handle: u64) -> CUresult {
    // SAFETY: by the contract of `MappedKind::undo`.
    unsafe { real::cuMemRelease(handle) }
}

unsafe fn destroy_external(handle: u64) -> CUresult {
    // SAFETY: as above.
    unsafe { real::cuDestroyExternalMemory(handle as CUexternalMemory) }
}

/// The memory behind a handle.
#[derive(Clone, Copy)]
struct Object {
    handle: u64,
    /// The charged bytes.
    bytes: u64,
    /// The context with which it ends, if any.
    owner: Owner,
    /// How many references to the handle the program has.
    references: u32,
    mappings: u32,
    device: CUdevice,
    created: Epoch,
    /// The number by which the account lists it, if the slice is charged for it; else 0.
    id: u64,
    /// The driver does not report the size of imported memory. The largest mapping counts.
    is_imported: bool,
}

// SAFETY: numbers; an object without a handle is an empty entry.
unsafe impl Entry for Object {
    fn key(&self) -> u64 {
        self.handle
    }
}

impl Object {
    fn new(handle: u64, bytes: u64, device: CUdevice, owner: Owner) -> Self {
        Self {
            handle,
            bytes,
            owner,
            references: 1,
            mappings: 0,
            device,
            created: Epoch::current(),
            id: 0,
            is_imported: false,
        }
    }

    /// What becomes of it when it has these references and mappings.
    fn then(&self) -> Then {
        if self.references == 0 && self.mappings == 0 { Then::Remove } else { Then::Keep }
    }
}

/// A mapping, by the address at which it begins.
#[derive(Clone, Copy)]
struct Mapping {
    address: u64,
    size: u64,
    handle: u64,
}

// SAFETY: as above.
unsafe impl Entry for Mapping {
    fn key(&self) -> u64 {
        self.address
    }
}

/// As [`limited`], for a call that takes memory of a device.
fn charged(device: CUdevice) -> Outcome<Option<(&'static Limited, &'static Card)>> {
    if matches!(current(), Slice::Refused(_)) {
        return Err(CUDA_ERROR_OUT_OF_MEMORY);
    }
    // If the device does not exist, or cuInit was not called, the driver itself refuses.
    Ok(limited().and_then(|limited| Some((limited, cards::of_device(limited, device)?))))
}

impl MappedKind {
    /// Creates memory on a device. `call` calls the driver; `handle` reads the new handle afterwards.
    pub fn create(
        &self,
        device: CUdevice,
        owner: Owner,
        bytes: u64,
        call: impl FnOnce() -> CUresult,
        handle: impl FnOnce() -> u64,
    ) -> Outcome {
        let Some((limited, card)) = charged(device)? else { return check(call()) };
        // SAFETY: memory that the driver has just allocated, and that the program never gets.
        let undo = |handle| unsafe { (self.undo)(handle) };
        let allocated = || Allocated { key: handle(), bytes };
        let Allocated { key, .. } =
            charging::reserve(limited, card, self.taken, bytes, call, allocated, undo)?;
        self.enter(Object::new(key, bytes, device, owner)).map_err(|Full| {
            undo(key);
            charging::uncharge(limited, card, bytes, self.taken.rounding(card, bytes));
            CUDA_ERROR_OUT_OF_MEMORY
        })
    }

    /// Enters memory that was imported with a handle. If the slice is charged for it, `id` is its number
    /// there ([`expect_import`]). If not, its mappings are charged, because its size is not known.
    pub fn import(&self, handle: u64, device: CUdevice, id: Option<u64>) -> Outcome {
        let Some(limited) = limited() else { return Ok(()) };
        if self.retain(handle) {
            cancel_import(id);
            return Ok(());
        }
        let object = Object {
            is_imported: true,
            id: id.unwrap_or(0),
            ..Object::new(handle, 0, device, Owner::NONE)
        };
        self.enter(object).map_err(|Full| {
            self.uncharge(limited, &object);
            CUDA_ERROR_OUT_OF_MEMORY
        })
    }

    fn enter(&self, object: Object) -> Result<(), Full> {
        if let (Some(replaced), Some(limited)) = (self.objects.insert(object)?, limited()) {
            // The driver has ended it by itself and has reused its handle.
            self.uncharge(limited, &replaced);
        }
        Ok(())
    }

    /// Counts a reference that the driver has handed out. Returns whether the memory is known.
    pub fn retain(&self, handle: u64) -> bool {
        let add = |object: &mut Object| {
            object.references += 1;
            Then::Keep
        };
        self.objects.change(handle, add).is_some()
    }

    /// Notes a descriptor that the driver has returned for the memory behind a handle. If that fails, the
    /// program must not get it.
    pub fn exported(&self, handle: u64, descriptor: RawFd) -> Outcome {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let Some(limited) = limited() else { return Ok(()) };
        let _one_at_a_time = lock(&ONE_AT_A_TIME);
        let Some((object, _)) = self.objects.change(handle, |_| Then::Keep) else { return Ok(()) };
        let Some(card) = cards::of_device(limited, object.device) else { return Ok(()) };
        if object.id != 0 {
            descriptor::mark(descriptor, object.id);
            return Ok(());
        }
        if object.is_imported {
            // Its size is not known. Each importer is charged.
            return Ok(());
        }
        let key = descriptor::new_key().ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let mark = descriptor::mark(descriptor, key);
        let shared = shared::share(limited, card, key, object.bytes, mark.as_ref());
        let has_room = shared.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let set_id = |object: &mut Object| {
            object.id = key;
            Then::Keep
        };
        self.objects.change(handle, set_id);
        if has_room { Ok(()) } else { Err(CUDA_ERROR_OUT_OF_MEMORY) }
    }

    /// Drops a reference. `call` calls the driver.
    pub fn release(&self, handle: u64, call: impl FnOnce() -> CUresult) -> Outcome {
        let Some(limited) = limited() else { return check(call()) };
        let mut had_reference = false;
        let drop_one = |object: &mut Object| {
            had_reference = object.references > 0;
            object.references = object.references.saturating_sub(1);
            if had_reference { object.then() } else { Then::Keep }
        };
        let changed = self.objects.change(handle, drop_one);
        let outcome = check(call());
        let Some((object, then)) = changed.filter(|_| had_reference) else { return outcome };
        match (outcome, then) {
            (Ok(()), Then::Remove) => self.uncharge(limited, &object),
            (Ok(()), Then::Keep) => {}
            (Err(_), then) => {
                if then == Then::Remove {
                    // There was room for this entry a moment ago. At worst the bytes stay charged.
                    let _ = self.objects.insert(object);
                }
                self.retain(handle);
            }
        }
        outcome
    }

    /// Maps memory. `call` calls the driver; `address` returns where the mapping then begins; `undo`
    /// unmaps.
    pub fn map(
        &self,
        handle: u64,
        size: u64,
        call: impl FnOnce() -> CUresult,
        address: impl FnOnce() -> u64,
        undo: impl FnOnce() -> CUresult,
    ) -> Outcome {
        let Some(limited) = limited() else { return check(call()) };
        let add = |object: &mut Object| {
            object.mappings += 1;
            Then::Keep
        };
        let Some((object, _)) = self.objects.change(handle, add) else { return check(call()) };
        let outcome = self.charge_import(limited, &object, size).and_then(|()| check(call()));
        if outcome.is_err() {
            self.drop_mappings(limited, handle);
            return outcome;
        }
        let mapping = Mapping { address: address(), size, handle };
        match self.mappings.insert(mapping) {
            Ok(None) => Ok(()),
            Ok(Some(replaced)) => {
                // The driver has ended it by itself and has reused its address.
                self.drop_mappings(limited, replaced.handle);
                Ok(())
            }
            Err(Full) => {
                undo();
                self.drop_mappings(limited, handle);
                Err(CUDA_ERROR_OUT_OF_MEMORY)
            }
        }
    }

    /// Charges the part of imported memory that a new mapping of `size` bytes shows for the first
    /// time.
    fn charge_import(&self, limited: &'static Limited, object: &Object, size: u64) -> Outcome {
        let Some(card) = cards::of_device(limited, object.device) else { return Ok(()) };
        let shown = size.saturating_sub(object.bytes);
        if !object.is_imported || object.id != 0 || shown == 0 {
            return Ok(());
        }
        charging::charge(limited, card, shown)?;
        let grow = |object: &mut Object| {
            object.bytes += shown;
            Then::Keep
        };
        self.objects.change(object.handle, grow);
        Ok(())
    }

    /// One mapping of the memory behind a handle has ended.
    fn drop_mappings(&self, limited: &Limited, handle: u64) {
        if let Some((object, Then::Remove)) = self.objects.change(handle, Self::drop_mapping) {
            self.uncharge(limited, &object);
        }
    }

    fn drop_mapping(object: &mut Object) -> Then {
        object.mappings = object.mappings.saturating_sub(1);
        object.then()
    }

    /// Ends all mappings between an address and `size` bytes behind it. `call` calls the driver.
    pub fn unmap(&self, address: u64, size: u64, call: impl FnOnce() -> CUresult) -> Outcome {
        let Some(limited) = limited() else { return check(call()) };
        let mappings = self.take_mappings(address, size);
        let mut ended = Vec::new();
        for mapping in &mappings {
            if let Some((object, Then::Remove)) =
                self.objects.change(mapping.handle, Self::drop_mapping)
            {
                ended.push(object);
            }
        }
        let outcome = check(call());
        if outcome.is_ok() {
            // The driver must not be called again, even if the accounting panics.
            guard(|| ended.iter().for_each(|object| self.uncharge(limited, object)));
        } else {
            // There was room for these entries a moment ago. At worst bytes stay charged.
            for object in ended {
                let _ = self.objects.insert(object);
            }
            for mapping in mappings {
                let add = |object: &mut Object| {
                    object.mappings += 1;
                    Then::Keep
                };
                self.objects.change(mapping.handle, add);
                let _ = self.mappings.insert(mapping);
            }
        }
        outcome
    }

    /// Whether a mapping begins at an address.
    #[inline]
    pub fn is_mapped_at(&self, address: u64) -> bool {
        !self.mappings.is_empty()
            && limited().is_some()
            && self.mappings.change(address, |_| Then::Keep).is_some()
    }

    /// Removes the mappings that begin in a range.
    fn take_mappings(&self, address: u64, size: u64) -> Vec<Mapping> {
        let mut taken = Vec::new();
        let end = address.saturating_add(size);
        let mut next = address;
        while next < end && !self.mappings.is_empty() {
            if let Some(mapping) = self.mappings.remove(next) {
                next = next.saturating_add(mapping.size);
                taken.push(mapping);
            } else if (end - next) / LEAST_MAPPING > self.mappings.len() as u64 {
                taken.extend(self.mappings.remove_all(|it| (next..end).contains(&it.address)));
                break;
            } else {
                next = next.saturating_add(LEAST_MAPPING);
            }
        }
        taken
    }

    /// Uncharges what an ended context has owned.
    pub fn context_ended(&self, limited: &Limited, owner: Owner, before: Epoch) {
        let of_context = |object: &Object| object.owner == owner && before.covers(object.created);
        for object in self.objects.remove_all(of_context) {
            self.mappings.remove_all(|mapping| mapping.handle == object.handle);
            self.uncharge(limited, &object);
        }
    }

    /// The last reference and the last mapping of an object are gone.
    fn uncharge(&self, limited: &Limited, object: &Object) {
        if object.id != 0 {
            shared::close(limited, object.id);
        } else if let Some(card) = cards::of_device(limited, object.device) {
            let rounding = self.taken.rounding(card, object.bytes);
            charging::uncharge(limited, card, object.bytes, rounding);
        }
    }
}

/// The program is about to import the memory behind a descriptor. Returns its number, if the slice is
/// charged for it.
pub fn expect_import(descriptor: RawFd) -> Option<u64> {
    let limited = limited()?;
    descriptor::key_of(descriptor).filter(|key| shared::import(limited, *key))
}

/// Undoes [`expect_import`].
pub fn cancel_import(id: Option<u64>) {
    if let (Some(limited), Some(id)) = (limited(), id) {
        shared::close(limited, id);
    }
}
