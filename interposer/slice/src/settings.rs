//! The only module that reads the environment. It does so at the first CUDA or NVML call.
//!
//! A program that has more rights than the user who starts it (setuid, file capabilities) has no
//! variables here: that user could name the files that the library creates. The C library's
//! `secure_getenv` has the same rule.
//!
//! | variable | meaning |
//! |---|---|
//! | `CUDA_DEVICE_MEMORY_LIMIT`, `CUDA_DEVICE_SM_LIMIT`, … | HAMi's limits: `hami_limits::variables` |
//! | `CUDA_DEVICE_MEMORY_SHARED_CACHE` | without a limits page: which processes share a limit |
//! | `CUDA_VISIBLE_DEVICES` | without a limits page: which card the i of `…_<i>` is |
//! | `HAMI_RUNTIME_DIR` | without a limits page: where the account is |

#![allow(clippy::disallowed_methods)] // no other module reads the environment

use std::ffi::OsString;
use std::path::PathBuf;

use hami_limits::{InvalidValue, Variables};

/// The settings in the environment.
pub(crate) struct Settings {
    /// The limits that HAMi's variables set.
    pub(crate) variables: Box<Variables>,
    /// The file that HAMi's processes share.
    pub(crate) shared_cache: Option<PathBuf>,
    /// Where the slices are to be.
    pub(crate) runtime: Option<PathBuf>,
}

impl Settings {
    #[inline(never)] // or the caller's stack frame would have room for the variables
    pub(crate) fn read() -> Result<Self, InvalidValue> {
        Ok(Self {
            variables: Box::new(Variables::parse(variable)?),
            shared_cache: path("CUDA_DEVICE_MEMORY_SHARED_CACHE")
                .map(|path| std::path::absolute(&path).unwrap_or(path)),
            // A relative path would be another one in each working directory.
            runtime: path("HAMI_RUNTIME_DIR").filter(|path| path.is_absolute()),
        })
    }
}

/// The entries of `CUDA_VISIBLE_DEVICES` now. The driver reads the variable in cuInit.
pub(crate) fn visible_devices() -> Option<Vec<String>> {
    let list = variable("CUDA_VISIBLE_DEVICES")?;
    Some(list.to_string_lossy().split(',').map(|entry| entry.trim().to_owned()).collect())
}

fn path(field: &str) -> Option<PathBuf> {
    variable(field).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn variable(name: &str) -> Option<OsString> {
    // SAFETY: getauxval reads what the kernel told the process at its start.
    let is_privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    if is_privileged { None } else { std::env::var_os(name) }
}
