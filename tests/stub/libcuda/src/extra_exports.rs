//! The exports beside those of cuda.h.
//!
//! A driver also exports the profiler's functions and those that share memory with OpenGL, EGL and
//! VDPAU. There is no profiler and no graphics: starting and stopping the profiler succeeds, the
//! other functions are not supported. They read no argument, so they declare none.
//!
//! Three more exports are the stub's own: tests and the stub's NVML read the in-process engine
//! through them, and a program's host code takes part in collectives.

use crate::context::current;
use crate::launch;
use crate::process::driver;
use core::ffi::c_char;
use driver_sys::cuda::{CUDA_ERROR_NOT_SUPPORTED, CUDA_SUCCESS, CUfunction, CUresult};

/// The result of the function of this name.
fn result(name: &str) -> CUresult {
    match current() {
        Ok(_) if name.starts_with("cuProfilerSt") => CUDA_SUCCESS,
        Ok(_) => CUDA_ERROR_NOT_SUPPORTED,
        Err(error) => error,
    }
}

macro_rules! exports {
    ($($name:ident)*) => { $(
        #[doc = concat!("`", stringify!($name), "`")]
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub extern "C" fn $name() -> CUresult {
            result(stringify!($name))
        }
    )* };
}

stub_engine::each_interop_fn!(exports);

/// Writes the ledger as JSON and a NUL into `buffer`. Returns the bytes needed, NUL included; 0
/// before `cuInit`, and where the engine is a server, whose control socket has the ledger.
///
/// # Safety
/// `buffer` is NULL or has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stub_ledger_json(buffer: *mut c_char, size: usize) -> usize {
    let Some(report) = driver().ok().and_then(|driver| driver.engine.report(driver.clock.now()))
    else {
        return 0;
    };
    if !buffer.is_null() && size > report.len() {
        // SAFETY: the caller's buffer has `size` bytes, which is more than are written.
        unsafe {
            core::ptr::copy_nonoverlapping(report.as_ptr(), buffer.cast(), report.len());
            buffer.add(report.len()).write(0);
        }
    }
    report.len() + 1
}

/// Bytes in use of one card of the in-process engine, its engine time in nanoseconds, and how busy
/// it was lately in percent; `false` before `cuInit`.
///
/// # Safety
/// All pointers are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stub_card_usage(
    card: usize,
    used: *mut u64,
    busy_ns: *mut u64,
    percent: *mut u32,
) -> bool {
    let Ok(driver) = driver() else { return false };
    let now = driver.clock.now();
    match driver.engine.cards().get(card).and_then(|_| driver.engine.usage(card, now)) {
        Some(usage) => {
            // SAFETY: by this function's contract.
            unsafe {
                used.write(usage.used);
                busy_ns.write(usage.busy_ns);
                percent.write(usage.percent);
            }
            true
        }
        None => false,
    }
}

/// The host arrives at a collective of streams (`…_meets2_streams`), as if it were one of them. This
/// is how a kernel spins until the host sets a flag: no launch and no other call of the driver, so a
/// library between program and driver does not notice it. It does not wait.
#[unsafe(no_mangle)]
pub extern "C" fn stub_arrive(function: CUfunction) -> CUresult {
    match launch::arrive(function) {
        Ok(()) => CUDA_SUCCESS,
        Err(error) => error,
    }
}
