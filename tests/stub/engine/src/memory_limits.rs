//! The driver's own memory limits for cgroups, which `nvmlDeviceSetMemoryLimits_v1` sets.
//!
//! The kernel enforces them for every program of a cgroup, with any libraries. It has two back ends:
//!
//! | | [`Backend::Dmem`] | [`Backend::Misc`] |
//! |---|---|---|
//! | charged | the client's cgroup of now, and all above it | of the cgroup that the client had when it began and those above it, the nearest with a limit |
//! | memory from before the limit | counts | never counts |
//! | a limit below the use | is accepted | is refused |
//! | a removed cgroup | has no limit any more | keeps it for the next one of its name |
//!
//! What counts is [`Holding::bytes`](crate::ledger::Holding::bytes) on whole cards. This module does
//! no I/O: the server says in which cgroup a client is.

use crate::ledger::ClientId;
pub use driver_sys::nvml::NVML_ERROR_NOT_FOUND as NO_CGROUP;
use driver_sys::nvml::{NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_NOT_SUPPORTED, nvmlReturn_t};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// `NVML_DEVICE_MEMORY_LIMIT_MAX`, a macro in the header: no limit.
const MAX: u64 = u64::MAX;

/// What enforces the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// The cgroup controller `dmem`, of Linux 6.14 and newer.
    Dmem,
    /// The driver itself, on older kernels.
    Misc,
}

/// The limits of a cgroup on a card, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// The bytes that others should not evict. The stub does not use it.
    pub soft: u64,
    /// The most bytes.
    pub hard: u64,
}

/// A call of NVML.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Call {
    /// The full path of the cgroup's directory.
    pub cgroup: PathBuf,
    /// The limits to set; `None` asks for them.
    pub set: Option<Limits>,
}

/// The limits of a cgroup, and the bytes that count for its hard limit; or NVML's error.
pub type Reply = Result<(Limits, u64), nvmlReturn_t>;

/// An increase of a client's memory.
#[derive(Clone, Debug)]
struct Charge {
    bytes: u64,
    /// Dmem: the client's cgroup. Misc: the one whose limit counts; `None`: no limit does.
    cgroup: Option<PathBuf>,
}

/// The limits on all cards, and what counts for them.
#[derive(Clone, Debug, Default)]
pub struct MemoryLimits {
    /// `None`: the driver has no limits.
    pub backend: Option<Backend>,
    limits: BTreeMap<(usize, PathBuf), Limits>,
    cgroups: BTreeMap<ClientId, PathBuf>,
    charges: BTreeMap<(usize, ClientId), Vec<Charge>>,
}

impl MemoryLimits {
    /// Puts a client into a cgroup.
    pub fn enter(&mut self, client: ClientId, cgroup: PathBuf) {
        self.cgroups.insert(client, cgroup);
    }

    /// With dmem, the limits of cgroups that do not exist any more end.
    pub fn forget(&mut self, exists: impl Fn(&Path) -> bool) {
        if self.backend == Some(Backend::Dmem) {
            self.limits.retain(|(_, cgroup), _| exists(cgroup));
        }
    }

    /// The limits of all cgroups, by card, as JSON.
    pub fn report(&self) -> serde_json::Value {
        let row = |(of, limits): (&(usize, PathBuf), &Limits)| {
            let (card, cgroup) = of;
            serde_json::json!({"card": card, "cgroup": cgroup, "hard": limits.hard})
        };
        self.limits.iter().map(row).collect()
    }

    /// The cgroups whose limits count for the next charge of a client.
    fn limiting(&self, card: usize, client: ClientId) -> impl Iterator<Item = (&Path, u64)> {
        let most = if self.backend == Some(Backend::Misc) { 1 } else { usize::MAX };
        let all = self.cgroups.get(&client).into_iter().flat_map(|cgroup| cgroup.ancestors());
        let limited = all.filter_map(move |cgroup| {
            Some((cgroup, self.limits.get(&(card, cgroup.to_owned()))?.hard))
        });
        limited.take(most)
    }

    /// Bytes of a card that the limits leave to a client.
    pub fn left(&self, card: usize, client: ClientId) -> u64 {
        let left = |(cgroup, hard): (&Path, u64)| hard.saturating_sub(self.used(card, cgroup));
        self.limiting(card, client).map(left).min().unwrap_or(MAX)
    }

    /// Bytes of a card that count for the limit of a cgroup.
    fn used(&self, card: usize, cgroup: &Path) -> u64 {
        let counts = |charged: &Path| match self.backend {
            Some(Backend::Dmem) => charged.starts_with(cgroup),
            _ => charged == cgroup,
        };
        let of_card = self.charges.iter().filter(|((other, _), _)| *other == card);
        let charges = of_card.flat_map(|(_, charges)| charges);
        let counted = charges.filter(|charge| charge.cgroup.as_deref().is_some_and(counts));
        counted.map(|charge| charge.bytes).sum()
    }

    /// The memory of a client on a card has changed.
    pub fn change(&mut self, card: usize, client: ClientId, before: u64, now: u64) {
        let limiting = match self.backend {
            Some(Backend::Dmem) => self.cgroups.get(&client).cloned(),
            _ => self.limiting(card, client).next().map(|(cgroup, _)| cgroup.to_owned()),
        };
        let charges = self.charges.entry((card, client)).or_default();
        if now > before {
            charges.push(Charge { bytes: now - before, cgroup: limiting });
        }
        let mut less = before.saturating_sub(now);
        // A release does not say of which charge it is: the last one of its size, else the last.
        if let Some(at) = charges.iter().rposition(|charge| charge.bytes == less) {
            charges.remove(at);
            less = 0;
        }
        while let Some(charge) = charges.last_mut().filter(|_| less > 0) {
            let part = charge.bytes.min(less);
            charge.bytes -= part;
            less -= part;
            charges.pop_if(|charge| charge.bytes == 0);
        }
    }

    /// The limits of a cgroup on a card, after they were set if the call says so.
    pub fn call(&mut self, card: usize, call: Call) -> Reply {
        let backend = self.backend.ok_or(NVML_ERROR_NOT_SUPPORTED)?;
        let used = self.used(card, &call.cgroup);
        let unlimited = Limits { soft: 0, hard: MAX };
        let key = (card, call.cgroup);
        match call.set {
            None => {
                let found = self.limits.get(&key).copied();
                let none = found.is_none() && backend == Backend::Misc;
                if none {
                    Err(NVML_ERROR_NOT_SUPPORTED)
                } else {
                    Ok((found.unwrap_or(unlimited), used))
                }
            }
            Some(limits) if limits == unlimited => {
                self.limits.remove(&key);
                if backend == Backend::Misc {
                    let charges = self.charges.iter_mut().filter(|((other, _), _)| *other == card);
                    let of = charges.flat_map(|(_, charges)| charges);
                    of.filter(|it| it.cgroup.as_ref() == Some(&key.1))
                        .for_each(|it| it.cgroup = None);
                }
                Ok((unlimited, used))
            }
            Some(limits) => {
                let is_below = backend == Backend::Misc && limits.hard < used;
                if is_below || limits.soft > limits.hard {
                    return Err(NVML_ERROR_INVALID_ARGUMENT);
                }
                self.limits.insert(key, limits);
                Ok((limits, used))
            }
        }
    }
}
