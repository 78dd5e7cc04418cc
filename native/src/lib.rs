//! `hami_py._native`: the parts of the Rust core that Python uses.
//!
//! Each function or class here wraps one of a crate, without a policy of its own. It converts the
//! arguments, releases the interpreter's lock around everything that can wait for a file, and turns
//! errors into the exceptions of `hami_py.errors`. The types for Python stand in
//! `hami_py/_native.pyi`; the docstrings in both places say the same.
//!
//! | module | wraps |
//! |---|---|
//! | `values` | sizes, shares and HAMi's variables (`hami-limits`) |
//! | `pages` | the limits page and the grants page (`hami-limits`) |
//! | `account` | the account (`hami-account`); measuring a slice (`hami-coordinator`) |
//! | `allocator`, `extender`, `metrics` | the cluster allocator (`hami-allocator`) |
//! | `coordinate` | the coordinator (`hami-coordinator`) |

#![allow(clippy::needless_pass_by_value, reason = "what comes from Python comes by value")]
#![allow(clippy::doc_markdown, reason = "doc comments on what Python sees are its docstrings")]

mod account;
mod allocator;
mod errors;
mod extender;
mod metrics;
mod pages;
mod values;

use hami_limits::InvalidValue;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::time::Duration;

/// Leases the cards to the slices of a runtime directory, on the calling thread, until
/// there has been no slice for this many seconds. Only one process at a time may do this.
///
/// No Python code runs in the meantime, signal handlers included: end it with a signal that has
/// none. With the number of the parent process, it is killed when the thread that started it ends.
#[pyfunction]
#[pyo3(signature = (runtime, linger_seconds, *, parent=None))]
pub fn coordinate(
    py: Python<'_>,
    runtime: PathBuf,
    linger_seconds: f64,
    parent: Option<u32>,
) -> PyResult<()> {
    let linger = Duration::try_from_secs_f64(linger_seconds).map_err(|_| {
        let fix = "write a number of seconds, 0 or more";
        errors::invalid(InvalidValue::new("linger_seconds", &linger_seconds.to_string(), fix))
    })?;
    if let Some(parent) = parent {
        hami_coordinator::end_with_parent(parent).map_err(|error| errors::os(&runtime, &error))?;
    }
    py.detach(|| hami_coordinator::coordinate(&runtime, linger))
        .map_err(|error| errors::os(&runtime, &error))
}

/// Nanoseconds of the clock of the times in the files, which all processes of a machine share.
#[pyfunction]
pub fn clock_ns() -> u64 {
    hami_limits::clock::monotonic_ns()
}

/// The Rust core: quantities, the files of a slice, the coordinator, and the cluster allocator.
#[pymodule]
mod _native {
    use hami_limits::variables::{memory_names, share_names};
    use pyo3::prelude::*;
    use pyo3::types::PyTuple;

    #[pymodule_export]
    use crate::account::{Account, AccountSnapshot, MemoryMeter, ProcessUse, runtime_directory};
    #[pymodule_export]
    use crate::allocator::Allocator;
    #[pymodule_export]
    use crate::pages::{GrantsPage, LimitRow, LimitsPage, same_card};
    #[pymodule_export]
    use crate::values::{HamiLimit, HamiVariables, format_memory, parse_memory, parse_share};
    #[pymodule_export]
    use crate::{clock_ns, coordinate};

    /// The most cards that a slice can have: the rows of its limits page.
    #[pymodule_export]
    const MAX_CARDS: usize = hami_limits::page::MAX_ROWS;

    /// The version of the package, which is that of the workspace in Cargo.toml.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    /// The format of a slice's files that this version reads and writes.
    #[pymodule_export]
    const FORMAT: u32 = hami_limits::FORMAT;

    /// The bytes of every account.
    #[pymodule_export]
    const ACCOUNT_SIZE: usize = hami_account::SIZE;

    #[pymodule_init]
    fn add_names(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let py = module.py();
        module.add("HAMI_MEMORY_LIMITS", PyTuple::new(py, memory_names().collect::<Vec<_>>())?)?;
        module.add("HAMI_SHARE_LIMITS", PyTuple::new(py, share_names().collect::<Vec<_>>())?)
    }
}
