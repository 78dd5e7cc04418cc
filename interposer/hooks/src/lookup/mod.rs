//! Symbol lookup: the ways by which a program reaches the driver, all of which must lead to our
//! wrappers.
//!
//! - **Direct link**: the program needs libcuda.so.1, and the loader binds its calls to our
//!   exports, because a preloaded library comes first. Nothing to do here.
//! - **dlopen and dlsym** (or dlvsym), by whatever name the driver was opened: [`dlsym`].
//! - **cuGetProcAddress**, both versions, which programs find by either of the others:
//!   [`proc_address`].
//!
//! One rule serves them all: call the real function first, then replace the address that it
//! returned by the wrapper for that address. So no symbol is offered that the driver lacks, and
//! versions, flags and per-thread-stream variants stay exact. The driver itself gets its own
//! functions (`vgpu_driver::callers`).

#[cfg_attr(test, allow(dead_code))] // a test binary exports no dlsym
mod dlsym;
mod proc_address;

use crate::boundary::HOOKS;

pub(crate) use proc_address::{get_proc_address, get_proc_address_v1};

/// The wrapper for an address in the driver, if the function there is hooked.
fn wrapper_of(address: usize) -> Option<usize> {
    let hook = HOOKS.iter().find(|hook| hook.symbol.known_address() == Some(address))?;
    Some(hook.wrapper())
}
