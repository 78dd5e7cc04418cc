//! Memory that can be mapped at several addresses and in several processes: files without a name
//! (`memfd_create`), which exist as long as something refers to them.
//!
//! A file's debug name says which memory it has, so a process that receives a descriptor knows it.
//!
//! Each exported descriptor is an open file of its own, and so is what the importer keeps, as with
//! a real driver's device file: a lock of an exported descriptor ends when the program closes it.

use crate::backing::map_fixed;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};

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

    /// The file of a descriptor that any program has passed, opened anew if it is a memory file;
    /// only regular files have memory.
    pub fn duplicate(descriptor: RawFd) -> io::Result<Self> {
        if descriptor < 0 {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
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

    /// A new descriptor, which is an open file of its own. A lock marks it for [`Self::is_exported`].
    pub fn export(&self) -> io::Result<OwnedFd> {
        let exported = self.open_again()?;
        let mark = mark(libc::F_RDLCK);
        // SAFETY: the descriptor is open, and the structure valid.
        if unsafe { libc::fcntl(exported.as_raw_fd(), libc::F_OFD_SETLK, &raw const mark) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(exported.into())
    }

    /// Whether any process has an exported descriptor.
    pub fn is_exported(&self) -> bool {
        let mut found = mark(libc::F_WRLCK);
        // SAFETY: the descriptor is open, and the structure valid.
        unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut found) };
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

/// The lock of exported descriptors, at an offset that no file has.
fn mark(kind: i32) -> libc::flock {
    // SAFETY: a structure of numbers.
    let mut mark: libc::flock = unsafe { std::mem::zeroed() };
    (mark.l_type, mark.l_start, mark.l_len) = (kind as i16, 1 << 61, 1);
    mark
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
        let passed = file.export().expect("descriptor").into_raw_fd();
        let found = MemoryFile::duplicate(passed).expect("a copy");
        assert_eq!(found.what().as_deref(), Some("card 3"));
        assert_eq!((found.inode(), found.bytes()), (file.inode(), 2 << 20));
        let lock = libc::flock { l_start: 1 << 40, ..mark(libc::F_WRLCK) };
        let is_locked = || {
            let mut asked = lock;
            // SAFETY: the descriptor is open, and the structure valid.
            unsafe { libc::fcntl(file.descriptor(), libc::F_OFD_GETLK, &raw mut asked) };
            asked.l_type != libc::F_UNLCK as i16
        };
        // SAFETY: as above.
        assert_eq!(unsafe { libc::fcntl(passed, libc::F_OFD_SETLK, &raw const lock) }, 0);
        assert!(is_locked(), "the descriptors are different open files");
        assert!(file.is_exported() && found.is_exported());
        // SAFETY: nothing else uses the descriptor.
        unsafe { libc::close(passed) };
        assert!(!is_locked(), "what is kept of it has no lock");
        assert!(!file.is_exported());
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
