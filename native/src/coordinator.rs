//! The coordinator, run by a Python process that does nothing else.

use crate::errors;
use hami_limits::InvalidValue;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::time::Duration;

/// Hands out turns on the cards to the slices of a runtime directory, on the calling thread, until
/// there has been no slice for so many seconds. One process at a time may do this.
///
/// No Python runs meanwhile, signal handlers included: end it with a signal that has none.
#[pyfunction]
pub fn coordinate(py: Python<'_>, runtime: PathBuf, linger_seconds: f64) -> PyResult<()> {
    let linger = Duration::try_from_secs_f64(linger_seconds).map_err(|_| {
        let fix = "give a number of seconds, 0 or more";
        errors::invalid(InvalidValue::new("linger_seconds", &linger_seconds.to_string(), fix))
    })?;
    py.detach(|| hami_coordinator::coordinate(&runtime, linger))
        .map_err(|error| errors::os(&runtime, &error))
}
