//! The default slice of a user, on a machine whose service (`hami machine`) limits all of its
//! users' programs.
//!
//! There `/etc/ld.so.preload` names a library with a file `machine` beside it, which has the path
//! of the service's runtime directory:
//!
//! | path | meaning |
//! |---|---|
//! | `users` | missing: the service has not run since the machine started, and limits nobody yet |
//! | `users/<uid>` | a link whose text says what a user has: the path of a slice, `unlimited`, or why it has no card |
//! | `machine.sock` | the service, which says the same for a user without a link |
//! | `slices` | the slices of all users. A program that was started in one has no default slice |
//!
//! The user is that of the process on the machine. A program in a user namespace of its own cannot
//! know it, so it asks the service, to which the kernel tells it. Root has no default slice: the
//! service is a program of root, too.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// The file beside the library that names the runtime directory.
const MACHINE: &str = "machine";

/// The request for what the user of this process has.
const REQUEST: &[u8] = b"default";

/// How long the service may take. It is away for about a second when it is restarted.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long to wait before the next try.
const PAUSE: Duration = Duration::from_millis(20);

/// The first user namespace of a machine: the kernel's `PROC_USER_INIT_INO`. In another one the
/// service is asked, and its answer is right in both.
const FIRST_NAMESPACE: &str = "user:[4026531837]";

/// The service's runtime directory, if this library limits all programs of a machine.
pub(crate) fn runtime(library: &Path) -> Result<Option<PathBuf>, String> {
    let file = library.canonicalize().ok().and_then(|file| Some(file.parent()?.join(MACHINE)));
    let unreadable = |error| format!("a file beside {}: {error}", library.display());
    // Where it is not, as in a container, nothing is opened.
    match file {
        Some(file) if file.try_exists().map_err(unreadable)? => {
            let text = fs::read(file).map_err(unreadable)?;
            Ok(Some(PathBuf::from(OsStr::from_bytes(text.trim_ascii_end()))))
        }
        _ => Ok(None),
    }
}

/// The default slice of this process; `None` if it has no limit, or was started in one of the
/// service's `slices`.
pub(crate) fn default_slice(runtime: &Path, slices: &[PathBuf]) -> Result<Option<PathBuf>, String> {
    let is_of_service = |slice: &PathBuf| {
        let around = slice.canonicalize().ok();
        around.as_deref().and_then(Path::parent) == Some(&runtime.join("slices"))
    };
    let users = runtime.join("users");
    let has_run = users.try_exists().map_err(|error| format!("{}: {error}", users.display()))?;
    let user = user();
    if !has_run || user == Some(0) || slices.iter().any(is_of_service) {
        return Ok(None);
    }
    let text = match user.and_then(|user| recorded(&users, user)) {
        Some(text) => text,
        None => asked(&runtime.join("machine.sock"))
            .map_err(|error| format!("hami machine does not say what this user has: {error}"))?,
    };
    match text.strip_prefix(b"/") {
        Some(_) => Ok(Some(PathBuf::from(OsStr::from_bytes(&text)))),
        None if text == b"unlimited" => Ok(None),
        None => Err(String::from_utf8_lossy(&text).into_owned()),
    }
}

/// The user of this process, if its user namespace is the machine's. Of a setuid program it is the
/// user who started it, not that of its file.
fn user() -> Option<libc::uid_t> {
    let namespace = fs::read_link("/proc/self/ns/user").ok()?;
    // SAFETY: getuid cannot fail.
    (namespace.as_os_str() == FIRST_NAMESPACE).then(|| unsafe { libc::getuid() })
}

/// What the link of a user says.
fn recorded(users: &Path, user: libc::uid_t) -> Option<Vec<u8>> {
    let text = fs::read_link(users.join(user.to_string())).ok()?;
    Some(text.into_os_string().into_encoded_bytes())
}

/// What the service says.
fn asked(socket: &Path) -> io::Result<Vec<u8>> {
    let end = Instant::now() + PATIENCE;
    loop {
        match exchange(socket, end) {
            // It closes connections if this user has too many.
            Ok(answer) if answer.is_empty() && Instant::now() < end => {}
            Err(_) if Instant::now() < end => {}
            Ok(answer) if answer.is_empty() => return Err(io::ErrorKind::ConnectionReset.into()),
            result => return result,
        }
        thread::sleep(PAUSE);
    }
}

/// Sends the request in a connection of its own, and receives the answer.
fn exchange(socket: &Path, end: Instant) -> io::Result<Vec<u8>> {
    // SAFETY: zero bytes are a valid address.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let path = socket.as_os_str().as_bytes();
    if path.len() >= address.sun_path.len() {
        return Err(io::ErrorKind::InvalidFilename.into());
    }
    for (to, &byte) in address.sun_path.iter_mut().zip(path) {
        *to = byte as libc::c_char;
    }
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    let made = check(unsafe { libc::socket(libc::AF_UNIX, kind, 0) } as isize)?;
    // SAFETY: a new descriptor that nobody else closes.
    let connection = unsafe { OwnedFd::from_raw_fd(made as libc::c_int) };
    let descriptor = connection.as_raw_fd();
    // While others connect too, the kernel lets this wait; it would fail at once if it could not.
    let left = end.saturating_duration_since(Instant::now()).max(PAUSE);
    let wait = libc::timeval {
        tv_sec: left.as_secs() as libc::time_t,
        tv_usec: libc::suseconds_t::from(left.subsec_micros()),
    };
    let size = size_of::<libc::timeval>() as libc::socklen_t;
    for option in [libc::SO_SNDTIMEO, libc::SO_RCVTIMEO] {
        let value = (&raw const wait).cast();
        // SAFETY: a value of this size.
        let set = unsafe { libc::setsockopt(descriptor, libc::SOL_SOCKET, option, value, size) };
        check(set as isize)?;
    }
    let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: a complete address, which ends with a zero byte.
    check(unsafe { libc::connect(descriptor, (&raw const address).cast(), length) } as isize)?;
    let (request, flags) = (REQUEST.as_ptr().cast(), libc::MSG_NOSIGNAL);
    // SAFETY: bytes of this length.
    check(unsafe { libc::send(descriptor, request, REQUEST.len(), flags) })?;
    let mut answer = vec![0; libc::PATH_MAX as usize];
    // SAFETY: room for this many bytes.
    let read =
        check(unsafe { libc::recv(descriptor, answer.as_mut_ptr().cast(), answer.len(), 0) })?;
    answer.truncate(read as usize);
    Ok(answer)
}

fn check(result: isize) -> io::Result<isize> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
