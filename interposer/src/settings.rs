//! The one place that reads the environment, at the first CUDA or NVML call.
//!
//! | variable | meaning |
//! |---|---|
//! | `HAMI_SLICE` | slice directories, outermost first, separated by colons |
//! | `CUDA_DEVICE_MEMORY_LIMIT`, `…_<i>` | HAMi's memory limit, for every card or the i-th |
//! | `CUDA_DEVICE_SM_LIMIT`, `…_<i>` | HAMi's compute share in percent; 0 or 100 is no limit |
//! | `GPU_CORE_UTILIZATION_POLICY` | whether that share holds: `force` always, `disable` never, else as a weight |
//! | `CUDA_DEVICE_MEMORY_SHARED_CACHE` | without a limits page: which processes share a limit |
//! | `CUDA_VISIBLE_DEVICES` | without a limits page: which card the i of `…_<i>` is |
//! | `XDG_RUNTIME_DIR` | without a limits page: where the account lies |

#![allow(clippy::disallowed_methods)] // the environment is read here, and nowhere else

use std::env::VarError;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use hami_limits::{InvalidValue, Mode, NO_LIMIT, Source, parse_memory, parse_share};

/// Cards that a HAMi variable can name by index.
const MAX_INDEX: usize = 16;

/// What the environment says.
pub(crate) struct Settings {
    /// Slice directories, outermost first.
    pub(crate) slices: Vec<PathBuf>,
    /// HAMi's memory limits, if any is set.
    pub(crate) memory: Option<MemoryLimits>,
    /// HAMi's compute shares, if any is set and holds.
    pub(crate) shares: Option<Shares>,
    /// The file that HAMi's processes would share.
    pub(crate) shared_cache: Option<PathBuf>,
    /// The directory of this user's run-time files, if the session has one.
    pub(crate) runtime: Option<PathBuf>,
}

/// HAMi's memory limits in bytes; [`NO_LIMIT`] where there is none.
pub(crate) struct MemoryLimits {
    every: u64,
    by_index: [Option<u64>; MAX_INDEX],
}

impl MemoryLimits {
    /// Whether any card has a limit.
    pub(crate) fn any(&self) -> bool {
        self.of(None) != NO_LIMIT
    }

    /// The limit of the i-th card. Where the index cannot be known, the lowest of all.
    pub(crate) fn of(&self, index: Option<usize>) -> u64 {
        match index {
            Some(index) => self.by_index.get(index).copied().flatten().unwrap_or(self.every),
            None => self.by_index.iter().flatten().copied().fold(self.every, u64::min),
        }
    }
}

/// HAMi's compute shares in percent; 0 or 100 where there is none.
pub(crate) struct Shares {
    every: u32,
    by_index: [Option<u32>; MAX_INDEX],
    mode: Mode,
}

/// What the environment says of one card's compute share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EnvironmentShare {
    /// Percent, 1 to 99.
    pub(crate) share: u32,
    pub(crate) mode: Mode,
}

impl Shares {
    /// Whether any card has one.
    pub(crate) fn any(&self) -> bool {
        self.of(None).is_some()
    }

    /// The share of the i-th card. Where the index cannot be known, the lowest of all.
    pub(crate) fn of(&self, index: Option<usize>) -> Option<EnvironmentShare> {
        let limits = |share: &u32| (1..100).contains(share);
        let share = match index {
            Some(index) => Some(self.by_index.get(index).copied().flatten().unwrap_or(self.every)),
            None => {
                self.by_index.iter().flatten().copied().chain([self.every]).filter(limits).min()
            }
        };
        share.filter(limits).map(|share| EnvironmentShare { share, mode: self.mode })
    }
}

impl Settings {
    pub(crate) fn read() -> Result<Self, InvalidValue> {
        Ok(Self {
            slices: std::env::var_os("HAMI_SLICE")
                .map(|list| directories(&list))
                .unwrap_or_default(),
            memory: memory_limits()?,
            shares: shares()?,
            shared_cache: path("CUDA_DEVICE_MEMORY_SHARED_CACHE")
                .map(|path| std::path::absolute(&path).unwrap_or(path)),
            // As its specification says, a relative one is to be ignored.
            runtime: path("XDG_RUNTIME_DIR").filter(|path| path.is_absolute()),
        })
    }
}

fn directories(list: &OsStr) -> Vec<PathBuf> {
    let parts = list.as_bytes().split(|byte| *byte == b':').filter(|part| !part.is_empty());
    parts.map(|part| PathBuf::from(OsStr::from_bytes(part))).collect()
}

/// `CUDA_VISIBLE_DEVICES` as it stands now, entry by entry. The driver reads it in cuInit.
pub(crate) fn visible_devices() -> Option<Vec<String>> {
    let list = std::env::var_os("CUDA_VISIBLE_DEVICES")?;
    Some(list.to_string_lossy().split(',').map(|entry| entry.trim().to_owned()).collect())
}

fn path(field: &str) -> Option<PathBuf> {
    std::env::var_os(field).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn memory_limits() -> Result<Option<MemoryLimits>, InvalidValue> {
    let mut any = false;
    let mut limit = |field: &str| -> Result<Option<u64>, InvalidValue> {
        let Some(value) = text(field)? else { return Ok(None) };
        any = true;
        Ok(Some(parse_memory(&value, Source::HamiEnv, field)?.unwrap_or(NO_LIMIT)))
    };
    let every = limit("CUDA_DEVICE_MEMORY_LIMIT")?.unwrap_or(NO_LIMIT);
    let mut by_index = [None; MAX_INDEX];
    for (index, place) in by_index.iter_mut().enumerate() {
        *place = limit(&format!("CUDA_DEVICE_MEMORY_LIMIT_{index}"))?;
    }
    Ok(any.then_some(MemoryLimits { every, by_index }))
}

/// The variables' shares. A share as a weight holds the slice back only where somebody else wants the
/// card, which a coordinator knows.
fn shares() -> Result<Option<Shares>, InvalidValue> {
    let mode = match text("GPU_CORE_UTILIZATION_POLICY")?.as_deref() {
        Some("force" | "FORCE") => Some(Mode::Hard),
        Some("disable" | "DISABLE") => None,
        _ => Some(Mode::Soft),
    };
    let share = |field: &str| -> Result<Option<u32>, InvalidValue> {
        let Some(value) = text(field)? else { return Ok(None) };
        Ok(Some(parse_share(&value, Source::HamiEnv, field)?.unwrap_or(0)))
    };
    // Bad values are said also where the policy is that none holds.
    let every = share("CUDA_DEVICE_SM_LIMIT")?;
    let mut by_index = [None; MAX_INDEX];
    for (index, place) in by_index.iter_mut().enumerate() {
        *place = share(&format!("CUDA_DEVICE_SM_LIMIT_{index}"))?;
    }
    Ok(mode.map(|mode| Shares { every: every.unwrap_or(0), by_index, mode }))
}

fn text(field: &str) -> Result<Option<String>, InvalidValue> {
    match std::env::var(field) {
        Ok(value) => Ok(Some(value)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(value)) => {
            Err(InvalidValue::new(field, &value.to_string_lossy(), "use UTF-8 text"))
        }
    }
}
