//! Descriptors of exported memory, which other processes import and which keep the memory.
//!
//! A program may pass a descriptor on and close it, and the library sees neither. So it marks the open
//! file description behind a descriptor with a lock on one byte (`F_OFD_SETLK`), whose position is the
//! number by which the account lists the memory. Every copy of the descriptor shows the lock, in every
//! process, and the kernel removes it when the last copy is closed. The driver does not use the file's
//! bytes. The lock is a read lock, because the descriptors of one memory have the same position.

use std::fs;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::limited::Limited;

/// The numbers that are used, in the account and as positions.
const LEAST: u64 = 1 << 62;

/// Whether descriptors may keep memory that this process has released.
static ANY_KEPT: AtomicBool = AtomicBool::new(false);

/// A new number for the account.
pub(crate) fn new_id() -> Option<u64> {
    let mut bytes = [0_u8; 8];
    // SAFETY: a local variable and its size.
    let read = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    (read == 8).then(|| u64::from_ne_bytes(bytes) >> 2 | LEAST)
}

/// Marks a descriptor. Returns whether that is possible.
pub(crate) fn mark(descriptor: RawFd, id: u64) -> bool {
    // SAFETY: zero bytes are a valid value of this structure of numbers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_RDLCK as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    lock.l_start = id as i64;
    lock.l_len = 1;
    // SAFETY: a local variable.
    unsafe { libc::fcntl(descriptor, libc::F_OFD_SETLK, &raw const lock) == 0 }
}

/// The number with which a descriptor is marked.
pub fn id_of(descriptor: RawFd) -> Option<u64> {
    let information = fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")).ok()?;
    information.lines().filter_map(|line| line.strip_prefix("lock:")).find_map(id_in)
}

/// The numbers of all marked descriptors that are open anywhere on the machine.
fn open() -> Option<Vec<u64>> {
    let locks = fs::read_to_string("/proc/locks").ok()?;
    Some(locks.lines().filter_map(id_in).collect())
}

/// The number in a line of the kernel's list, such as
/// `1: OFDLCK ADVISORY  READ -1 00:06:142 4611686018427387904 4611686018427387904`.
fn id_in(line: &str) -> Option<u64> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        [_, "OFDLCK", _, _, _, _, begin, end] if begin == end => {
            begin.parse().ok().filter(|id| *id >= LEAST)
        }
        _ => None,
    }
}

/// Uncharges memory that only descriptors kept, if all of them are closed.
pub fn release_closed(limited: &Limited) {
    ANY_KEPT.store(limited.release_closed(open), Ordering::Relaxed);
}

/// As [`release_closed`], if this process knows of such memory.
#[inline]
pub fn refresh(limited: &Limited) {
    if ANY_KEPT.load(Ordering::Relaxed) {
        release_closed(limited);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_copy_of_a_descriptor_shows_its_number_until_the_last_one_is_closed() {
        let path = std::env::temp_dir().join(format!("descriptors-{}", std::process::id()));
        let open_file = || {
            let mut options = fs::File::options();
            options.read(true).write(true).create(true).truncate(false).open(&path).unwrap()
        };
        let (first, second) = (open_file(), open_file());
        let id = new_id().unwrap();
        assert_eq!(id_of(first.as_raw_fd()), None);
        assert!(mark(first.as_raw_fd(), id));
        assert!(mark(second.as_raw_fd(), id), "another descriptor of the same memory");
        let copy = first.try_clone().unwrap();
        drop(first);
        assert_eq!(id_of(copy.as_raw_fd()), Some(id));
        drop(second);
        assert!(open().unwrap().contains(&id));
        drop(copy);
        assert!(!open().unwrap().contains(&id));
        fs::remove_file(path).unwrap();
    }
}
