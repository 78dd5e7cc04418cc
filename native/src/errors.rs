//! Rust errors as Python exceptions. A failed system call becomes an `OSError` with the file's
//! name; every other error has an exception of its own in `hami_py.errors`.

use hami_limits::{FileError, InvalidValue};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

mod python {
    pyo3::import_exception!(hami_py.errors, InvalidValue);
    pyo3::import_exception!(hami_py.errors, DamagedFile);
    pyo3::import_exception!(hami_py.errors, Unfit);
}

pub fn invalid(error: InvalidValue) -> PyErr {
    python::InvalidValue::new_err((error.field, error.value, error.fix))
}

/// As [`invalid`], with the caller's own strings: they may hold bytes that are not UTF-8.
pub fn invalid_value(field: &Bound<'_, PyString>, value: &Bound<'_, PyString>, fix: &str) -> PyErr {
    let (field, value) = (field.clone().unbind(), value.clone().unbind());
    python::InvalidValue::new_err((field, value, fix.to_owned()))
}

pub fn unfit(node: &str, reason: &str) -> PyErr {
    python::Unfit::new_err((node.to_owned(), reason.to_owned()))
}

pub fn file(error: FileError) -> PyErr {
    match error {
        FileError::Io { path, source, .. } => os(&path, &source),
        // The exception itself says how to fix it.
        FileError::Damaged { what, path, reason } => {
            python::DamagedFile::new_err(format!("{what} {}: {reason}", path.display()))
        }
        FileError::TooLarge { .. } | FileError::Full { .. } => {
            PyOSError::new_err(error.to_string())
        }
        FileError::Invalid(error) => invalid(error),
    }
}

/// The result of work that reads an account. The programs of the slice can write anything into it: if
/// that makes the work panic, the account is damaged.
pub fn contained<T>(path: &Path, work: impl FnOnce() -> Result<T, FileError>) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(work)).map_or_else(
        |_| {
            let text = format!("account {}: a number in it is false", path.display());
            Err(python::DamagedFile::new_err(text))
        },
        |read| read.map_err(file),
    )
}

pub fn damaged_slice(directory: &Path, damage: &str) -> PyErr {
    python::DamagedFile::new_err(format!("slice {}: {damage}", directory.display()))
}

/// Python selects the subclass (`FileNotFoundError`, …) by the number.
pub fn os(path: &Path, error: &io::Error) -> PyErr {
    match error.raw_os_error() {
        Some(number) => {
            let text = io::Error::from_raw_os_error(number).to_string();
            // Rust appends the number to the text; Python has a field for it.
            let text = text.split(" (os error").next().unwrap_or_default().to_owned();
            PyOSError::new_err((number, text, path.to_owned()))
        }
        None => PyOSError::new_err((None::<i32>, error.to_string(), path.to_owned())),
    }
}
