//! A sweep: the list of the processes whose memory the driver still holds.
//!
//! The coordinator does not call NVML. The *sweeper* (`hami_py/gpu/sweep.py`) does, ten times a
//! second, and replaces the file `<runtime>/sweep` by rename:
//!
//! ```json
//! {"version": 1, "started_at": 81234567890123, "processes": [
//!   {"pid": 4711, "pid_in_namespace": 7, "namespace": {"device": 4, "inode": 4026532178},
//!    "start_time": 812345, "running": true,
//!    "memory": {"GPU-e4d76bdb-…": 433061888}}]}
//! ```
//!
//! `started_at` is the time before the sweep's first call to NVML, in ns of `CLOCK_MONOTONIC`.
//! There is an entry for each process that NVML lists on any card; `pid` is its PID on the host.
//! The fields `pid_in_namespace`, `namespace` and `start_time` were read from `/proc` while the
//! process lived. For a process that the sweeper has not seen alive they are 0, null and null;
//! `namespace` is also null if the sweeper has no right to read it.
//! `running` is false for a process that has died, also while it is a zombie. `memory` has the bytes
//! that the driver holds for the process, by card; it is left out if NVML does not report them.

use crate::departures::Life;
use crate::wait::now;
use hami_account::{Account, ProcessIdentity};
use hami_limits::grants::SWEEP_SILENCE_NS;
use hami_limits::same_card;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The largest file that is read: 16,384 processes of 256 bytes.
const MAX_BYTES: u64 = 4 << 20;
const GRACE_NS: u64 = Account::GRACE.as_nanos() as u64;

#[derive(Deserialize)]
struct Document {
    version: u32,
    started_at: u64,
    processes: Vec<Process>,
}

#[derive(Deserialize)]
struct Process {
    pid: u32,
    pid_in_namespace: u32,
    namespace: Option<Namespace>,
    start_time: Option<u64>,
    running: bool,
    #[serde(default)]
    memory: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct Namespace {
    inode: u64,
}

/// A complete sweep.
pub(crate) struct Sweep {
    /// The time before the sweep's first call to NVML, in ns of `CLOCK_MONOTONIC`.
    pub started_at: u64,
    listed: Vec<Listed>,
}

/// A process that NVML lists.
struct Listed {
    pid: u32,
    /// `None` if the sweeper has not seen it alive.
    identity: Option<ProcessIdentity>,
    running: bool,
    /// The bytes that the driver holds for it, by card.
    memory: BTreeMap<String, u64>,
    /// When this coordinator first read an entry for this PID that has no identity and does not
    /// run. Used only for such entries.
    unknown_since: u64,
}

impl Sweep {
    /// A sweep that lists no process.
    pub fn empty(started_at: u64) -> Self {
        Self { started_at, listed: Vec::new() }
    }

    /// Whether the sweep is recent enough to show that the driver still holds memory.
    pub fn is_fresh(&self, now: u64) -> bool {
        now.saturating_sub(self.started_at) <= SWEEP_SILENCE_NS
    }

    /// Whether this sweep shows that the driver has freed the memory of a process.
    ///
    /// A sweep that started before the death was noticed cannot show it. If the process is on the
    /// list but runs, it has called exec: the new program may use a card, so the list does not show
    /// when the memory of the old program is free. Then the grace period decides.
    pub fn shows_freed(&self, life: &Life, now: u64) -> bool {
        let Some(dead_since) = life.dead_since else { return false };
        if self.started_at <= dead_since {
            return false;
        }
        let running = |listed: &Listed| listed.running;
        let is_it = |listed: &&Listed| listed.identity.is_some_and(|it| is_same(&life.process, it));
        let may_be_it = |listed: &&Listed| {
            listed.identity.is_none() && (listed.running || listed.unknown_since >= life.alive_at)
        };
        let all_run = |all: bool, one: bool| all && one;
        let known = self.listed.iter().filter(is_it).map(running).reduce(all_run);
        let unknown = || self.listed.iter().filter(may_be_it).map(running).reduce(all_run);
        match known.or_else(unknown) {
            None => true,
            Some(true) => now >= dead_since.saturating_add(GRACE_NS),
            Some(false) => false,
        }
    }

    /// The bytes that the driver holds for a running process on a card; `None` if the sweep does not
    /// show it, or shows several processes that may be this one.
    pub fn memory_of(&self, process: &ProcessIdentity, uuid: &str) -> Option<u64> {
        let is_it = |listed: &&Listed| {
            listed.running && listed.identity.is_some_and(|it| is_same(process, it))
        };
        let mut found = self.listed.iter().filter(is_it);
        let (Some(listed), None) = (found.next(), found.next()) else { return None };
        let of_card = listed.memory.iter().find(|(card, _)| same_card(card, uuid));
        of_card.map(|(_, bytes)| *bytes)
    }

    /// Reads the text of the file; `None` for a text that no sweeper writes. `before` is the sweep
    /// that was read last.
    pub fn parse(text: &[u8], now: u64, before: Option<&Self>) -> Option<Self> {
        let found: Document = serde_json::from_slice(text).ok()?;
        if found.version != 1 || found.started_at > now {
            return None;
        }
        let unknown_since = |pid: u32| {
            let before = before.into_iter().flat_map(|sweep| &sweep.listed);
            let mut unknown = before.filter(|it| it.identity.is_none() && !it.running);
            unknown.find(|listed| listed.pid == pid).map_or(now, |listed| listed.unknown_since)
        };
        let listed = |process: Process| {
            let identity = match (&process.namespace, process.start_time) {
                (Some(Namespace { inode }), Some(start_time)) => Some(ProcessIdentity {
                    pid: process.pid_in_namespace,
                    start_time,
                    pid_namespace: *inode,
                }),
                _ => None,
            };
            let Process { pid, running, memory, .. } = process;
            Listed { pid, identity, running, memory, unknown_since: unknown_since(pid) }
        };
        let listed = found.processes.into_iter().map(listed).collect();
        Some(Self { started_at: found.started_at, listed })
    }
}

/// Whether a process of an account is, or may be, the listed one. The account has 0 for a namespace
/// that the process could not read; it matches any. Start times are not compared: a process in a
/// time namespace reads others. A new process that has the PID of a dead one runs, so the grace
/// period decides.
fn is_same(process: &ProcessIdentity, listed: ProcessIdentity) -> bool {
    process.pid == listed.pid
        && (process.pid_namespace == 0 || process.pid_namespace == listed.pid_namespace)
}

/// The sweeper's file, and the last sweep that was read from it.
pub(crate) struct SweepFile {
    path: PathBuf,
    /// Device, inode and modification time of the file that was read last.
    seen: Option<(u64, u64, i64, i64)>,
    last: Option<Sweep>,
}

impl SweepFile {
    pub fn new(runtime: &Path) -> Self {
        Self { path: runtime.join("sweep"), seen: None, last: None }
    }

    /// Reads the file if it has changed. A damaged file is ignored. Returns whether there is a new
    /// sweep.
    pub fn read(&mut self) -> bool {
        let Ok(metadata) = std::fs::symlink_metadata(&self.path) else { return false };
        let seen = (metadata.dev(), metadata.ino(), metadata.mtime(), metadata.mtime_nsec());
        if self.seen == Some(seen) {
            return false;
        }
        self.seen = Some(seen);
        let text = read_regular(&self.path).ok();
        let read = text.and_then(|text| Sweep::parse(&text, now(), self.last.as_ref()));
        let is_new = read.is_some();
        self.last = read.or(self.last.take());
        is_new
    }

    /// The last sweep, if it is recent.
    pub fn fresh(&self, now: u64) -> Option<&Sweep> {
        self.last.as_ref().filter(|sweep| sweep.is_fresh(now))
    }
}

fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file: File = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut text = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut text)?;
    Ok(text)
}
