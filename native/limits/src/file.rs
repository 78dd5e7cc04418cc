//! The files of a slice: how one is created, how it is recognised, and why one cannot be used.
//!
//! The limits page, the grants page and the account are opened by processes that do not wait for
//! each other. So a file is complete from its first instant: it is written under another name and
//! then linked. If several processes create the same file, one of them wins and the others find its
//! file. A file keeps its inode for life, because a rename over a bind-mounted file is never seen.
//!
//! All of them begin with the same 16 bytes: a magic, a version and the size of the file
//! ([`FileKind`]). A file that begins differently is never read further. The version is that of all
//! files together, the [`FORMAT`].

use crate::quantity::InvalidValue;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::mem::zeroed;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The format of a slice's files that this version reads and writes.
///
/// The limits page, the grants page and the account change together. A container that restarts
/// after an upgrade of the node still has its old library. So the name of the library's directory on
/// the node begins with the format (`1-…`), and a file of another format is refused.
pub const FORMAT: u32 = 1;

/// One of the kinds of file: its name in messages, and what its first 16 bytes say.
#[derive(Debug)]
pub struct FileKind {
    /// The name of the kind, as error messages write it.
    pub name: &'static str,
    /// The first eight bytes.
    pub magic: [u8; 8],
    /// The size of every file of this kind, in bytes.
    pub size: usize,
}

impl FileKind {
    /// The first bytes of a file, which never change: magic, version and size. Little-endian.
    pub fn head(&self) -> [u8; 16] {
        let mut head = [0; 16];
        head[..8].copy_from_slice(&self.magic);
        head[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        head[12..].copy_from_slice(&(self.size as u32).to_le_bytes());
        head
    }

    /// Checks the first bytes of a file.
    pub fn check_head(&self, path: &Path, found: &[u8]) -> Result<(), FileError> {
        let head = self.head();
        let differs = |part: Range<usize>| found.get(part.clone()) != Some(&head[part]);
        let reason = if differs(0..8) {
            format!("it does not begin with {}", String::from_utf8_lossy(&self.magic))
        } else if differs(8..12) {
            format!("its version is not {FORMAT}")
        } else if differs(12..16) {
            format!("its size field is not {}", self.size)
        } else {
            return Ok(());
        };
        Err(self.damaged(path, reason))
    }

    /// Creates a file of this kind with these first bytes, its size and its mode (less the umask).
    /// All blocks are allocated, because a store to a mapped page without one kills the program.
    /// The file must not exist.
    pub fn create(&self, path: &Path, mode: u32, start: &[u8]) -> Result<File, FileError> {
        self.check_size_limit(path)?;
        create(path, mode, self.size, start).map_err(|error| self.io(path, error))
    }

    /// Refuses a file that is larger than `RLIMIT_FSIZE` allows. A write beyond that limit, also
    /// into a file that is as large already, kills the process with SIGXFSZ.
    pub fn check_size_limit(&self, path: &Path) -> Result<(), FileError> {
        let (size, limit) = (self.size, size_limit());
        if size as u64 <= limit {
            return Ok(());
        }
        Err(FileError::TooLarge { what: self.name, path: path.to_owned(), size, limit })
    }

    /// The kernel refused.
    pub fn io(&self, path: &Path, source: io::Error) -> FileError {
        FileError::Io { what: self.name, path: path.to_owned(), source }
    }

    /// The content is wrong.
    pub fn damaged(&self, path: &Path, reason: impl Into<String>) -> FileError {
        FileError::Damaged { what: self.name, path: path.to_owned(), reason: reason.into() }
    }

    /// Checks that a file is a regular one and has the size of its kind.
    pub fn check_size(&self, path: &Path, is_file: bool, size: u64) -> Result<(), FileError> {
        if is_file && size == self.size as u64 { Ok(()) } else { Err(self.wrong_size(path)) }
    }

    /// The file is no regular file, or has another size.
    pub fn wrong_size(&self, path: &Path) -> FileError {
        self.damaged(path, format!("it is not a file of {} bytes", self.size))
    }
}

/// Why a file of a slice cannot be created, used or changed.
#[derive(Debug)]
pub enum FileError {
    /// The file could not be opened, mapped, locked or written.
    Io {
        /// The kind of file ([`FileKind::name`]).
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The file is damaged, or of another kind or version. It must not be used.
    Damaged {
        /// The kind of file that it should be.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// The first difference that was found.
        reason: String,
    },
    /// The file is larger than the process's limit on the size of files.
    TooLarge {
        /// The kind of file.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// Its size in bytes.
        size: usize,
        /// `RLIMIT_FSIZE` in bytes.
        limit: u64,
    },
    /// Every slot of an account belongs to a process. End one, then try again.
    Full {
        /// The account's path.
        path: PathBuf,
        /// The number of its slots.
        slots: usize,
    },
    /// The caller asked for a value that the file cannot hold. The file is unchanged.
    Invalid(InvalidValue),
}

impl FileError {
    /// The kind of the kernel's error, if the kernel refused.
    pub fn kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Io { source, .. } => Some(source.kind()),
            Self::Damaged { .. } | Self::TooLarge { .. } | Self::Full { .. } | Self::Invalid(_) => {
                None
            }
        }
    }
}

impl From<InvalidValue> for FileError {
    fn from(error: InvalidValue) -> Self {
        Self::Invalid(error)
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { what, path, source } => write!(f, "{what} {}: {source}", path.display()),
            Self::Damaged { what, path, reason } => write!(
                f,
                "{what} {} is damaged or of another version: {reason}; make the slice again",
                path.display()
            ),
            Self::TooLarge { what, path, size, limit } => write!(
                f,
                "{what} {} has {size} bytes, and RLIMIT_FSIZE of this process is {limit}; raise it \
                 to at least {size} (`ulimit -f unlimited`)",
                path.display()
            ),
            Self::Full { path, slots } => write!(
                f,
                "account {}: all {slots} process slots are taken; end a process of the slice first",
                path.display()
            ),
            Self::Invalid(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for FileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Invalid(error) => Some(error),
            Self::Damaged { .. } | Self::TooLarge { .. } | Self::Full { .. } => None,
        }
    }
}

/// The error of a system call that has failed. A sandbox may deny any of them, so the message then
/// names the call.
pub fn named(call: &str, error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::ENOSYS) => {
            let fix = "allow this system call, for example in the program's seccomp profile";
            io::Error::new(io::ErrorKind::Unsupported, format!("{call}: {error}; {fix}"))
        }
        _ => error,
    }
}

/// As [`named`], for the call that this thread has just made.
pub fn failed(call: &str) -> io::Error {
    named(call, io::Error::last_os_error())
}

/// Opens a file. A symbolic link is not followed, and a pipe is not waited for.
pub fn open(path: &Path, write: bool) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    OpenOptions::new().read(true).write(write).custom_flags(flags).open(path)
}

/// Takes or tests a lock of `length` bytes of a file from `start` on; 0 is up to its end.
pub fn lock_call(
    fd: RawFd,
    command: libc::c_int,
    kind: libc::c_int,
    (start, length): (u64, u64),
) -> io::Result<libc::flock> {
    // SAFETY: flock is plain data for which zero is a value; `l_pid` must be zero.
    let mut lock: libc::flock = unsafe { zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    (lock.l_start, lock.l_len) = (start as libc::off_t, length as libc::off_t);
    // SAFETY: `lock` is valid for the call.
    match unsafe { libc::fcntl(fd, command, &raw mut lock) } {
        0 => Ok(lock),
        _ => Err(failed("fcntl")),
    }
}

/// Random bytes of the kernel.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    // SAFETY: a local variable and its size.
    match unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), N, 0) } {
        read if read == N as isize => Ok(bytes),
        _ => Err(failed("getrandom")),
    }
}

/// The largest size of a file that this process may write.
fn size_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a local variable. If the kernel refuses, there is no limit.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    limit.rlim_cur
}

fn create(path: &Path, mode: u32, size: usize, start: &[u8]) -> io::Result<File> {
    let (draft, mut file) = create_draft(path, mode)?;
    let linked = allocate(&file, size)
        .and_then(|()| file.write_all(start))
        .and_then(|()| fs::hard_link(&draft, path));
    fs::remove_file(&draft)?;
    linked.map(|()| file)
}

fn create_draft(path: &Path, mode: u32) -> io::Result<(PathBuf, File)> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(mode);
    let mut attempt = 0;
    loop {
        let mut name = OsString::from(path.as_os_str());
        name.push(format!(".{}-{attempt}", std::process::id()));
        match options.open(&name) {
            // A process with our pid, in another namespace or killed here, has left its draft.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && attempt < 100 => attempt += 1,
            Err(e) => return Err(e),
            Ok(file) => return Ok((name.into(), file)),
        }
    }
}

fn allocate(file: &File, size: usize) -> io::Result<()> {
    // SAFETY: no memory is passed.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, size as libc::off_t) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}
