//! The roads by which a program reaches the driver, all of which must lead to our wrappers.
//!
//! - **Direct link**: the program needs libcuda.so.1 and the loader binds its calls to our exports,
//!   because a preloaded library comes first. Nothing to do here.
//! - **dlopen + dlsym** (or dlvsym), by whatever name the driver was opened: [`names`].
//! - **cuGetProcAddress**, both forms, itself found by either of the others: [`lookup`].
//!
//! One rule serves them all: ask the real function first, then replace the address it gave by the
//! wrapper for that address. So nothing is offered that the driver lacks, and versions, flags and
//! per-thread-stream variants stay exact.

pub(crate) mod lookup;
#[cfg_attr(test, allow(dead_code))] // a test binary exports no dlsym
mod names;
#[cfg_attr(test, allow(dead_code))]
pub(crate) mod objects;

pub(crate) use names::real_dlsym;
