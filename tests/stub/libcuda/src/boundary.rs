//! What happens around every exported function: counting, planned slowness, and no panic gets out.
//!
//! Benchmarks subtract this library's time from a measurement of nanoseconds, so when nobody counts
//! the price is one load and a branch.

use crate::capture;
use crate::process::{self, Wiped};
use driver_sys::cuda::{CUDA_ERROR_UNKNOWN, CUresult};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::Duration;
use stub_engine::settings::Settings;

const UNDECIDED: u8 = 0;
const QUIET: u8 = 1;
const COUNTING: u8 = 2;

static MODE: AtomicU8 = AtomicU8::new(UNDECIDED);

thread_local! {
    static PER_THREAD_DEFAULT: Cell<bool> = const { Cell::new(false) };
}

/// Runs the body of symbol number `symbol`. `per_thread`: its NULL stream is the thread's own.
/// `unsafe_in_capture`: it is refused while the modes of captures say so.
#[inline]
pub fn enter(
    symbol: usize,
    per_thread: bool,
    unsafe_in_capture: bool,
    body: impl FnOnce() -> CUresult,
) -> CUresult {
    if MODE.load(Relaxed) != QUIET {
        observe(symbol);
    }
    if unsafe_in_capture && let Err(error) = capture::hooks::check_safe() {
        return error;
    }
    if per_thread {
        PER_THREAD_DEFAULT.set(true);
    }
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or(CUDA_ERROR_UNKNOWN);
    if per_thread {
        PER_THREAD_DEFAULT.set(false);
    }
    result
}

/// Whether the NULL stream of the function that runs now is the thread's own.
pub fn is_per_thread_default() -> bool {
    PER_THREAD_DEFAULT.get()
}

/// Whether calls and kernels are counted.
#[inline]
pub fn is_counting() -> bool {
    MODE.load(Relaxed) == COUNTING
}

#[cold]
fn observe(symbol: usize) {
    if MODE.load(Relaxed) == UNDECIDED {
        let settings = Settings::from_environment();
        let counts = settings.count || settings.socket.is_some();
        MODE.store(if counts { COUNTING } else { QUIET }, Relaxed);
        if !counts {
            return;
        }
    }
    let Some(wiped) = process::wiped() else { return };
    let counters = Wiped::counters(wiped);
    counters.calls[symbol].fetch_add(1, Relaxed);
    let delay = counters.delays_us[symbol].load(Relaxed);
    if delay > 0 {
        std::thread::sleep(Duration::from_micros(u64::from(delay)));
    }
}
