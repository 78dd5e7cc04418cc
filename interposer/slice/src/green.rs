//! Green contexts: parts of a primary context with some of its multiprocessors.
//!
//! A green context keeps the primary context of its device. Memory that a program allocates in it
//! belongs to the primary context, and ends with that.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use driver_sys::cuda::{CUcontext, CUdevice, CUgreenCtx};
use vgpu_driver::guard::lock;
use vgpu_driver::process;

use crate::allocations::Owner;

/// Whether this process has created a green context. Most never do, and pay only for this load.
static ANY: AtomicBool = AtomicBool::new(false);
static GREENS: Mutex<Vec<Green>> = Mutex::new(Vec::new());

/// A green context.
pub struct Green {
    /// Its handle.
    pub handle: usize,
    /// Its handle as a context.
    pub own: CUcontext,
    /// The primary context.
    pub primary: CUcontext,
    /// The device of both.
    pub device: CUdevice,
}

// SAFETY: the handles are compared, never used as pointers.
unsafe impl Send for Green {}

/// The driver has created a green context.
pub fn created(green: Green) {
    ANY.store(true, Ordering::Relaxed);
    lock(&GREENS).push(green);
}

/// The driver has destroyed a green context.
pub fn destroyed(context: CUgreenCtx) {
    lock(&GREENS).retain(|green| green.handle != context as usize);
}

/// The device of a green context of this process.
pub fn device_of(context: CUgreenCtx) -> Option<CUdevice> {
    find(|green| green.handle == context as usize, |green| green.device)
}

/// The owner of memory that is allocated in a context.
#[inline]
pub fn owner_in(context: CUcontext) -> Owner {
    Owner::context(find(|green| green.own == context, |green| green.primary).unwrap_or(context))
}

#[inline]
fn find<T>(is_it: impl Fn(&Green) -> bool, field: impl Fn(&Green) -> T) -> Option<T> {
    if !ANY.load(Ordering::Relaxed) || process::is_forked_copy() {
        return None;
    }
    lock(&GREENS).iter().find(|green| is_it(green)).map(field)
}
