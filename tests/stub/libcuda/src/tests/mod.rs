//! The driver from the outside: through its exports, as a program calls it.
//!
//! A driver is initialised once per process and reads the environment then, so every test runs in a
//! process of its own.

mod array_copies;
mod arrays;
mod capture;
mod driver_memory;
mod external;
mod fork;
mod graph_memory;
mod graph_pool;
mod graph_time;
mod graphs;
mod green;
mod handles;
mod images;
mod managed;
mod memory;
mod pools;
mod server;
mod sharing;
mod table;
mod time;
mod turns;
mod virtual_memory;

use crate::table::*;
use driver_sys::cuda::*;
use std::ptr::null_mut;
use stub_gpu::testing::alone;

/// Calls a driver function that must succeed.
macro_rules! ok {
    ($call:expr) => {
        // SAFETY: the test's arguments are what the function's documentation asks for.
        assert_eq!(unsafe { $call }, CUDA_SUCCESS, "{}", stringify!($call))
    };
}

/// Calls a driver function that must fail with this code.
macro_rules! fails {
    ($error:ident, $call:expr) => {
        // SAFETY: as above; a wrong argument is one that the driver must recognise.
        assert_eq!(unsafe { $call }, $error, "{}", stringify!($call))
    };
}

/// Calls a driver function that must return `CUDA_ERROR_INVALID_VALUE`.
macro_rules! invalid {
    ($call:expr) => {
        crate::tests::fails!(CUDA_ERROR_INVALID_VALUE, $call)
    };
}

pub(crate) use {fails, invalid, ok};

/// Initialises the driver and makes a context on device 0 current.
fn start() -> CUcontext {
    let mut context = null_mut();
    ok!(cuInit(0));
    ok!(cuCtxCreate_v2(&raw mut context, 0, 0));
    context
}

/// An allocation.
fn allocate(bytes: usize) -> CUdeviceptr {
    let mut pointer = 0;
    ok!(cuMemAlloc_v2(&raw mut pointer, bytes));
    pointer
}

/// Free bytes on the current card.
fn free_bytes() -> usize {
    let mut free = 0;
    ok!(cuMemGetInfo_v2(&raw mut free, null_mut()));
    free
}

/// The in-process engine's ledger, now.
fn report() -> Option<String> {
    let driver = crate::process::driver().expect("initialised");
    driver.engine.report(driver.clock.now())
}

/// A function of a module that can be launched.
fn kernel(name: &std::ffi::CStr) -> CUfunction {
    let (mut module, mut function) = (null_mut(), null_mut());
    ok!(cuModuleLoadData(&raw mut module, c".version 8.0\n.target sm_80".as_ptr().cast()));
    ok!(cuModuleGetFunction(&raw mut function, module, name.as_ptr()));
    function
}

/// Launches one block of a function.
fn launch(function: CUfunction, stream: CUstream) {
    launch_blocks(function, 1, stream);
}

/// Launches so many blocks of a function.
fn launch_blocks(function: CUfunction, blocks: u32, stream: CUstream) {
    ok!(cuLaunchKernel(function, blocks, 1, 1, 32, 1, 1, 0, stream, null_mut(), null_mut()));
}
