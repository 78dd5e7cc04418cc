//! Memory that programs hold by a handle and by mappings of it: physical memory of virtual memory
//! management, and external memory.
//!
//! A program may release a handle while the memory is mapped, and keeps the memory. So the memory
//! is charged until the last reference to its handle, its last mapping and its last exported
//! descriptor are gone. The driver ends whole mappings only, so the addresses at which they begin
//! tell which ones it ends.
//!
//! For memory that processes share by descriptors, the slice is charged, while any process has it
//! or a descriptor keeps it. The account lists it by a number, with which its descriptors are
//! marked (`native/account/src/descriptor.rs`). If the account does not list it, because its owner
//! is not in this slice, the importer is charged when it maps it.
//!
//! The memory that a call may take is counted before the driver is called. The memory that it gives
//! back is counted down afterwards. Once the driver has freed memory, another thread may get the
//! same handle or address for new memory. So objects and mappings have serial numbers: a call ends
//! what is older than itself.

use std::os::fd::RawFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use driver_sys::cuda::{CUDA_ERROR_OUT_OF_MEMORY, CUdevice, CUexternalMemory, CUresult};
use hami_account::descriptor;
use vgpu_driver::guard::{guard, lock};
use vgpu_driver::real::{self, Outcome, check};

use crate::allocations::{Epoch, Owner};
use crate::cards;
use crate::current::{Slice, current, limited};
use crate::limited::{Card, Limited};
use crate::reserve::{self, Allocated, Taken};
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
    serial: u64,
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
            serial: new_serial(),
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
    serial: u64,
    kept: Kept,
}

/// The mappings and bindings that keep an object beside the references to its handle.
#[derive(Clone, Copy)]
pub struct Kept {
    handle: u64,
    /// The object's serial number.
    of: u64,
    /// The object's device.
    pub device: CUdevice,
}

/// The serial number of the newest object or mapping.
static NEWEST: AtomicU64 = AtomicU64::new(0);

fn new_serial() -> u64 {
    NEWEST.fetch_add(1, Ordering::Relaxed) + 1
}

/// Held while references and mappings are counted down, and while the driver hands out a reference
/// to memory that another thread may be about to give back.
static COUNTING: Mutex<()> = Mutex::new(());

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
    /// Creates memory on a device. `call` calls the driver; `handle` reads the new handle
    /// afterwards.
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
            reserve::reserve(limited, card, self.taken, bytes, call, allocated, undo)?;
        self.enter(Object::new(key, bytes, device, owner)).map_err(|Full| {
            undo(key);
            reserve::uncharge(limited, card, bytes, self.taken.rounding(card, bytes));
            CUDA_ERROR_OUT_OF_MEMORY
        })
    }

    /// Enters memory that was imported with a handle. If the slice is charged for it, `id` is its
    /// number there ([`expect_import`]). If not, its mappings are charged, because its size is not
    /// known.
    pub fn import(&self, handle: u64, device: CUdevice, id: Option<u64>) -> Outcome {
        let Some(limited) = limited() else { return Ok(()) };
        if self.add_reference(handle) {
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

    /// Hands out a reference to memory that is mapped. `call` calls the driver; `handle` then reads
    /// the handle.
    pub fn retain(&self, call: impl FnOnce() -> CUresult, handle: impl FnOnce() -> u64) -> Outcome {
        // A forked child may never get the lock.
        let _counting = limited().map(|_| lock(&COUNTING));
        check(call())?;
        self.add_reference(handle());
        Ok(())
    }

    /// Counts a reference. Returns whether the memory is known.
    fn add_reference(&self, handle: u64) -> bool {
        let add = |object: &mut Object| {
            object.references += 1;
            Then::Keep
        };
        self.objects.change(handle, add).is_some()
    }

    /// Notes a descriptor that the driver has returned for the memory behind a handle. If that
    /// fails, the program must not get it.
    pub fn exported(&self, handle: u64, descriptor: RawFd) -> Outcome {
        let Some(limited) = limited() else { return Ok(()) };
        let _counting = lock(&COUNTING);
        let Some(object) = self.objects.get(handle) else { return Ok(()) };
        let Some(card) = cards::of_device(limited, object.device) else { return Ok(()) };
        if object.id != 0 {
            descriptor::mark(descriptor, object.id);
        }
        // If the size of imported memory is not known, each importer is charged.
        if object.id != 0 || object.is_imported {
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
        let newest = NEWEST.load(Ordering::Relaxed);
        check(call())?;
        // The driver must not be called again, even if the accounting panics.
        guard(|| {
            self.count_down(limited, handle, |it| it.serial <= newest, |it| &mut it.references);
        });
        Ok(())
    }

    /// Maps memory. `call` calls the driver; `address` returns where the mapping then begins;
    /// `undo` unmaps.
    pub fn map(
        &self,
        handle: u64,
        size: u64,
        call: impl FnOnce() -> CUresult,
        address: impl FnOnce() -> u64,
        undo: impl FnOnce() -> CUresult,
    ) -> Outcome {
        let Some(kept) = self.keep(handle, size, call)? else { return Ok(()) };
        let mapping = Mapping { address: address(), size, serial: new_serial(), kept };
        match self.mappings.insert(mapping) {
            Ok(None) => Ok(()),
            Ok(Some(replaced)) => {
                // The driver has ended it by itself and has reused its address.
                self.end(replaced.kept);
                Ok(())
            }
            Err(Full) => {
                undo();
                self.end(kept);
                Err(CUDA_ERROR_OUT_OF_MEMORY)
            }
        }
    }

    /// Counts a mapping of `size` bytes, or what else keeps the memory of a handle until
    /// [`Self::end`]. `call` calls the driver. `None` if the memory is not known.
    pub fn keep(
        &self,
        handle: u64,
        size: u64,
        call: impl FnOnce() -> CUresult,
    ) -> Outcome<Option<Kept>> {
        let add = |object: &mut Object| {
            object.mappings += 1;
            Then::Keep
        };
        let known =
            limited().and_then(|limited| Some((limited, self.objects.change(handle, add)?)));
        let Some((limited, (object, _))) = known else { return check(call()).map(|()| None) };
        let kept = Kept { handle, of: object.serial, device: object.device };
        let outcome = self.charge_import(limited, &object, size).and_then(|()| check(call()));
        outcome.map(|()| Some(kept)).inspect_err(|_| self.end(kept))
    }

    /// Whether the memory of a handle is known.
    pub fn is_known(&self, handle: u64) -> bool {
        self.objects.get(handle).is_some()
    }

    /// Whether the program has no reference to a handle.
    pub fn is_released(&self, kept: Kept) -> bool {
        let found = self.objects.get(kept.handle);
        found.is_some_and(|object| object.serial == kept.of && object.references == 0)
    }

    /// Charges the part of imported memory that a new mapping of `size` bytes shows for the first
    /// time.
    fn charge_import(&self, limited: &'static Limited, object: &Object, size: u64) -> Outcome {
        let Some(card) = cards::of_device(limited, object.device) else { return Ok(()) };
        let shown = size.saturating_sub(object.bytes);
        if !object.is_imported || object.id != 0 || shown == 0 {
            return Ok(());
        }
        reserve::charge(limited, card, shown)?;
        let grow = |object: &mut Object| {
            object.bytes += shown;
            Then::Keep
        };
        self.objects.change(object.handle, grow);
        Ok(())
    }

    /// One reference or mapping of an object has ended, if the handle is still of this object.
    fn count_down(
        &self,
        limited: &Limited,
        handle: u64,
        is_same: impl Fn(&Object) -> bool,
        count: impl Fn(&mut Object) -> &mut u32,
    ) {
        let _counting = lock(&COUNTING);
        let down = |object: &mut Object| {
            if !is_same(object) {
                return Then::Keep;
            }
            let count = count(object);
            *count = count.saturating_sub(1);
            object.then()
        };
        if let Some((object, Then::Remove)) = self.objects.change(handle, down) {
            self.uncharge(limited, &object);
        }
    }

    /// A mapping or binding that kept memory has ended.
    pub fn end(&self, kept: Kept) {
        if let Some(limited) = limited() {
            self.count_down(limited, kept.handle, |it| it.serial == kept.of, |it| &mut it.mappings);
        }
    }

    /// Ends all mappings between an address and `size` bytes behind it. `call` calls the driver.
    pub fn unmap(&self, address: u64, size: u64, call: impl FnOnce() -> CUresult) -> Outcome {
        if limited().is_none() {
            return check(call());
        }
        let newest = NEWEST.load(Ordering::Relaxed);
        check(call())?;
        // As in `release`.
        guard(|| {
            for mapping in self.take_mappings(address, size, newest) {
                self.end(mapping.kept);
            }
        });
        Ok(())
    }

    /// Whether a mapping begins at an address.
    #[inline]
    pub fn is_mapped_at(&self, address: u64) -> bool {
        !self.mappings.is_empty() && limited().is_some() && self.mappings.get(address).is_some()
    }

    /// Removes the mappings that begin in a range, and that are not newer.
    fn take_mappings(&self, address: u64, size: u64, newest: u64) -> Vec<Mapping> {
        let mut taken = Vec::new();
        let end = address.saturating_add(size);
        let mut next = address;
        let take = |it: &mut Mapping| if it.serial <= newest { Then::Remove } else { Then::Keep };
        while next < end && !self.mappings.is_empty() {
            if let Some((mapping, Then::Remove)) = self.mappings.change(next, take) {
                next = next.saturating_add(mapping.size);
                taken.push(mapping);
            } else if (end - next) / LEAST_MAPPING > self.mappings.len() as u64 {
                let is_ended =
                    |it: &Mapping| it.serial <= newest && (next..end).contains(&it.address);
                taken.extend(self.mappings.remove_all(is_ended));
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
            self.mappings.remove_all(|mapping| mapping.kept.handle == object.handle);
            self.uncharge(limited, &object);
        }
    }

    /// The last reference and the last mapping of an object are gone.
    fn uncharge(&self, limited: &Limited, object: &Object) {
        if object.id != 0 {
            shared::close(limited, object.id);
        } else if let Some(card) = cards::of_device(limited, object.device) {
            let rounding = self.taken.rounding(card, object.bytes);
            reserve::uncharge(limited, card, object.bytes, rounding);
        }
    }
}

/// The program is about to import the memory behind a descriptor. Returns its number, if the slice
/// is charged for it.
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
