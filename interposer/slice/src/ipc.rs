//! Linear memory that processes share by handles of `cuIpcGetMemHandle`.
//!
//! The slice is charged for it, while any of its processes has it. Both sides compute from the handle
//! the number by which the account lists the memory. If the account does not list it, because its owner
//! is not in this slice, or had no room for it, the importer is charged.

use driver_sys::cuda::{
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUdevice,
    CUdeviceptr, CUipcMemHandle, CUresult,
};
use vgpu_driver::context;
use vgpu_driver::real::{self, Outcome, check};

use crate::allocations::{Allocation, Epoch, LINEAR, Owner};
use crate::current::{Slice, current, limited};
use crate::limited::Limited;
use crate::table::{Entry, Full, Table, Then};
use crate::{cards, charging, green, shared};

/// What this process has exported.
static EXPORTED: Table<Exported> = Table::new();
/// What this process has imported.
static IMPORTED: Table<Imported> = Table::new();

/// An allocation of this process with a handle.
#[derive(Clone, Copy)]
struct Exported {
    pointer: u64,
    /// The number by which the account lists it.
    id: u64,
}

// SAFETY: numbers, and no memory begins at 0.
unsafe impl Entry for Exported {
    fn key(&self) -> u64 {
        self.pointer
    }
}

/// Memory of another process.
#[derive(Clone, Copy)]
struct Imported {
    pointer: u64,
    /// The number by which the account lists it.
    id: u64,
    /// Whether the slice is charged for it.
    is_shared: bool,
    /// The bytes that else this process is charged.
    bytes: u64,
    owner: Owner,
    opened: Epoch,
    device: CUdevice,
    /// How often it was opened and not closed.
    times: u32,
}

// SAFETY: as above.
unsafe impl Entry for Imported {
    fn key(&self) -> u64 {
        self.pointer
    }
}

/// The number by which the account lists the memory of a handle: FNV-1a over its bytes. The highest
/// bit distinguishes it from the numbers of descriptors.
fn id_of(handle: &CUipcMemHandle) -> u64 {
    let bytes = handle.reserved.iter();
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte as u8)).wrapping_mul(0x0100_0000_01b3)
    });
    hash | 1 << 63
}

/// The allocation that contains an address: where it begins, and its bytes.
fn range_of(pointer: CUdeviceptr) -> Option<(u64, u64)> {
    let (mut base, mut bytes) = (0, 0);
    // SAFETY: local variables.
    let result = unsafe { real::cuMemGetAddressRange_v2(&raw mut base, &raw mut bytes, pointer) };
    (result == CUDA_SUCCESS).then_some((base, bytes as u64))
}

/// The driver has returned a handle of the memory at an address.
pub fn exported(handle: &CUipcMemHandle, pointer: CUdeviceptr) {
    let Some(limited) = limited() else { return };
    let Some((base, _)) = range_of(pointer) else { return };
    let (id, mut is_new) = (id_of(handle), false);
    let mark = |allocation: &mut Allocation| {
        is_new = !allocation.is_exported && EXPORTED.insert(Exported { pointer: base, id }).is_ok();
        allocation.is_exported |= is_new;
        Then::Keep
    };
    let Some((allocation, _)) = LINEAR.table.change(base, mark) else { return };
    let Some(card) = cards::of_device(limited, allocation.device).filter(|_| is_new) else {
        return;
    };
    limited.remove_driver_memory(card, allocation.rounding());
    // Without room, this process stays charged, and so is each importer.
    shared::share(limited, card, id, allocation.bytes + allocation.rounding(), None);
}

/// The driver has freed exported memory.
#[cold]
pub(crate) fn uncharge_exported(limited: &Limited, allocation: &Allocation) {
    if let Some(exported) = EXPORTED.remove(allocation.key) {
        shared::close(limited, exported.id);
    }
}

/// Opens a handle; `call` calls the driver, which writes the address.
pub fn open(
    handle: &CUipcMemHandle,
    call: impl FnOnce() -> CUresult,
    pointer: impl FnOnce() -> CUdeviceptr,
) -> Outcome {
    if matches!(current(), Slice::Refused(_)) {
        return Err(CUDA_ERROR_OUT_OF_MEMORY);
    }
    let Some(limited) = limited() else { return check(call()) };
    let id = id_of(handle);
    let is_shared = shared::import(limited, id);
    if let Err(error) = check(call()) {
        if is_shared {
            shared::close(limited, id);
        }
        return Err(error);
    }
    let pointer = pointer();
    let again = |imported: &mut Imported| {
        imported.times += 1;
        Then::Keep
    };
    if IMPORTED.change(pointer, again).is_some() {
        if is_shared {
            shared::close(limited, id);
        }
        return Ok(());
    }
    let Some((current_device, context)) = context::current() else { return Ok(()) };
    // The memory may be on another card than the context.
    let device = device_of(pointer).unwrap_or(current_device);
    let imported = Imported {
        pointer,
        id,
        is_shared,
        bytes: 0,
        owner: green::owner_in(context),
        opened: Epoch::current(),
        device,
        times: 1,
    };
    let charged = if is_shared { Ok(imported) } else { charge(limited, imported) };
    let result = charged.and_then(|imported| {
        IMPORTED.insert(imported).map_err(|Full| {
            end(limited, &imported);
            CUDA_ERROR_OUT_OF_MEMORY
        })
    });
    if result.is_err() {
        // SAFETY: what the driver has just opened, and the program never gets.
        unsafe { real::cuIpcCloseMemHandle(pointer) };
    }
    if let Some(replaced) = result? {
        // The driver has closed it by itself and has reused its address.
        end(limited, &replaced);
    }
    Ok(())
}

/// Charges this process for imported memory.
fn charge(limited: &'static Limited, imported: Imported) -> Outcome<Imported> {
    let Some(card) = cards::of_device(limited, imported.device) else { return Ok(imported) };
    let bytes = range_of(imported.pointer).map_or(0, |(_, bytes)| bytes);
    let bytes = bytes + card.rounding(bytes);
    charging::charge(limited, card, bytes)?;
    Ok(Imported { bytes, ..imported })
}

fn device_of(pointer: CUdeviceptr) -> Option<CUdevice> {
    let mut device: CUdevice = -1;
    let attribute = CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    // SAFETY: a local variable of the attribute's width.
    let result =
        unsafe { real::cuPointerGetAttribute((&raw mut device).cast(), attribute, pointer) };
    (result == CUDA_SUCCESS).then_some(device)
}

/// Closes imported memory; `call` calls the driver.
pub fn close(pointer: CUdeviceptr, call: impl FnOnce() -> CUresult) -> Outcome {
    let Some(limited) = limited() else { return check(call()) };
    let once_less = |imported: &mut Imported| {
        imported.times -= 1;
        if imported.times == 0 { Then::Remove } else { Then::Keep }
    };
    let Some((imported, then)) = IMPORTED.change(pointer, once_less) else { return check(call()) };
    let outcome = check(call());
    match (outcome, then) {
        (Ok(()), Then::Remove) => end(limited, &imported),
        (Ok(()), Then::Keep) => {}
        (Err(_), _) => {
            // There was room for this entry a moment ago.
            let _ = IMPORTED.insert(Imported { times: imported.times + 1, ..imported });
        }
    }
    outcome
}

/// Imported memory has ended for this process.
fn end(limited: &Limited, imported: &Imported) {
    if imported.is_shared {
        shared::close(limited, imported.id);
    } else if let Some(card) = cards::of_device(limited, imported.device) {
        limited.uncharge(card, imported.bytes);
    }
}

/// The driver has closed what was opened in a context that has ended.
pub fn context_ended(limited: &Limited, owner: Owner, before: Epoch) {
    let of_context = |it: &Imported| it.owner == owner && before.covers(it.opened);
    IMPORTED.remove_all(of_context).iter().for_each(|imported| end(limited, imported));
}
