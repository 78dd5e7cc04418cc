//! Making and opening the file, from inside a program that may close any descriptor at any time.
//!
//! A program's `close_range(3, ~0)` in another thread can close a descriptor between two of our
//! calls, and the next `open` of the program gets its number. So none is kept, and one is only used
//! and closed after `fstat` has said that it still is our file. What was done with it is believed
//! if it is our file afterwards, too; only a `close` within nanoseconds can still hit the program's.
//!
//! The calls that libc would let a thread be cancelled in are made past it (`hami_limits::futex` says why).

use hami_limits::{FileError, FileKind};
use std::ffi::CString;
use std::fs;
use std::io;
use std::mem::zeroed;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file for as long as it exists, whatever its name or descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

/// Where an account lies, and which file that was when it was attached.
#[derive(Debug)]
pub(crate) struct Place {
    pub path: PathBuf,
    id: FileId,
}

/// A descriptor that the program may take away.
pub(crate) struct Descriptor {
    pub fd: RawFd,
    id: FileId,
}

/// Flags for opening what others could have put there: no link is followed, no pipe waited for.
const CAUTION: libc::c_int = libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;

impl Place {
    /// Finds a file and checks what never changes. Returns the open file as well.
    pub fn find(path: &Path, kind: &FileKind) -> Result<(Self, Descriptor), FileError> {
        let io_error = |e| kind.io(path, e);
        // The program may change its directory later.
        let path = std::path::absolute(path).map_err(io_error)?;
        let id = FileId::of_path(&path).map_err(io_error)?;
        let place = Self { path, id };
        let file = place.open(libc::O_RDWR).map_err(io_error)?;
        let (_, regular, size) = status(file.fd).map_err(io_error)?;
        let mut start = [0; 16];
        if !regular
            || size != kind.size as u64
            || file.read_at(&mut start, 0).map_err(io_error)? < 16
        {
            return Err(kind.wrong_size(&place.path));
        }
        kind.check_head(&start).map_err(|reason| kind.damaged(&place.path, reason))?;
        Ok((place, file))
    }

    /// Opens the account again. Fails where the path leads nowhere or elsewhere by now (after
    /// chroot, setuid or a change of mounts).
    pub fn open(&self, access: libc::c_int) -> io::Result<Descriptor> {
        Descriptor::open(&self.path, access, self.id)
    }
}

impl FileId {
    fn of_path(path: &Path) -> io::Result<Self> {
        let metadata = fs::symlink_metadata(path)?;
        Ok(Self { device: metadata.dev(), inode: metadata.ino() })
    }
}

impl Descriptor {
    /// Opens `path` if it is `id`.
    fn open(path: &Path, access: libc::c_int, id: FileId) -> io::Result<Self> {
        // The program would have to close the descriptor in the same instant again and again.
        const ATTEMPTS: u32 = 5;
        let c_path = CString::new(path.as_os_str().as_bytes())?;
        for _ in 0..ATTEMPTS {
            // Asked by path first: if what is open then is another file, the program has taken
            // the descriptor's number, and it must not be closed.
            if FileId::of_path(path)? != id {
                let message = "another file has taken its place";
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
        Err(io::Error::other("its descriptor was closed by the program each time"))
    }

    /// Reads from `offset` on; fewer bytes at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: i64) -> io::Result<usize> {
        let (start, length) = (buffer.as_mut_ptr(), buffer.len());
        // SAFETY: the buffer is valid for its length.
        let read = unsafe { libc::syscall(libc::SYS_pread64, self.fd, start, length, offset) };
        if !self.is_ours() {
            return Err(io::Error::other("its descriptor was closed by the program"));
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
            // SAFETY: the descriptor is ours, as far as anyone can know.
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

/// The beginning of a file of the kernel's, as text; empty if it cannot be read.
pub(crate) fn read_proc(path: &str) -> String {
    let mut text = [0; 1024];
    let path = Path::new(path);
    let read = FileId::of_path(path)
        .and_then(|id| Descriptor::open(path, libc::O_RDONLY, id))
        .and_then(|file| file.read_at(&mut text, 0));
    String::from_utf8_lossy(&text[..read.unwrap_or(0)]).into_owned()
}
