//! Descriptors of exported memory: copies of them keep the memory.
//!
//! A program may pass a descriptor on and close it, and nobody tells. So the open file behind it gets a
//! mark: a lock on one byte (`F_OFD_SETLK`), whose position is the number of the memory in the table of
//! shared memory. Every copy of the descriptor has the mark, in every process and while it is sent. The
//! kernel removes it when the last copy is closed.
//!
//! All descriptors of the driver are of one file, `/dev/nvidiactl`. So whoever opens that file can ask
//! the kernel for the lock of each position (`F_OFD_GETLK`). The driver does not use the file's bytes.
//! The lock is a read lock, because the descriptors of one memory have the same position.

use crate::file::{Descriptor, FileId};
use crate::layout::PATH;
use hami_limits::file::{lock_call, random};
use std::ffi::OsStr;
use std::fs;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The least position of a mark.
const LEAST: u64 = 1 << 62;

/// The file with the mark of a descriptor.
#[derive(Debug)]
pub struct Mark {
    pub(crate) path: [u64; PATH],
    pub(crate) file: u64,
}

/// A new number for memory with descriptors.
pub fn new_key() -> Option<u64> {
    random().ok().map(|bytes| u64::from_ne_bytes(bytes) >> 2 | LEAST)
}

/// Marks a descriptor. Returns `None` if nobody would see that it is closed: the file cannot have locks,
/// or cannot be opened by its path.
pub fn mark(descriptor: RawFd, key: u64) -> Option<Mark> {
    lock_call(descriptor, libc::F_OFD_SETLK, libc::F_RDLCK, (key, 1)).ok()?;
    let path = fs::read_link(format!("/proc/self/fd/{descriptor}")).ok()?;
    let id = FileId::of_path(&path).ok()?;
    if FileId::of_descriptor(descriptor).ok()? != id {
        return None;
    }
    let bytes = path.as_os_str().as_bytes();
    let mut path = [0; PATH];
    for (at, byte) in bytes.iter().enumerate() {
        *path.get_mut(at / 8)? |= u64::from(*byte) << (8 * (at % 8));
    }
    // A zero byte must be behind it.
    (path[PATH - 1] == 0).then(|| Mark { path, file: id.word() })
}

/// The number in the mark of a descriptor.
pub fn key_of(descriptor: RawFd) -> Option<u64> {
    let information = fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")).ok()?;
    information.lines().filter_map(|line| line.strip_prefix("lock:")).find_map(key_in)
}

/// The number in a line such as
/// `lock: 1: OFDLCK ADVISORY  READ -1 00:06:142 4611686018427387904 4611686018427387904`.
fn key_in(line: &str) -> Option<u64> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        [_, "OFDLCK", _, _, _, _, begin, end] if begin == end => {
            begin.parse().ok().filter(|key| *key >= LEAST)
        }
        _ => None,
    }
}

/// The file with the marks, opened to look them up.
pub(crate) struct Open {
    file: Descriptor,
    id: FileId,
}

impl Open {
    /// Opens the file at a path of [`Mark`].
    pub fn find(path: &[u64; PATH]) -> Option<Self> {
        let bytes: Vec<u8> = path.iter().flat_map(|word| word.to_le_bytes()).collect();
        let end = bytes.iter().position(|byte| *byte == 0)?;
        let path = Path::new(OsStr::from_bytes(bytes.get(..end)?));
        let id = FileId::of_path(path).ok()?;
        Some(Self { file: Descriptor::open(path, libc::O_RDONLY, id).ok()?, id })
    }

    /// Whether a descriptor with this number may be open. `file` is of its [`Mark`].
    pub fn has(&self, key: u64, file: u64) -> bool {
        let unlocked = libc::F_UNLCK as libc::c_short;
        let found = lock_call(self.file.fd, libc::F_OFD_GETLK, libc::F_WRLCK, (key, 1));
        let is_free = found.is_ok_and(|lock| lock.l_type == unlocked);
        !is_free || self.id.word() != file || !self.file.is_ours()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_copy_of_a_descriptor_has_its_mark_until_the_last_one_is_closed() {
        let path = std::env::temp_dir().join(format!("descriptor-{}", std::process::id()));
        let open_file = || {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false).open(&path).unwrap()
        };
        let (first, second) = (open_file(), open_file());
        let key = new_key().unwrap();
        assert_eq!(key_of(first.as_raw_fd()), None);
        let found = mark(first.as_raw_fd(), key).unwrap();
        assert!(mark(second.as_raw_fd(), key).is_some(), "another descriptor of the same memory");
        let copy = first.try_clone().unwrap();
        drop(first);
        assert_eq!(key_of(copy.as_raw_fd()), Some(key));
        drop(second);
        let open = Open::find(&found.path).unwrap();
        assert!(open.has(key, found.file));
        drop(copy);
        assert!(!open.has(key, found.file));
        assert!(open.has(key, found.file ^ 1), "nothing is known of another file");
        assert!(!open.has(key + 1, found.file));
        fs::remove_file(&path).unwrap();
        assert!(Open::find(&found.path).is_none());
        assert!(Open::find(&[0; PATH]).is_none());
    }
}
