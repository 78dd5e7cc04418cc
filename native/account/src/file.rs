//! Opening the file inside a program that may close any descriptor at any time.
//!
//! A `close_range(3, ~0)` in another thread of the program can close a descriptor between two of
//! our calls, and the program's next `open` gets its number. So no descriptor is kept, except in the
//! coordinator, which is a process of its own. A descriptor is used and closed only after `fstat`
//! has shown that it is still our file. The result of a call counts only if the descriptor is still
//! our file afterwards. A `close` of the program within the nanoseconds between our `fstat` and our
//! `close` can still hit a descriptor of the program.
//!
//! `openat`, `pread64` and `close` are bare system calls, because libc's functions are cancellation
//! points (`hami_limits::futex`).

use hami_limits::{FileError, FileKind, Format};
use std::ffi::CString;
use std::fs;
use std::io;
use std::mem::zeroed;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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
    pub format: Format,
    id: FileId,
    /// Open for probes.
    pub kept: Option<Descriptor>,
}

/// A descriptor that the program may close at any time.
#[derive(Debug)]
pub(crate) struct Descriptor {
    pub fd: RawFd,
    id: FileId,
}

/// Descriptors with higher numbers are not kept: by default a process may have 1024.
const MAX_KEPT: RawFd = 512;

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
        if !regular || !kind.has_size(size) || file.read_at(&mut start, 0).map_err(io_error)? < 16 {
            return Err(kind.wrong_size(&path));
        }
        let format = kind.check_head(&start).map_err(|reason| kind.damaged(&path, reason))?;
        Ok((Self { path, format, id, kept: None }, file))
    }

    /// Keeps the file open for probes, unless the process has many open files.
    pub fn keep_open(&mut self) {
        self.kept = self.open(libc::O_RDONLY).ok().filter(|file| file.fd < MAX_KEPT);
    }

    /// Opens the account again. It fails if the path does not name the same file any more, or
    /// cannot be opened (after chroot, setuid or a change of mounts).
    pub fn open(&self, access: libc::c_int) -> io::Result<Descriptor> {
        Descriptor::open(&self.path, access, self.id)
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
                return Err(io::Error::last_os_error());
            }
            let file = Self { fd: fd as RawFd, id };
            if file.is_ours() {
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
        usize::try_from(read).map_err(|_| io::Error::last_os_error())
    }

    /// Whether the descriptor still is the file that was opened.
    pub fn is_ours(&self) -> bool {
        status(self.fd).is_ok_and(|(id, _, _)| id == self.id)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: the descriptor was ours a moment ago.
            unsafe { libc::syscall(libc::SYS_close, self.fd) };
        }
    }
}

fn status(fd: RawFd) -> io::Result<(FileId, bool, u64)> {
    // SAFETY: stat is plain data for which zero is a value.
    let mut stat: libc::stat = unsafe { zeroed() };
    // SAFETY: `stat` is valid for the call.
    if unsafe { libc::fstat(fd, &raw mut stat) } != 0 {
        return Err(io::Error::last_os_error());
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
