//! Allocating and freeing memory under the limit.
//!
//! To allocate: charge every layer of the slice, call the driver, remember the address or handle.
//! If the charge is refused, the driver is not called. To free: forget it, call the driver,
//! uncharge. In this order other processes never get bytes that the driver still holds, and another
//! thread that gets the same address from the driver never meets the old entry.
//!
//! For every kind, the account is raised before the driver is called, and lowered after it:
//!
//! | kind | to take | to give back |
//! |---|---|---|
//! | linear memory, arrays | charge, call, enter | remove, call, uncharge |
//! | handles and mappings ([`crate::mapped`]) | charge or count, call, enter | call, count down, uncharge: another thread may take more of the same memory meanwhile |
//! | shared memory ([`crate::ipc`], [`crate::mapped`]) | note the import, call, enter | as above, then end the import |
//! | pools, graphs ([`crate::reported`]) | raise, call, set to what is reported | call, set to what is reported |
//! | contexts ([`crate::contexts`]) | charge, call | call, uncharge |

use driver_sys::cuda::{CUDA_ERROR_OUT_OF_MEMORY, CUresult};
use vgpu_driver::guard::guard;
use vgpu_driver::real::{Outcome, check};
use vgpu_driver::{context, process};

use crate::allocations::{Allocation, Kind};
use crate::cards;
use crate::current::{Slice, current};
use crate::limited::{Card, Limited};
use crate::reserve::{Allocated, Taken, reserve, uncharge};
use crate::table::Full;
use crate::{green, ipc, pools};

/// Allocates memory of a kind in the current context. `expected` is charged before `call` calls the
/// driver. If the driver has allocated another size, which `allocated` reads from the program's
/// variables, the charge is corrected. `expected` is 0 if the driver will refuse the arguments.
#[inline]
pub fn allocate(
    kind: &'static Kind,
    taken: Taken,
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
    // SAFETY: memory that the driver has just allocated, and that the program never gets.
    let undo = |key| unsafe { (kind.undo)(key) };
    let Allocated { key, bytes } = reserve(limited, card, taken, expected, call, allocated, undo)?;
    let rounding = taken.rounding(card, bytes);
    let allocation = Allocation::new(key, bytes, green::owner_in(context), card.device);
    remember(limited, kind, allocation.rounded_by(rounding)).map_err(|Full| {
        undo(key);
        uncharge(limited, card, bytes, rounding);
        CUDA_ERROR_OUT_OF_MEMORY
    })
}

/// Remembers memory that is charged already.
pub fn remember(
    limited: &'static Limited,
    kind: &Kind,
    allocation: Allocation,
) -> Result<(), Full> {
    if let Some(replaced) = kind.table.insert(allocation)? {
        // The driver reuses a pointer after the memory there has ended with its context, and the
        // thread that ends the context has not removed the entry yet.
        uncharge_freed(limited, &[replaced]);
    }
    Ok(())
}

/// Frees memory of a kind; `call` calls the driver. An address or a handle that is not remembered
/// concerns only the driver.
#[inline]
pub fn free(kind: &Kind, key: u64, call: impl FnOnce() -> CUresult) -> Outcome {
    let Slice::Limited(limited) = current() else { return check(call()) };
    if process::is_forked_copy() {
        return check(call());
    }
    let Some(allocation) = kind.table.remove(key) else { return check(call()) };
    let outcome = check(call());
    if outcome.is_ok() {
        // The driver must not be called again, even if the accounting panics.
        guard(|| uncharge_freed(limited, &[allocation]));
    } else {
        // There was room for this entry a moment ago. At worst the bytes stay charged.
        let _ = kind.table.insert(allocation);
    }
    outcome
}

/// Uncharges allocations that the driver has freed.
pub fn uncharge_freed(limited: &'static Limited, freed: &[Allocation]) {
    for allocation in freed {
        if let Some(index) = allocation.owner.as_pool() {
            pools::freed(limited, index, allocation.bytes);
        } else if allocation.is_exported {
            ipc::uncharge_exported(limited, allocation);
        } else if let Some(card) = cards::of_device(limited, allocation.device) {
            uncharge(limited, card, allocation.bytes, allocation.rounding());
        }
    }
}

/// The card of this thread's context.
pub fn current_card(limited: &'static Limited) -> Option<&'static Card> {
    cards::of_device(limited, context::current()?.0)
}
