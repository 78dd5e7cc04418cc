//! Files that are truncated while they are mapped.
//!
//! The programs of a slice write its account and may truncate it. A process that then reads the
//! mapping beyond the new end is killed by SIGBUS; if that were the coordinator, all slices would
//! lose their leases. So the coordinator installs a handler for that signal. It replaces a mapping
//! that cannot be read any more by zeroes and marks it, and the coordinator stops using that slice.
//!
//! The handler may run between any two instructions, so the mappings are in a table of atomics.

use std::io;
use std::mem::zeroed;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The most mappings: three for each slice.
const REGIONS: usize = 3 * 4096;

/// A mapping in the table. `end` is 0 in a free entry.
struct Region {
    start: AtomicUsize,
    end: AtomicUsize,
    is_truncated: AtomicBool,
}

static TABLE: [Region; REGIONS] = [const {
    Region {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        is_truncated: AtomicBool::new(false),
    }
}; REGIONS];

/// A mapping whose file may be truncated. The caller keeps it mapped while this value exists.
pub(crate) struct Guarded(&'static Region);

impl Guarded {
    /// Fails if the table is full.
    pub fn new(mapping: Range<usize>) -> io::Result<Self> {
        let free = TABLE.iter().find(|region| region.end.load(Ordering::Relaxed) == 0);
        let region = free
            .ok_or_else(|| io::Error::other(format!("more than {} slices at once", REGIONS / 3)))?;
        region.is_truncated.store(false, Ordering::Relaxed);
        region.start.store(mapping.start, Ordering::Relaxed);
        // This store is the last: from here on the handler sees the mapping.
        region.end.store(mapping.end, Ordering::Release);
        Ok(Self(region))
    }

    /// Whether the file was truncated. Then nothing that was read from it counts.
    pub fn is_truncated(&self) -> bool {
        self.0.is_truncated.load(Ordering::Acquire)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.0.end.store(0, Ordering::Release);
    }
}

/// The installed handler. Dropping it restores the previous one.
pub(crate) struct Handler {
    previous: libc::sigaction,
}

impl Handler {
    pub fn install() -> io::Result<Self> {
        // SAFETY: both are plain data for which zero is a value.
        let (mut action, mut previous): (libc::sigaction, libc::sigaction) =
            unsafe { (zeroed(), zeroed()) };
        action.sa_sigaction = replace as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        // SAFETY: the handler only uses what a handler may use: atomics and mmap.
        match unsafe { libc::sigaction(libc::SIGBUS, &raw const action, &raw mut previous) } {
            0 => Ok(Self { previous }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        // SAFETY: the value is from the kernel.
        unsafe { libc::sigaction(libc::SIGBUS, &raw const self.previous, null_mut()) };
    }
}

extern "C" fn replace(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes it, with an address for this signal.
    let address = unsafe { (*info).si_addr() }.addr();
    let region = TABLE.iter().find(|region| {
        let end = region.end.load(Ordering::Acquire);
        (region.start.load(Ordering::Relaxed)..end).contains(&address)
    });
    // SAFETY: the errno of the thread that was interrupted.
    let errno = unsafe { *libc::__errno_location() };
    if region.is_none_or(|region| !map_zeroes(region)) {
        // The fault is not in our mappings: it recurs, and kills the process as it would without
        // us. SAFETY: the default action is always there.
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

fn map_zeroes(region: &Region) -> bool {
    let start = region.start.load(Ordering::Relaxed);
    let size = region.end.load(Ordering::Relaxed) - start;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: exactly one mapping of ours is replaced, by memory in which all accesses are valid.
    let map = unsafe { libc::mmap(start as *mut libc::c_void, size, access, flags, -1, 0) };
    region.is_truncated.store(true, Ordering::Release);
    map != libc::MAP_FAILED
}
