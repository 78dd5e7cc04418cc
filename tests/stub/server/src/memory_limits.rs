//! The cgroups of this machine, for the driver's own memory limits.

use crate::peer::Peer;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use stub_engine::ledger::{ClientId, Ledger};
use stub_engine::memory_limits::{Call, NO_CGROUP, Reply};
use stub_engine::mig::NOT_ROOT;

/// Where cgroups of version 2 are; `None` on a machine without them.
fn mount() -> Option<&'static Path> {
    static MOUNT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let mut rows = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        rows.find(|row| row.get(2) == Some(&"cgroup2")).map(|row| row[1].into())
    };
    MOUNT.get_or_init(find).as_deref()
}

/// The directory of the cgroup that a process is in now.
fn of_process(pid: u32) -> Option<PathBuf> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(mount()?.join(path))
}

/// Records in which cgroup a client is now, if the driver has limits.
pub fn locate(ledger: &mut Ledger, client: ClientId) {
    let pid = ledger.clients[client.0].pid;
    if let Some(cgroup) = ledger.limits.backend.and_then(|_| of_process(pid)) {
        ledger.limits.forget(Path::is_dir);
        ledger.limits.enter(client, cgroup);
    }
}

/// Does a call for a client.
pub fn call(ledger: &mut Ledger, card: usize, call: Call, peer: Option<&Peer>) -> Reply {
    if call.set.is_some() && !peer.is_some_and(Peer::is_privileged) {
        return Err(NOT_ROOT);
    }
    let is_below = |mount: &Path| call.cgroup.starts_with(mount) && call.cgroup != mount;
    let exists = mount().is_some_and(is_below) && call.cgroup.is_dir();
    if ledger.limits.backend.is_some() && !exists {
        return Err(NO_CGROUP);
    }
    ledger.limits.forget(Path::is_dir);
    ledger.limits.call(card, call)
}
