//! Driver memory: what the driver takes for a context, before the program allocates anything.
//!
//! The driver does not report this size in advance. The code that creates the slice has a table of
//! it by card and driver version, and writes it into the limits page (`context_memory`). A context
//! is charged like an allocation of that size, before the driver creates it. If it does not fit,
//! the program gets "out of memory", as on a card of that size. If the size is unknown, or the card
//! is not part of the slice, the context is not charged.
//!
//! All code in a process shares the primary context of a device, so it is charged once, whatever
//! the number of references. A lock is held during the driver's calls. So if one thread drops the
//! last reference while another thread takes one, the context is charged exactly while it exists.
//! Other contexts are charged one by one.
//!
//! [`crate::context_limits`] charges the memory of raised limits. The memory of modules is not
//! charged here.

use std::sync::{Mutex, MutexGuard, PoisonError};

use driver_sys::cuda::{CUDA_ERROR_OUT_OF_MEMORY, CUcontext, CUdevice, CUresult};
use vgpu_driver::process;
use vgpu_driver::real::{Outcome, check};

use crate::cards::{self, MAX_DEVICES};
use crate::current::{Slice, current};
use crate::limited::{Card, Limited};
use crate::reserve;

/// The bytes that are charged for the primary context of each device; 0 if it is not charged.
static PRIMARY: [Mutex<u64>; MAX_DEVICES] = [const { Mutex::new(0) }; MAX_DEVICES];

/// The other contexts that are charged.
static CREATED: Mutex<Vec<Created>> = Mutex::new(Vec::new());

struct Created {
    context: usize,
    card: &'static Card,
    bytes: u64,
}

/// A card with known context memory.
struct Charged {
    limited: &'static Limited,
    card: &'static Card,
    bytes: u64,
}

/// Creates a context. `call` calls the driver; `created` reads the new handle afterwards.
pub fn create(
    device: CUdevice,
    call: impl FnOnce() -> CUresult,
    created: impl FnOnce() -> CUcontext,
) -> Outcome {
    let Some(Charged { limited, card, bytes }) = charged(device)? else { return check(call()) };
    charge(limited, card, bytes)?;
    let outcome = check(call());
    match outcome {
        Ok(()) => lock(&CREATED).push(Created { context: created() as usize, card, bytes }),
        Err(_) => uncharge(limited, card, bytes),
    }
    outcome
}

/// Uncharges a context that the driver has ended. Does nothing for one that is not charged.
pub fn ended(limited: &Limited, context: CUcontext) {
    let mut created = lock(&CREATED);
    // The driver may already have reused the handle for a newer context. Its entry is behind the
    // old one, so the first match is the old one.
    if let Some(index) = created.iter().position(|one| one.context == context as usize) {
        let Created { card, bytes, .. } = created.remove(index);
        uncharge(limited, card, bytes);
    }
}

/// Takes a reference to the primary context of a device, which creates it if it is the first one.
pub fn retain_primary(device: CUdevice, call: impl FnOnce() -> CUresult) -> Outcome {
    let Some(Charged { limited, card, bytes }) = charged(device)? else { return check(call()) };
    let Some(primary) = primary_of(device) else { return check(call()) };
    let mut held = lock(primary);
    let is_first = *held == 0;
    if is_first {
        charge(limited, card, bytes)?;
    }
    let outcome = check(call());
    if outcome.is_ok() && is_first {
        *held = bytes;
    } else if is_first {
        uncharge(limited, card, bytes);
    }
    outcome
}

/// The charge of a primary context that may be about to end. No other thread of the process can
/// take or drop a reference to it meanwhile.
pub struct Primary {
    held: Option<MutexGuard<'static, u64>>,
    device: CUdevice,
}

/// Locks the charge of the primary context of a device, before a reference to it is dropped.
pub fn lock_primary(device: CUdevice) -> Primary {
    Primary { held: primary_of(device).map(lock), device }
}

impl Primary {
    /// Uncharges the context: the driver has ended it.
    pub fn ended(&mut self, limited: &Limited) {
        let Some(held) = &mut self.held else { return };
        let bytes = std::mem::take(&mut **held);
        if bytes != 0
            && let Some(card) = cards::of_device(limited, self.device)
        {
            uncharge(limited, card, bytes);
        }
    }
}

/// The card of a device and what a context takes there; `None` if nothing is charged.
fn charged(device: CUdevice) -> Outcome<Option<Charged>> {
    let limited = match current() {
        Slice::Unlimited => return Ok(None),
        Slice::Refused(_) => return Err(CUDA_ERROR_OUT_OF_MEMORY),
        Slice::Limited(limited) => limited,
    };
    if process::is_forked_copy() {
        return Ok(None);
    }
    // If the device does not exist, or cuInit was not called, the driver itself refuses.
    let Some(card) = cards::of_device(limited, device) else { return Ok(None) };
    let bytes = limited.context_memory(card);
    Ok((bytes != 0).then_some(Charged { limited, card, bytes }))
}

pub(crate) fn charge(limited: &'static Limited, card: &Card, bytes: u64) -> Outcome {
    reserve::charge(limited, card, bytes)?;
    limited.add_driver_memory(card, bytes);
    Ok(())
}

pub(crate) fn uncharge(limited: &Limited, card: &Card, bytes: u64) {
    limited.remove_driver_memory(card, bytes);
    limited.uncharge(card, bytes);
}

fn primary_of(device: CUdevice) -> Option<&'static Mutex<u64>> {
    PRIMARY.get(usize::try_from(device).ok()?)
}

/// A panic elsewhere leaves the figures as they are.
fn lock<T>(mutex: &'static Mutex<T>) -> MutexGuard<'static, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
