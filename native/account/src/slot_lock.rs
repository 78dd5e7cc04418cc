//! The locks that prove that a process lives: the kernel releases them when the process ends.
//!
//! A pid is no proof: it is reused, and it differs between namespaces. So a process owns its slot
//! by open-file-description locks on bytes of the file. Four things can break such a lock:
//!
//! * The program closes all descriptors. So a mapping of the same open file keeps the lock, and we
//!   close the descriptor ourselves.
//! * A child inherits the lock. So the mapping is hidden from children, and no thread can fork
//!   before that.
//! * The kernel releases the lock before the process has stopped using memory. The kernel removes
//!   mappings after all threads have exited, and measurements show that it removes the lowest
//!   addresses last. So the mapping is placed as low as possible.
//! * The program removes the mapping, or maps something over it: an emulator uses low addresses for
//!   its guest. So there is a second lock, on another byte. Its mapping is of another open file, at
//!   an address that the kernel chooses. A process lives while either lock is held. A second
//!   mapping of the same open file would not be enough: measurements show that the lock is then
//!   released as early as with the higher mapping alone.
//!
//! All of this needs a file system that keeps a lock with a mapping. So it is tried where an account
//! is created ([`keeps_locks`]), and each process that joins looks whether others see its locks.
//!
//! A process that is not a member takes over the locks of a dead process to reap its slot (`reap`).
//! So no process can join in the slot meanwhile, and if this process is killed, it blocks no other.

use crate::file::AccountFile;
use crate::fork::{NoFork, generation};
use crate::layout::SLOTS;
use hami_limits::failed;
use hami_limits::file::{lock_call, random};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::NonNull;

const MAP_SIZE: usize = 4096;
/// The addresses to try: from the lowest one that a program may usually map to the lowest one at
/// which programs are usually loaded.
const LOW: std::ops::Range<usize> = 0x1_0000..0x40_0000;
/// A multiple of every page size.
const LOW_STEP: usize = 0x1_0000;

/// A slot's locks. They are held until this value is dropped, or until the process exits or calls
/// exec.
#[derive(Debug)]
pub(crate) struct SlotLock {
    // Fields are dropped in this order, so `_last` is released last.
    _spare: ByteLock,
    _last: ByteLock,
}

impl SlotLock {
    /// Takes the locks of a slot; `None` if a living process has one of them.
    pub fn try_take(account: &AccountFile, slot: usize) -> io::Result<Option<Self>> {
        let _no_fork = NoFork::begin()?;
        let [last, spare] = bytes_of(slot);
        let Some(last) = ByteLock::try_take(account, last, map_low)? else { return Ok(None) };
        let Some(spare) = ByteLock::try_take(account, spare, map_anywhere)? else {
            return Ok(None);
        };
        Ok(Some(Self { _spare: spare, _last: last }))
    }
}

/// The bytes of the file that carry a slot's locks: first that of the lock that is released last.
fn bytes_of(slot: usize) -> [usize; 2] {
    [slot, SLOTS + slot]
}

/// A lock on one byte of the file, and the mapping that keeps it.
#[derive(Debug)]
struct ByteLock {
    map: NonNull<libc::c_void>,
    generation: u32,
}

// SAFETY: the mapping is never accessed, only kept.
unsafe impl Send for ByteLock {}
// SAFETY: as above.
unsafe impl Sync for ByteLock {}

type Map = fn(RawFd) -> io::Result<NonNull<libc::c_void>>;

impl ByteLock {
    /// Takes the lock of a byte. The caller keeps other threads from forking.
    fn try_take(account: &AccountFile, byte: usize, map: Map) -> io::Result<Option<Self>> {
        // To fail, the program would have to close the descriptor at the same moment each time.
        const ATTEMPTS: u32 = 5;
        for _ in 0..ATTEMPTS {
            let file = account.open(libc::O_RDWR)?;
            let kept = map(file.fd).map(|map| Self { map, generation: generation() });
            if !file.is_ours() {
                continue;
            }
            let kept = kept?;
            hide_from_children(kept.map)?;
            match lock_call(file.fd, libc::F_OFD_SETLK, libc::F_WRLCK, (byte as u64, 1)) {
                Ok(_) if file.is_ours() => return Ok(Some(kept)),
                Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
                    return Ok(None);
                }
                Err(e) if file.is_ours() => return Err(e),
                _ => {}
            }
        }
        Err(io::Error::other("the program closed its descriptor each time"))
    }
}

impl Drop for ByteLock {
    fn drop(&mut self) {
        // A child does not have the mapping; something else may be at its address.
        if self.generation == generation() {
            // SAFETY: the mapping is ours, and nothing refers to it.
            unsafe { libc::munmap(self.map.as_ptr(), MAP_SIZE) };
        }
    }
}

/// Tests locks without taking them. Read access to the file is enough.
pub(crate) struct Probe<'a> {
    account: &'a AccountFile,
    fd: RawFd,
}

impl<'a> Probe<'a> {
    /// Fails if the program has closed the descriptor, and the account cannot be opened again.
    pub fn open(account: &'a AccountFile) -> io::Result<Self> {
        Ok(Self { account, fd: account.kept()? })
    }

    /// Whether a living process holds the slot. Yes if in doubt.
    pub fn is_held(&self, slot: usize) -> bool {
        is_held(self.fd, slot) || !self.account.is_open_as(self.fd).unwrap_or(false)
    }
}

/// Whether the file system of a directory keeps the lock of a file that is mapped when its descriptor
/// is closed. If it does not, every process of an account there seems to be dead. In overlayfs a
/// mapping belongs to the file of the layer below, and not to the open file that has the lock.
///
/// # Errors
/// No file can be created there, mapped or locked.
pub(crate) fn keeps_locks(directory: &Path) -> io::Result<bool> {
    // A child would keep the lock with its copy of the descriptor.
    let _no_fork = NoFork::begin()?;
    let random = u64::from_ne_bytes(random().unwrap_or_default());
    let path = directory.join(format!(".hami-lock-{random:016x}"));
    let create = || File::options().read(true).write(true).create_new(true).mode(0o600).open(&path);
    let (locked, observer) = (create()?, File::open(&path));
    std::fs::remove_file(&path)?;
    let observer = observer?;
    lock_call(locked.as_raw_fd(), libc::F_OFD_SETLK, libc::F_WRLCK, (0, 1))?;
    let map = map_anywhere(locked.as_raw_fd())?;
    drop(locked);
    let found = lock_call(observer.as_raw_fd(), libc::F_OFD_GETLK, libc::F_WRLCK, (0, 1));
    // SAFETY: mapped above, and nothing refers to it.
    unsafe { libc::munmap(map.as_ptr(), MAP_SIZE) };
    Ok(found?.l_type != libc::F_UNLCK as libc::c_short)
}

/// The error for an account whose file system loses locks ([`keeps_locks`]).
pub(crate) fn not_kept() -> io::Error {
    io::Error::other(
        "its file system does not keep the locks that show which processes live (overlayfs does \
         not); use a tmpfs such as /dev/shm (HAMI_RUNTIME_DIR, CUDA_DEVICE_MEMORY_SHARED_CACHE)",
    )
}

/// Whether a lock of a slot is held, tested with any descriptor of the file. Yes if in doubt.
pub(crate) fn is_held(fd: RawFd, slot: usize) -> bool {
    let unlocked = libc::F_UNLCK as libc::c_short;
    let is_free = |byte: usize| {
        lock_call(fd, libc::F_OFD_GETLK, libc::F_WRLCK, (byte as u64, 1))
            .is_ok_and(|lock| lock.l_type == unlocked)
    };
    !bytes_of(slot).into_iter().all(is_free)
}

/// Maps the file as low as possible.
fn map_low(fd: RawFd) -> io::Result<NonNull<libc::c_void>> {
    // A kernel that does not know the flag takes the address as a hint. It may map elsewhere, which
    // is good enough.
    let at = |address| map(fd, address, libc::MAP_FIXED_NOREPLACE).ok();
    LOW.step_by(LOW_STEP).find_map(at).map_or_else(|| map_anywhere(fd), Ok)
}

/// Maps the file where the kernel chooses.
fn map_anywhere(fd: RawFd) -> io::Result<NonNull<libc::c_void>> {
    map(fd, 0, 0)
}

/// Maps the file without access: the mapping only has to exist.
fn map(fd: RawFd, address: usize, fixed: libc::c_int) -> io::Result<NonNull<libc::c_void>> {
    let address = address as *mut libc::c_void;
    let flags = libc::MAP_SHARED | fixed;
    // SAFETY: no existing mapping is replaced.
    let map = unsafe { libc::mmap(address, MAP_SIZE, libc::PROT_NONE, flags, fd, 0) };
    let mapped = (map != libc::MAP_FAILED).then(|| NonNull::new(map)).flatten();
    mapped.ok_or_else(|| failed("mmap"))
}

fn hide_from_children(map: NonNull<libc::c_void>) -> io::Result<()> {
    // SAFETY: the range is a mapping of ours.
    match unsafe { libc::madvise(map.as_ptr(), MAP_SIZE, libc::MADV_DONTFORK) } {
        0 => Ok(()),
        _ => Err(failed("madvise")),
    }
}
