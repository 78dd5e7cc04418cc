//! Memory that can be mapped at several addresses and in several processes: files without a name
//! (`memfd_create`), which exist as long as something refers to them.
//!
//! A file's debug name says which memory it has.
//!
//! An exported descriptor is not of the memory file. As with a real driver, all of them are of one
//! file, which has no bytes, and each is an open file of its own: a lock of it ends when the program
//! closes the last copy. Two locks say where the importer finds the memory file, and the position of
//! the open file is the size of the memory.

use crate::backing::map_fixed;
use std::fs::{File, Permissions};
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};

const PREFIX: &str = "/memfd:stub-gpu ";

/// A file with memory.
#[derive(Debug)]
pub struct MemoryFile {
    file: File,
    inode: u64,
    bytes: u64,
}

impl MemoryFile {
    /// A sparse file of so many bytes; `what` is its name, without spaces at either end.
    pub fn create(what: &str, bytes: u64) -> io::Result<Self> {
        let name = std::ffi::CString::new(format!("stub-gpu {what}"))?;
        // SAFETY: the name is a C string; the descriptor is new and ours.
        let file = unsafe {
            let descriptor = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC);
            if descriptor < 0 {
                return Err(io::Error::last_os_error());
            }
            File::from_raw_fd(descriptor)
        };
        file.set_len(bytes)?;
        Self::of(file)
    }

    /// The memory file behind a descriptor.
    pub fn of(file: File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self { inode: metadata.ino(), bytes: metadata.len(), file })
    }

    /// The memory file of an exported descriptor; of any other descriptor the file itself, opened
    /// anew if it is a memory file. Only regular files have memory.
    pub fn duplicate(descriptor: RawFd) -> io::Result<Self> {
        if descriptor < 0 {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        if let Some((process, number, inode)) = marks_of(descriptor) {
            return Self::of_process(process, number, inode);
        }
        // SAFETY: the descriptor is only used for the call, which fails if it is not open.
        let copy = unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned()?;
        let file = File::from(copy);
        if !file.metadata()?.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let found = Self::of(file)?;
        if found.what().is_some() { Self::of(found.open_again()?) } else { Ok(found) }
    }

    /// The file, opened once more.
    fn open_again(&self) -> io::Result<File> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        File::options().read(true).write(true).open(path)
    }

    /// The name that it was created with; `None` for a file that is not from here.
    pub fn what(&self) -> Option<String> {
        let link = std::fs::read_link(format!("/proc/self/fd/{}", self.file.as_raw_fd())).ok()?;
        let name = link.to_str()?.strip_prefix(PREFIX)?;
        Some(name.strip_suffix(" (deleted)")?.to_owned())
    }

    /// Identifies the file in every process.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The number of its descriptor in this process.
    pub fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// A new descriptor. `keeper` is the process that has this file while the descriptor is open, and
    /// its number there.
    pub fn export(&self, keeper: (u32, RawFd)) -> io::Result<OwnedFd> {
        let mut exported = open_device()?;
        exported.seek(SeekFrom::Start(self.bytes))?;
        for position in [OF_INODES | self.inode, OF_KEEPERS | word_of(keeper)] {
            let mark = mark(libc::F_RDLCK, position);
            // SAFETY: the descriptor is open, and the structure valid.
            if unsafe { libc::fcntl(exported.as_raw_fd(), libc::F_OFD_SETLK, &raw const mark) } < 0
            {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(exported.into())
    }

    /// Whether any process has an exported descriptor.
    pub fn is_exported(&self) -> bool {
        let Ok(device) = open_device() else { return true };
        let mut found = mark(libc::F_WRLCK, OF_INODES | self.inode);
        // SAFETY: the descriptor is open, and the structure valid.
        unsafe { libc::fcntl(device.as_raw_fd(), libc::F_OFD_GETLK, &raw mut found) };
        found.l_type != libc::F_UNLCK as i16
    }

    /// The file that a process has as this descriptor, if it is the one with this inode.
    pub fn of_process(process: u32, descriptor: RawFd, inode: u64) -> io::Result<Self> {
        let path = format!("/proc/{process}/fd/{descriptor}");
        let found = Self::of(File::options().read(true).write(true).open(path)?)?;
        if found.inode == inode { Ok(found) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    /// Maps a page-aligned range at an address that this process has reserved. A forked child and a
    /// core dump do not get it.
    pub fn map_at(&self, address: u64, range: &Range<u64>, can_write: bool) -> io::Result<()> {
        let access = libc::PROT_READ | if can_write { libc::PROT_WRITE } else { 0 };
        map_fixed(address, range, access, self.file.as_raw_fd())
    }

    /// Writes bytes at an offset.
    pub fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, at)
    }

    /// Returns the pages of a range to the system.
    pub fn punch(&self, range: &Range<u64>) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let (start, bytes) = (range.start as i64, (range.end - range.start) as i64);
        // SAFETY: the call takes plain numbers.
        unsafe { libc::fallocate(self.file.as_raw_fd(), mode, start, bytes) };
    }
}

/// From here on are the locks that say the inode of a memory file, and its keeper.
const OF_INODES: u64 = 1 << 60;
const OF_KEEPERS: u64 = 1 << 61;

fn word_of((process, descriptor): (u32, RawFd)) -> u64 {
    u64::from(process) << 32 | descriptor as u64
}

/// The file of all exported descriptors.
fn open_device() -> io::Result<File> {
    let path = std::env::temp_dir().join("stub-gpu-descriptors");
    File::open(&path).or_else(|_| {
        let made = File::options().write(true).create(true).truncate(false).open(&path)?;
        // For every user, whatever the umask is.
        made.set_permissions(Permissions::from_mode(0o644))?;
        File::open(&path)
    })
}

/// A lock of a descriptor.
fn mark(kind: i32, position: u64) -> libc::flock {
    // SAFETY: a structure of numbers.
    let mut mark: libc::flock = unsafe { std::mem::zeroed() };
    (mark.l_type, mark.l_start, mark.l_len) = (kind as i16, position as i64, 1);
    mark
}

/// The keeper of an exported descriptor's memory file, its number there, and its inode.
fn marks_of(descriptor: RawFd) -> Option<(u32, RawFd, u64)> {
    let shown = std::fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")).ok()?;
    let locks = shown.lines().filter(|line| line.starts_with("lock:"));
    let positions: Vec<u64> =
        locks.filter_map(|line| line.split_whitespace().last()?.parse().ok()).collect();
    let of = |first: u64| positions.iter().find(|at| **at >> first.ilog2() == 1);
    let (inode, keeper) = (of(OF_INODES)? ^ OF_INODES, of(OF_KEEPERS)? ^ OF_KEEPERS);
    Some(((keeper >> 32) as u32, keeper as RawFd, inode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backing::AddressRange;
    use std::os::fd::IntoRawFd;

    #[test]
    fn one_file_at_two_addresses_has_the_same_bytes() {
        let file = MemoryFile::create("card 3", 4 << 20).expect("file");
        let place = AddressRange::reserve(4 << 20, 2 << 20, 0).expect("addresses");
        assert!(place.start.is_multiple_of(2 << 20));
        let range = (2 << 20)..(4 << 20);
        file.map_at(place.start, &range, true).expect("mapped");
        file.map_at(place.start + (2 << 20), &range, false).expect("mapped");
        // SAFETY: both ranges were just mapped.
        unsafe {
            *(place.start as *mut u8) = 7;
            assert_eq!(*((place.start + (2 << 20)) as *const u8), 7);
            file.punch(&range);
            assert_eq!(*(place.start as *const u8), 0);
        }
    }

    #[test]
    fn a_descriptor_tells_which_memory_it_is() {
        let file = MemoryFile::create("card 3", 2 << 20).expect("file");
        let keeper = (std::process::id(), file.descriptor());
        let passed = file.export(keeper).expect("descriptor").into_raw_fd();
        let other = file.export(keeper).expect("descriptor");
        let found = MemoryFile::duplicate(passed).expect("its file");
        assert_eq!(found.what().as_deref(), Some("card 3"));
        assert_eq!((found.inode(), found.bytes()), (file.inode(), 2 << 20));
        // SAFETY: the descriptor is open.
        assert_eq!(unsafe { libc::lseek(passed, 0, libc::SEEK_CUR) }, 2 << 20);
        assert!(file.is_exported() && found.is_exported());
        // SAFETY: nothing else uses the descriptor.
        unsafe { libc::close(passed) };
        assert!(file.is_exported(), "the other one is open");
        drop(other);
        assert!(!file.is_exported());
        assert_eq!(found.what().as_deref(), Some("card 3"), "an importer has the memory");
        let (process, number) = (std::process::id(), file.descriptor());
        assert!(MemoryFile::of_process(process, number, file.inode()).is_ok());
        assert!(MemoryFile::of_process(process, number, file.inode() + 1).is_err());
        assert!(MemoryFile::duplicate(-1).is_err());
        let other = File::open("/proc/self/exe").expect("a file").into_raw_fd();
        assert_eq!(MemoryFile::duplicate(other).expect("a file").what(), None);
        let folder = File::open("/").expect("a folder").into_raw_fd();
        assert!(MemoryFile::duplicate(folder).is_err());
    }
}
