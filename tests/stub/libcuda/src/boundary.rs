//! The code around every exported function: it counts calls, delays them if a test has ordered
//! that, and stops panics.
//!
//! Benchmarks subtract this library's time from measurements of nanoseconds, so counting costs one
//! load and one branch where it is off.

use crate::process::{self, Wiped};
use driver_sys::cuda::CUDA_ERROR_INVALID_VALUE as NULL;
use driver_sys::cuda::{CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_UNKNOWN, CUresult};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
pub use stub_engine::arguments::Host;
use stub_engine::settings::Settings;
use stub_engine::{arguments, boundary};

/// The wrappers of C arguments, with the driver's result for a NULL that is not allowed.
pub type Out<T> = arguments::Out<T, NULL>;
pub type OutWide = arguments::OutWide<NULL>;
pub type In<T> = arguments::In<T, NULL>;
pub type Text = arguments::Text<NULL>;

const UNDECIDED: u8 = 0;
const QUIET: u8 = 1;
const COUNTING: u8 = 2;

static MODE: AtomicU8 = AtomicU8::new(UNDECIDED);

thread_local! {
    static PER_THREAD_DEFAULT: Cell<bool> = const { Cell::new(false) };
}

/// The properties of an exported function that follow from its name.
#[derive(Clone, Copy)]
pub struct Kind {
    /// Whether its NULL stream is the per-thread default stream.
    is_per_thread: bool,
}

/// The kind of the function of this name.
pub const fn kind(name: &str) -> Kind {
    let name = name.as_bytes();
    let is_per_thread = matches!(name, [.., b'_', b'p', b't', b's' | b'd', b'z' | b's']);
    Kind { is_per_thread }
}

/// The result of a function without a row.
pub fn unsupported() -> CUresult {
    process::driver().err().unwrap_or(CUDA_ERROR_NOT_SUPPORTED)
}

/// Runs the body of symbol number `symbol`.
#[inline]
pub fn enter(symbol: usize, kind: Kind, body: impl FnOnce() -> CUresult) -> CUresult {
    if MODE.load(Relaxed) != QUIET {
        observe(symbol);
    }
    if kind.is_per_thread {
        PER_THREAD_DEFAULT.set(true);
    }
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or(CUDA_ERROR_UNKNOWN);
    if kind.is_per_thread {
        PER_THREAD_DEFAULT.set(false);
    }
    result
}

/// Whether the NULL stream of the function that runs now is the per-thread default stream.
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
    boundary::count(Wiped::counters(wiped), symbol);
}
