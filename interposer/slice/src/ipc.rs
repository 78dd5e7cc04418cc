//! Linear memory that processes share by handles of `cuIpcGetMemHandle`.
//!
//! The slice is charged for it, while any of its processes has it. Both sides compute from the
//! handle the number by which the account lists the memory. If the account does not list it,
//! because its owner is not in this slice, or had no room for it, the importer is charged.

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
use crate::{cards, green, reserve, shared};

/// The memory that this process has exported or imported.
static SHARED: Table<Shared> = Table::new();

/// Memory that this process has exported, or that it has imported.
#[derive(Clone, Copy)]
struct Shared {
    pointer: u64,
    /// The number by which the account lists it.
    id: u64,
    /// Whether the slice is charged for it.
    is_listed: bool,
    /// The bytes that else this process is charged.
    bytes: u64,
    /// The context with which an import ends.
    owner: Owner,
    opened: Epoch,
    device: CUdevice,
    /// How often it was opened and not closed.
    times: u32,
}

// SAFETY: numbers, and no memory begins at 0.
unsafe impl Entry for Shared {
    fn key(&self) -> u64 {
        self.pointer
    }
}

impl Shared {
    fn new(pointer: u64, id: u64, is_listed: bool, owner: Owner, device: CUdevice) -> Self {
        let opened = Epoch::current();
        Self { pointer, id, is_listed, bytes: 0, owner, opened, device, times: 1 }
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
        let exported = Shared::new(base, id, true, Owner::NONE, allocation.device);
        is_new = !allocation.is_exported && SHARED.insert(exported).is_ok();
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
    if let Some(exported) = SHARED.remove(allocation.key) {
        end(limited, &exported);
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
    let is_listed = shared::import(limited, id);
    let close_again = || {
        if is_listed {
            shared::close(limited, id);
        }
    };
    check(call()).inspect_err(|_| close_again())?;
    let pointer = pointer();
    let again = |imported: &mut Shared| {
        imported.times += 1;
        Then::Keep
    };
    if SHARED.change(pointer, again).is_some() {
        close_again();
        return Ok(());
    }
    let Some((current_device, context)) = context::current() else { return Ok(()) };
    // The memory may be on another card than the context.
    let device = device_of(pointer).unwrap_or(current_device);
    let owner = green::owner_in(context);
    let imported = Shared::new(pointer, id, is_listed, owner, device);
    let charged = if is_listed { Ok(imported) } else { charge(limited, imported) };
    let result = charged.and_then(|imported| {
        SHARED.insert(imported).map_err(|Full| {
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
fn charge(limited: &'static Limited, imported: Shared) -> Outcome<Shared> {
    let Some(card) = cards::of_device(limited, imported.device) else { return Ok(imported) };
    let bytes = range_of(imported.pointer).map_or(0, |(_, bytes)| bytes);
    let bytes = bytes + card.rounding(bytes);
    reserve::charge(limited, card, bytes)?;
    Ok(Shared { bytes, ..imported })
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
    let once_less = |imported: &mut Shared| {
        imported.times -= 1;
        if imported.times == 0 { Then::Remove } else { Then::Keep }
    };
    let Some((imported, then)) = SHARED.change(pointer, once_less) else { return check(call()) };
    let outcome = check(call());
    match (outcome, then) {
        (Ok(()), Then::Remove) => end(limited, &imported),
        (Ok(()), Then::Keep) => {}
        (Err(_), _) => {
            // There was room for this entry a moment ago.
            let _ = SHARED.insert(Shared { times: imported.times + 1, ..imported });
        }
    }
    outcome
}

/// Shared memory has ended for this process.
fn end(limited: &Limited, it: &Shared) {
    if it.is_listed {
        shared::close(limited, it.id);
    } else if let Some(card) = cards::of_device(limited, it.device) {
        limited.uncharge(card, it.bytes);
    }
}

/// The driver has closed what was opened in a context that has ended.
pub fn context_ended(limited: &Limited, owner: Owner, before: Epoch) {
    let of_context = |it: &Shared| it.owner == owner && before.covers(it.opened);
    SHARED.remove_all(of_context).iter().for_each(|imported| end(limited, imported));
}
