//! Exports that no driver has: how tests and the stub's own NVML look inside the in-process engine.

use crate::process::driver;
use core::ffi::c_char;

/// Writes the ledger as JSON and a NUL into `buffer`. Returns the bytes needed, NUL included; 0
/// before `cuInit`, and when the engine is a server, which is asked over its control socket.
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

/// Bytes in use of one card of the in-process engine, its engine time in nanoseconds, and how busy it was
/// of late in percent; `false` before `cuInit`.
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
