//! The identity of a process: its pid in its PID namespace, and its start time.

use crate::file::read_proc;
use crate::layout::Record;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;

/// A process, as it sees itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessIdentity {
    /// The pid in the process's own namespace.
    pub pid: u32,
    /// When it started, in clock ticks since boot (field 22 of `/proc/self/stat`); 0 = unknown.
    pub start_time: u64,
    /// The inode of its pid namespace; 0 = unknown. A pid means nothing in another one.
    pub pid_namespace: u64,
}

impl ProcessIdentity {
    /// The calling process.
    pub fn own() -> Self {
        let (pid, start_time) = (std::process::id(), own_start_time().unwrap_or(0));
        Self { pid, start_time, pid_namespace: own_namespace() }
    }

    /// The process that a slot's record names.
    pub(crate) fn of(record: &Record) -> Self {
        Self {
            pid: record.pid.load(Ordering::Relaxed),
            start_time: record.start_time.load(Ordering::Relaxed),
            pid_namespace: record.pid_namespace.load(Ordering::Relaxed),
        }
    }

    /// Whether no process has its PID, so that it has certainly ended. No file is opened.
    pub(crate) fn has_no_pid(&self) -> bool {
        let Ok(pid @ 1..) = libc::pid_t::try_from(self.pid) else { return false };
        if self.pid_namespace == 0 || self.pid_namespace != own_namespace() {
            return false;
        }
        // SAFETY: signal 0 is sent to nobody.
        let sent = unsafe { libc::kill(pid, 0) };
        sent != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
    }
}

/// The PID namespace of the calling process; 0 = unknown.
pub(crate) fn own_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |metadata| metadata.ino())
}

fn own_start_time() -> Option<u64> {
    let stat = read_proc("/proc/self/stat");
    // The name in parentheses may hold anything, also parentheses and blanks.
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_knows_itself() {
        let own = ProcessIdentity::own();
        assert_eq!(own.pid, std::process::id());
        assert!(own.start_time > 0 && own.pid_namespace > 0);
    }

    #[test]
    fn a_free_pid_shows_a_death_in_its_own_namespace_only() {
        let own = ProcessIdentity::own();
        let free = ProcessIdentity { pid: i32::MAX as u32, ..own };
        assert!(!own.has_no_pid() && free.has_no_pid());
        for pid_namespace in [0, own.pid_namespace + 1] {
            assert!(!ProcessIdentity { pid_namespace, ..free }.has_no_pid());
        }
        for pid in [0, u32::MAX] {
            assert!(!ProcessIdentity { pid, ..free }.has_no_pid());
        }
    }
}
