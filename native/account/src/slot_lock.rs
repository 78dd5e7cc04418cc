//! The lock that proves that a process lives: only that process can hold it, and the kernel releases it.
//!
//! A pid is no proof: it is reused, and it differs between namespaces. So a process owns its slot by
//! an open-file-description lock on the slot's byte of the file. Three things can break such a lock:
//!
//! * The program closes all descriptors. So a mapping of the same open file keeps the lock, and we
//!   close the descriptor ourselves.
//! * A child inherits it. So the mapping is hidden from children, and no thread can fork before it is.
//! * It is released before the process has stopped using memory. The kernel removes mappings after all
//!   threads have exited, and measurements show that it removes the lowest addresses last. So the
//!   mapping is placed as low as possible.
//!
//! To reap a slot, a process takes over the lock of the dead one. So only one of several reapers
//! proceeds, none touches a slot that has a new process, and a killed reaper blocks no other.

use crate::file::{AccountFile, Descriptor};
use crate::fork::{NoFork, generation};
use std::io;
use std::mem::zeroed;
use std::os::fd::RawFd;
use std::ptr::NonNull;

const MAP_SIZE: usize = 4096;
/// The addresses to try: from the lowest one that a program may usually map to the lowest one at which
/// programs are usually loaded.
const LOW: std::ops::Range<usize> = 0x1_0000..0x40_0000;
/// A multiple of every page size.
const LOW_STEP: usize = 0x1_0000;

/// A slot's lock. It is held until this value is dropped, or until the process exits or calls exec.
#[derive(Debug)]
pub(crate) struct SlotLock {
    map: NonNull<libc::c_void>,
    generation: u32,
}

// SAFETY: the mapping is never accessed, only kept.
unsafe impl Send for SlotLock {}
// SAFETY: as above.
unsafe impl Sync for SlotLock {}

impl SlotLock {
    /// Takes the lock of a slot; `None` if a living process has it.
    pub fn try_take(account: &AccountFile, slot: usize) -> io::Result<Option<Self>> {
        // To fail, the program would have to close the descriptor at the same moment each time.
        const ATTEMPTS: u32 = 5;
        let _no_fork = NoFork::begin()?;
        for _ in 0..ATTEMPTS {
            let file = account.open(libc::O_RDWR)?;
            let kept = map_low(file.fd).map(|map| Self { map, generation: generation() });
            if !file.is_ours() {
                continue;
            }
            let kept = kept?;
            hide_from_children(kept.map)?;
            match lock_call(file.fd, libc::F_OFD_SETLK, slot) {
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

impl Drop for SlotLock {
    fn drop(&mut self) {
        // A child does not have the mapping; something else may be at its address.
        if self.generation == generation() {
            // SAFETY: the mapping is ours, and nothing refers to it.
            unsafe { libc::munmap(self.map.as_ptr(), MAP_SIZE) };
        }
    }
}

/// Tests locks without taking them. Read access to the file is enough.
pub(crate) struct Probe {
    file: Descriptor,
    _no_fork: NoFork,
}

impl Probe {
    /// Fails if the account cannot be opened: then every process counts as alive.
    pub fn open(account: &AccountFile) -> io::Result<Self> {
        let no_fork = NoFork::begin()?;
        Ok(Self { file: account.open(libc::O_RDONLY)?, _no_fork: no_fork })
    }

    /// Whether a living process holds the slot. Yes if in doubt.
    pub fn is_held(&self, slot: usize) -> bool {
        is_held(self.file.fd, slot) || !self.file.is_ours()
    }
}

/// Whether the lock of a slot is held, tested with any descriptor of the file. Yes if in doubt.
pub(crate) fn is_held(fd: RawFd, slot: usize) -> bool {
    let unlocked = libc::F_UNLCK as libc::c_short;
    !lock_call(fd, libc::F_OFD_GETLK, slot).is_ok_and(|lock| lock.l_type == unlocked)
}

fn lock_call(fd: RawFd, command: libc::c_int, slot: usize) -> io::Result<libc::flock> {
    // SAFETY: flock is plain data for which zero is a value; `l_pid` must be zero.
    let mut lock: libc::flock = unsafe { zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = slot as libc::off_t;
    lock.l_len = 1;
    // SAFETY: `lock` is valid for the call.
    match unsafe { libc::fcntl(fd, command, &raw mut lock) } {
        0 => Ok(lock),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Maps the file as low as possible, without access: the mapping only has to exist.
fn map_low(fd: RawFd) -> io::Result<NonNull<libc::c_void>> {
    let low = LOW.step_by(LOW_STEP).map(|address| (address, libc::MAP_FIXED_NOREPLACE));
    for (address, fixed) in low.chain([(0, 0)]) {
        let flags = libc::MAP_SHARED | fixed;
        // SAFETY: no existing mapping is replaced. Kernels that do not know the flag use the address as
        // a hint and map elsewhere, which is good enough.
        let map = unsafe {
            libc::mmap(address as *mut libc::c_void, MAP_SIZE, libc::PROT_NONE, flags, fd, 0)
        };
        if map == libc::MAP_FAILED {
            continue;
        }
        if let Some(map) = NonNull::new(map) {
            return Ok(map);
        }
    }
    Err(io::Error::last_os_error())
}

fn hide_from_children(map: NonNull<libc::c_void>) -> io::Result<()> {
    // SAFETY: the range is a mapping of ours.
    match unsafe { libc::madvise(map.as_ptr(), MAP_SIZE, libc::MADV_DONTFORK) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
