//! A program can raise the limits of a context with `cuCtxSetLimit`: for the stacks, for the heap
//! of kernels, or for their printf buffer. The driver then takes more memory for the context. It
//! does the same with the stack limit at the first launch of a kernel whose local memory is larger.
//!
//! The memory that a context takes with its first limits is part of its own charge ([`contexts`]).
//! The added memory is charged when a limit is raised, and uncharged when it is lowered or the
//! context ends. A stack exists for each thread that the card can run at once.
//!
//! The local memory of a kernel is charged in the current context when the program gets the
//! kernel's handle: before every launch, so that launches pay nothing for it. It stays charged
//! until the context ends, because the driver keeps it.

use std::sync::Mutex;

use driver_sys::cuda::{
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
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

/// A limit of a context that was raised.
#[derive(Clone, Copy)]
struct Changed {
    context: usize,
    limit: CUlimit,
    card: &'static Card,
    /// The value that the context had at first.
    first: u64,
    /// The value that the program has set.
    set: u64,
    /// Of the stack limit: the most local memory of a kernel.
    local: u64,
    /// The charged bytes.
    bytes: u64,
}

impl Changed {
    /// The memory that the driver takes for it.
    fn needed(&self) -> u64 {
        let more = self.set.max(self.local).saturating_sub(self.first);
        let bytes = more.saturating_mul(copies(self.limit, self.card.device));
        let is_stack = self.limit == CU_LIMIT_STACK_SIZE;
        if is_stack { bytes.saturating_add(self.card.rounding(bytes)) } else { bytes }
    }
}

/// Sets a limit of the current context. `call` calls the driver.
pub fn set_limit(limit: CUlimit, value: u64, call: impl FnOnce() -> CUresult) -> Outcome {
    let takes_memory = matches!(
        limit,
        CU_LIMIT_STACK_SIZE | CU_LIMIT_MALLOC_HEAP_SIZE | CU_LIMIT_PRINTF_FIFO_SIZE
    );
    match Charged::current() {
        Some(charged) if takes_memory => charged.change(limit, |it| it.set = value, call),
        _ => check(call()),
    }
}

/// The compute capabilities for which it was measured that local memory takes as much as a stack
/// limit of its size: of the H100 and the H200, with driver 580 ("Local memory" in
/// docs/results/README.md).
const MEASURED: [(u64, u64); 1] = [(9, 0)];

/// The local memory of a thread that costs no charge: the first stack limit of every known card.
const LEAST_LOCAL: u64 = 1024;

/// The program is about to get the handle of a kernel whose threads have `local` bytes of local
/// memory.
pub fn charge_local(local: u64) -> Outcome {
    let Some(charged) = Charged::current().filter(|_| local > LEAST_LOCAL) else { return Ok(()) };
    let capability = (
        attribute(charged.card.device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
        attribute(charged.card.device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
    );
    if !MEASURED.contains(&capability) {
        return Ok(());
    }
    let raise = |it: &mut Changed| it.local = it.local.max(local);
    charged.change(CU_LIMIT_STACK_SIZE, raise, || CUDA_SUCCESS)
}

/// The current context, if its memory is charged.
struct Charged {
    limited: &'static Limited,
    context: CUcontext,
    card: &'static Card,
}

impl Charged {
    fn current() -> Option<Self> {
        let Slice::Limited(limited) = current() else { return None };
        if process::is_forked_copy() {
            return None;
        }
        let (device, context) = context::current()?;
        let card = cards::of_device(limited, device)?;
        // If the size of the context is not known, nothing of it is charged.
        (limited.context_memory(card) != 0).then_some(Self { limited, context, card })
    }

    /// Changes a limit. `call` calls the driver.
    fn change(
        &self,
        limit: CUlimit,
        change: impl FnOnce(&mut Changed),
        call: impl FnOnce() -> CUresult,
    ) -> Outcome {
        let mut now = 0;
        // SAFETY: a local variable.
        check(unsafe { real::cuCtxGetLimit(&raw mut now, limit) })?;
        let mut all = lock(&CHANGED);
        let old = self.entry(&all, limit, now as u64);
        let mut new = old;
        change(&mut new);
        new.bytes = new.needed();
        if new.bytes > old.bytes {
            contexts::charge(self.limited, self.card, new.bytes - old.bytes)?;
        }
        let outcome = check(call());
        let (kept, dropped) = if outcome.is_ok() { (new, old) } else { (old, new) };
        if dropped.bytes > kept.bytes {
            contexts::uncharge(self.limited, self.card, dropped.bytes - kept.bytes);
        }
        all.retain(|it| (it.context, it.limit) != (kept.context, limit));
        all.push(kept);
        outcome
    }

    /// The entry of a limit whose value is `now`.
    fn entry(&self, all: &[Changed], limit: CUlimit, now: u64) -> Changed {
        let context = self.context as usize;
        let known = all.iter().find(|it| (it.context, it.limit) == (context, limit));
        known.copied().unwrap_or(Changed {
            context,
            limit,
            card: self.card,
            first: now,
            set: now,
            local: 0,
            bytes: 0,
        })
    }
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
