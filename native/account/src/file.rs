//! Opening the file inside a program that may close any descriptor at any time.
//!
//! A `close_range(3, ~0)` in another thread of the program can close a descriptor between two of
//! our calls, and the program's next `open` gets its number. So a descriptor is used and closed only
//! after `fstat` has shown that it is still our file. The result of a call counts only if the
//! descriptor is still our file afterwards. A `close` of the program within the nanoseconds between
//! our `fstat` and our `close` can still hit a descriptor of the program.
//!
//! One descriptor stays open, for probes: the program may have none left when one of its workers
//! dies, and may have changed its root directory or its user. If the program closes it, the next
//! probe opens it again.
//!
//! `openat`, `pread64` and `close` are bare system calls, because libc's functions are cancellation
//! points (`hami_limits::futex`).

use crate::fork::NoFork;
use hami_limits::{FileError, FileKind, failed};
use std::ffi::CString;
use std::fs;
use std::io;
use std::mem::zeroed;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};

/// The identity of a file while it exists, independent of its name or descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

/// The path of an account, and the file that it named when the account was attached.
#[derive(Debug)]
pub(crate) struct AccountFile {
    pub path: PathBuf,
    id: FileId,
    /// A descriptor for probes, or -1.
    kept: AtomicI32,
}

/// A descriptor that the program may close at any time.
#[derive(Debug)]
pub(crate) struct Descriptor {
    pub fd: RawFd,
    id: FileId,
}

/// The kept descriptor has this number or a higher one, so that the program's descriptors have the
/// numbers that they have without us.
const KEPT_FROM: RawFd = 256;

/// Flags for a path that others could have changed: no link is followed, and no pipe is waited for.
const CAUTION: libc::c_int = libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;

impl AccountFile {
    /// Opens a file of this kind and checks its first bytes. It returns the open file as well.
    pub fn find(path: &Path, kind: &FileKind) -> Result<(Self, Descriptor), FileError> {
        let io_error = |e| kind.io(path, e);
        // The program may change its directory later.
        let path = std::path::absolute(path).map_err(io_error)?;
        let id = FileId::of_path(&path).map_err(io_error)?;
        let file = Descriptor::open(&path, libc::O_RDWR, id).map_err(io_error)?;
        let (_, regular, size) = status(file.fd).map_err(io_error)?;
        let mut start = [0; 16];
        kind.check_size(&path, regular, size)?;
        file.read_at(&mut start, 0).map_err(io_error)?;
        kind.check_head(&path, &start)?;
        Ok((Self { path, id, kept: AtomicI32::new(-1) }, file))
    }

    /// The descriptor for probes. Opens it if it is not open yet, or if the program has closed it.
    pub fn kept(&self) -> io::Result<RawFd> {
        let seen = self.kept.load(Ordering::SeqCst);
        if self.is_open_as(seen)? {
            return Ok(seen);
        }
        let _no_fork = NoFork::begin()?;
        let opened = move_up(&self.open(libc::O_RDONLY)?)?;
        match self.kept.compare_exchange(seen, opened, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => Ok(opened),
            Err(theirs) => {
                self.close(opened);
                Ok(theirs)
            }
        }
    }

    /// Whether a number is a descriptor of the account.
    pub fn is_open_as(&self, fd: RawFd) -> io::Result<bool> {
        is_file(fd, self.id)
    }

    fn close(&self, fd: RawFd) {
        drop(Descriptor { fd, id: self.id });
    }

    /// Opens the account again. It fails if the path does not name the same file any more, or
    /// cannot be opened (after chroot, setuid or a change of mounts).
    pub fn open(&self, access: libc::c_int) -> io::Result<Descriptor> {
        Descriptor::open(&self.path, access, self.id)
    }
}

impl Drop for AccountFile {
    fn drop(&mut self) {
        self.close(self.kept.load(Ordering::SeqCst));
    }
}

impl FileId {
    pub fn of_path(path: &Path) -> io::Result<Self> {
        let metadata = fs::symlink_metadata(path)?;
        Ok(Self { device: metadata.dev(), inode: metadata.ino() })
    }

    pub fn of_descriptor(fd: RawFd) -> io::Result<Self> {
        status(fd).map(|(id, _, _)| id)
    }

    /// A number for it, which is not 0.
    pub fn word(self) -> u64 {
        self.device.rotate_left(40) ^ self.inode | 1 << 63
    }
}

impl Descriptor {
    /// Opens `path` if it is `id`.
    pub fn open(path: &Path, access: libc::c_int, id: FileId) -> io::Result<Self> {
        // To fail, the program would have to close the descriptor at the same moment each time.
        const ATTEMPTS: u32 = 5;
        let c_path = CString::new(path.as_os_str().as_bytes())?;
        for _ in 0..ATTEMPTS {
            // Check the path first: if the descriptor then is another file, the program has reused
            // its number, and it must not be closed.
            if FileId::of_path(path)? != id {
                let message = "another file has replaced it";
                return Err(io::Error::new(io::ErrorKind::NotFound, message));
            }
            let (folder, flags) = (libc::AT_FDCWD, access | CAUTION);
            // SAFETY: the path is a C string.
            let fd = unsafe { libc::syscall(libc::SYS_openat, folder, c_path.as_ptr(), flags) };
            if fd < 0 {
                return Err(failed("openat"));
            }
            let file = Self { fd: fd as RawFd, id };
            if is_file(file.fd, id)? {
                return Ok(file);
            }
        }
        Err(io::Error::other("the program closed its descriptor each time"))
    }

    /// Reads from `offset` on; fewer bytes at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: i64) -> io::Result<usize> {
        let (start, length) = (buffer.as_mut_ptr(), buffer.len());
        // SAFETY: the buffer is valid for its length.
        let read = unsafe { libc::syscall(libc::SYS_pread64, self.fd, start, length, offset) };
        if !self.is_ours() {
            return Err(io::Error::other("the program closed its descriptor"));
        }
        usize::try_from(read).map_err(|_| failed("pread64"))
    }

    /// Whether the descriptor still is the file that was opened.
    pub fn is_ours(&self) -> bool {
        is_file(self.fd, self.id).unwrap_or(false)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // If the kernel does not say what it is, it is most likely still ours.
        if is_file(self.fd, self.id).unwrap_or(true) {
            // SAFETY: the descriptor was ours a moment ago.
            unsafe { libc::syscall(libc::SYS_close, self.fd) };
        }
    }
}

/// Copies a descriptor to a high number.
fn move_up(file: &Descriptor) -> io::Result<RawFd> {
    let duplicate = |from: RawFd| {
        // SAFETY: it takes two numbers.
        match unsafe { libc::fcntl(file.fd, libc::F_DUPFD_CLOEXEC, from) } {
            -1 => Err(failed("fcntl")),
            fd => Ok(fd),
        }
    };
    // Numbers below 3 have a meaning for programs. `EINVAL`: the process may not have such numbers.
    duplicate(KEPT_FROM).or_else(|_| duplicate(3))
}

/// Whether a number is a descriptor of this file.
fn is_file(fd: RawFd, file: FileId) -> io::Result<bool> {
    match status(fd) {
        Ok((id, _, _)) => Ok(id == file),
        Err(error) if error.raw_os_error() == Some(libc::EBADF) => Ok(false),
        Err(error) => Err(error),
    }
}

fn status(fd: RawFd) -> io::Result<(FileId, bool, u64)> {
    // SAFETY: stat is plain data for which zero is a value.
    let mut stat: libc::stat = unsafe { zeroed() };
    // SAFETY: `stat` is valid for the call.
    if unsafe { libc::fstat(fd, &raw mut stat) } != 0 {
        return Err(failed("fstat"));
    }
    let regular = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
    Ok((FileId { device: stat.st_dev, inode: stat.st_ino }, regular, stat.st_size as u64))
}

/// The first 1024 bytes of a file in /proc, as text; empty if it cannot be read.
pub(crate) fn read_proc(path: &str) -> String {
    let mut text = [0; 1024];
    let path = Path::new(path);
    let read = FileId::of_path(path)
        .and_then(|id| Descriptor::open(path, libc::O_RDONLY, id))
        .and_then(|file| file.read_at(&mut text, 0));
    String::from_utf8_lossy(&text[..read.unwrap_or(0)]).into_owned()
}
