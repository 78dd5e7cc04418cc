//! A program can raise the limits of a context with `cuCtxSetLimit`: for the stacks, for the heap of
//! kernels, or for their printf buffer. The driver then takes more memory for the context.
//!
//! The memory that a context takes with its first limits is part of its own charge ([`contexts`]).
//! The added memory is charged when a limit is raised, and uncharged when it is lowered or the
//! context ends. A stack exists for each thread that the card can run at once.

use std::sync::Mutex;

use driver_sys::cuda::{
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
    CU_LIMIT_MALLOC_HEAP_SIZE, CU_LIMIT_PRINTF_FIFO_SIZE, CU_LIMIT_STACK_SIZE, CUDA_SUCCESS,
    CUcontext, CUdevice, CUdevice_attribute, CUlimit, CUresult,
};
use vgpu_driver::guard::lock;
use vgpu_driver::real::{self, Outcome, check};
use vgpu_driver::{context, process};

use crate::cards;
use crate::contexts;
use crate::current::{Slice, current};
use crate::limited::{Card, Limited};

/// The limits that were changed, of contexts that exist.
static CHANGED: Mutex<Vec<Changed>> = Mutex::new(Vec::new());

/// A limit of a context that the program has set.
struct Changed {
    context: usize,
    limit: CUlimit,
    card: &'static Card,
    /// The value that the context had at first.
    first: u64,
    /// The charged bytes.
    bytes: u64,
}

/// Sets a limit of the current context. `call` calls the driver.
pub fn set_limit(limit: CUlimit, value: u64, call: impl FnOnce() -> CUresult) -> Outcome {
    let takes_memory = matches!(
        limit,
        CU_LIMIT_STACK_SIZE | CU_LIMIT_MALLOC_HEAP_SIZE | CU_LIMIT_PRINTF_FIFO_SIZE
    );
    let Slice::Limited(limited) = current() else { return check(call()) };
    if !takes_memory || process::is_forked_copy() {
        return check(call());
    }
    let found = context::current()
        .and_then(|(device, context)| Some((context, cards::of_device(limited, device)?)));
    let Some((context, card)) = found else { return check(call()) };
    // If the size of the context is not known, nothing of it is charged.
    if limited.context_memory(card) == 0 {
        return check(call());
    }
    let mut before = 0;
    // SAFETY: a local variable.
    check(unsafe { real::cuCtxGetLimit(&raw mut before, limit) })?;
    let mut changed = lock(&CHANGED);
    let Some(entry) = entry_of(&mut changed, context, limit, card, before as u64) else {
        return check(call());
    };
    let old = entry.bytes;
    let new = value.saturating_sub(entry.first).saturating_mul(copies(limit, card.device));
    if new > old {
        contexts::charge(limited, card, new - old)?;
    }
    let outcome = check(call());
    let excess = if outcome.is_ok() {
        entry.bytes = new;
        old.saturating_sub(new)
    } else {
        new.saturating_sub(old)
    };
    if excess > 0 {
        contexts::uncharge(limited, card, excess);
    }
    outcome
}

/// The entry of a limit of a context, whose value is `now`.
fn entry_of<'a>(
    changed: &'a mut Vec<Changed>,
    context: CUcontext,
    limit: CUlimit,
    card: &'static Card,
    now: u64,
) -> Option<&'a mut Changed> {
    let context = context as usize;
    let known = changed.iter().position(|it| (it.context, it.limit) == (context, limit));
    let index = known.unwrap_or_else(|| {
        changed.push(Changed { context, limit, card, first: now, bytes: 0 });
        changed.len() - 1
    });
    changed.get_mut(index)
}

/// How many times the driver takes the value of a limit.
fn copies(limit: CUlimit, device: CUdevice) -> u64 {
    if limit != CU_LIMIT_STACK_SIZE {
        return 1;
    }
    attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
        * attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)
}

fn attribute(device: CUdevice, attribute: CUdevice_attribute) -> u64 {
    let mut value = 0;
    // SAFETY: a local variable.
    let result = unsafe { real::cuDeviceGetAttribute(&raw mut value, attribute, device) };
    if result == CUDA_SUCCESS { u64::try_from(value).unwrap_or(0) } else { 0 }
}

/// Uncharges what the limits of an ended context had added.
pub fn context_ended(limited: &Limited, context: CUcontext) {
    let mut changed = lock(&CHANGED);
    for ended in changed.extract_if(.., |it| it.context == context as usize) {
        contexts::uncharge(limited, ended.card, ended.bytes);
    }
}
