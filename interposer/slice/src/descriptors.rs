//! Descriptors of exported memory, which other processes import and which keep the memory.
//!
//! A program may pass a descriptor on and close it, and the library sees neither. So it marks the open
//! file description behind a descriptor with a lock on one byte (`F_OFD_SETLK`), whose position is the
//! number by which the account lists the memory. Every copy of the descriptor shows the lock, in every
//! process, and the kernel removes it when the last copy is closed. The driver does not use the file's
//! bytes. The lock is a read lock, because the descriptors of one memory have the same position.

use std::fs;
use std::io::Read;
use std::os::fd::RawFd;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::limited::Limited;

/// The numbers that are used, in the account and as positions.
const LEAST: u64 = 1 << 62;

/// How often queries look which descriptors are open.
const INTERVAL: Duration = Duration::from_millis(10);

static START: LazyLock<Instant> = LazyLock::new(Instant::now);
/// When they have looked last: milliseconds since `START`, from 1 on.
static REFRESHED_AT: AtomicU64 = AtomicU64::new(0);

/// A new number for the account.
pub(crate) fn new_id() -> Option<u64> {
    let mut bytes = [0_u8; 8];
    // SAFETY: a local variable and its size.
    let read = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    (read == 8).then(|| u64::from_ne_bytes(bytes) >> 2 | LEAST)
}

/// Marks a descriptor. Returns whether that is possible, and whether the library would see its end.
pub(crate) fn mark(descriptor: RawFd, id: u64) -> bool {
    if fs::File::open(LOCKS).is_err() {
        return false;
    }
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

/// The kernel's list of locks.
const LOCKS: &str = "/proc/locks";

/// The numbers of all marked descriptors that are open anywhere on the machine.
fn open() -> Option<Vec<u64>> {
    let (mut found, mut is_whole) = read_locks()?;
    // Other processes change the list between two reads, so a list that is read in parts can lack an
    // entry. It is then read again: an open descriptor is rarely missing from all readings.
    for _ in 0..3 {
        if is_whole {
            break;
        }
        let (more, is_now_whole) = read_locks()?;
        found.extend(more);
        is_whole = is_now_whole;
    }
    Some(found)
}

/// The numbers in the kernel's list, and whether it was read in one part.
fn read_locks() -> Option<(Vec<u64>, bool)> {
    let mut file = fs::File::open(LOCKS).ok()?;
    let mut text = vec![0_u8; 1 << 20];
    let (mut length, mut parts) = (0, 0);
    while let Some(rest) = text.get_mut(length..).filter(|rest| !rest.is_empty()) {
        let read = file.read(rest).ok()?;
        if read == 0 {
            break;
        }
        length += read;
        parts += 1;
    }
    text.truncate(length);
    Some((String::from_utf8_lossy(&text).lines().filter_map(id_in).collect(), parts <= 1))
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

/// Uncharges memory that only descriptors kept that are closed now. Returns whether there was any.
pub(crate) fn release_closed(limited: &Limited) -> bool {
    limited.release_closed(open)
}

/// As [`release_closed`], at most every [`INTERVAL`]: the kernel takes milliseconds for its list.
#[inline]
pub(crate) fn refresh(limited: &Limited) {
    if limited.may_be_kept_by_descriptors() {
        refresh_now_and_then(limited);
    }
}

#[cold]
fn refresh_now_and_then(limited: &Limited) {
    let now = LazyLock::force(&START).elapsed().as_millis() as u64 + 1;
    let last = REFRESHED_AT.load(Ordering::Relaxed);
    let is_due = last == 0 || now.saturating_sub(last) >= INTERVAL.as_millis() as u64;
    if is_due
        && REFRESHED_AT.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    {
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
