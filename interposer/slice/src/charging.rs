//! Allocating and freeing memory under the limit.
//!
//! To allocate: charge every layer of the slice, call the driver, remember the pointer. If the
//! charge is refused, the driver is not called. To free: forget the pointer, call the driver,
//! uncharge. In this order other processes never get bytes that the driver still holds, and another
//! thread that gets the same pointer from the driver never meets the old entry.

use driver_sys::cuda::{CUDA_ERROR_OUT_OF_MEMORY, CUresult};
use vgpu_driver::guard::guard;
use vgpu_driver::real::{self, Outcome, check};
use vgpu_driver::{context, process};

use crate::allocations::{self, Allocation, Full, Owner};
use crate::cards;
use crate::current::{Slice, current};
use crate::limited::{Card, Limited};
use crate::pools;

/// Memory that the driver has allocated.
pub struct Allocated {
    /// Where it is on the card.
    pub pointer: u64,
    /// How many bytes of the card it takes.
    pub bytes: u64,
}

/// Allocates memory in the current context. `expected` is charged before `call` calls the driver.
/// If the driver has allocated another size, which `allocated` reads from the program's variables,
/// the charge is corrected. `expected` is 0 if the driver will refuse the arguments.
#[inline]
pub fn allocate(
    expected: u64,
    call: impl FnOnce() -> CUresult,
    allocated: impl FnOnce() -> Allocated,
) -> Outcome {
    let limited = match current() {
        Slice::Unlimited => return check(call()),
        Slice::Refused(_) => return Err(CUDA_ERROR_OUT_OF_MEMORY),
        Slice::Limited(limited) => limited,
    };
    // Without a context, or before cuInit, the driver refuses by itself.
    let Some((device, context)) = context::current() else { return check(call()) };
    // A card that cannot be identified is not part of the slice.
    let card = cards::of_device(limited, device).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    if expected != 0 {
        charge(limited, card, expected)?;
    }
    if let Err(error) = check(call()) {
        if expected != 0 {
            limited.uncharge(card, expected);
        }
        return Err(error);
    }
    let Allocated { pointer, bytes } = allocated();
    if bytes > expected && charge(limited, card, bytes - expected).is_err() {
        return Err(undo(limited, card, pointer, expected));
    }
    if bytes < expected {
        limited.uncharge(card, expected - bytes);
    }
    let allocation = Allocation::new(pointer, bytes, Owner::context(context), card.device);
    remember(limited, allocation).map_err(|Full| undo(limited, card, pointer, bytes))
}

/// Charges a card. If that is refused, memory that the pools of this process keep without use is
/// freed first.
pub(crate) fn charge(limited: &'static Limited, card: &Card, bytes: u64) -> Outcome {
    if pools::any_charged() {
        if limited.try_charge(card, bytes) {
            return Ok(());
        }
        pools::trim(limited, card, None);
    }
    if limited.charge(card, bytes) { Ok(()) } else { Err(CUDA_ERROR_OUT_OF_MEMORY) }
}

/// Frees memory that the driver has just allocated and the program does not know of.
#[cold]
fn undo(limited: &Limited, card: &Card, pointer: u64, charged: u64) -> CUresult {
    // SAFETY: a pointer of the driver's that the program never gets.
    unsafe { real::cuMemFree_v2(pointer) };
    limited.uncharge(card, charged);
    CUDA_ERROR_OUT_OF_MEMORY
}

/// Remembers memory that is charged already.
pub fn remember(limited: &'static Limited, allocation: Allocation) -> Result<(), Full> {
    if let Some(replaced) = allocations::insert(allocation)? {
        // The driver reuses a pointer after the memory there has ended with its context, and the
        // thread that ends the context has not removed the entry yet.
        uncharge_freed(limited, &[replaced]);
    }
    Ok(())
}

/// Frees memory; `call` calls the driver. A pointer that is not remembered concerns only the
/// driver.
#[inline]
pub fn free(pointer: u64, call: impl FnOnce() -> CUresult) -> Outcome {
    let Slice::Limited(limited) = current() else { return check(call()) };
    if process::is_forked_copy() {
        return check(call());
    }
    let Some(allocation) = allocations::remove(pointer) else { return check(call()) };
    let outcome = check(call());
    if outcome.is_ok() {
        // The driver must not be called again, even if the accounting panics.
        guard(|| uncharge_freed(limited, &[allocation]));
    } else {
        // There was room for this entry a moment ago. At worst the bytes stay charged.
        let _ = allocations::insert(allocation);
    }
    outcome
}

/// Uncharges allocations that the driver has freed.
pub fn uncharge_freed(limited: &'static Limited, freed: &[Allocation]) {
    for allocation in freed {
        if let Some(index) = allocation.owner.as_pool() {
            pools::freed(limited, index, allocation.bytes);
        } else if let Some(card) = cards::of_device(limited, allocation.device) {
            limited.uncharge(card, allocation.bytes);
        }
    }
}

/// The card of this thread's context.
pub fn current_card(limited: &'static Limited) -> Option<&'static Card> {
    cards::of_device(limited, context::current()?.0)
}
