//! What happens around every exported function: counting, planned slowness, and no panic gets out.

use crate::engine;
use driver_sys::nvml::{NVML_ERROR_UNKNOWN, nvmlReturn_t};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// What a function gives when it cannot give its answer.
pub trait Failing {
    fn failed() -> Self;
}

impl Failing for nvmlReturn_t {
    fn failed() -> Self {
        NVML_ERROR_UNKNOWN
    }
}

impl Failing for *const core::ffi::c_char {
    fn failed() -> Self {
        c"Unknown Error".as_ptr()
    }
}

/// Runs the body of symbol number `symbol`. It is counted afterwards, so that `nvmlInit`, which
/// makes the counters, is counted too.
pub fn enter<R: Failing>(symbol: usize, body: impl FnOnce() -> R) -> R {
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| R::failed());
    if let Some(watch) = engine::peek() {
        let counters = watch.counters();
        counters.calls[symbol].fetch_add(1, Relaxed);
        let delay = counters.delays_us[symbol].load(Relaxed);
        if delay > 0 {
            std::thread::sleep(Duration::from_micros(u64::from(delay)));
        }
    }
    result
}
