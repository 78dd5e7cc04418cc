//! Files that are cut short while they are mapped.
//!
//! An account is written by the programs of its slice, which may cut it short. One that does so
//! would end whoever reads the mapping behind its new end, with SIGBUS; and with the coordinator the
//! turns of everybody would end. So while it works, that signal has a handler: a mapping that can be
//! read no more is replaced by zeroes, and marked, and its slice is looked at no longer.
//!
//! The handler may run between any two instructions, so it knows the mappings from a table of atomics.

use std::io;
use std::mem::zeroed;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Mappings of all slices: three each.
const PLACES: usize = 3 * 4096;

/// `end` is 0 in a free place.
struct Place {
    start: AtomicUsize,
    end: AtomicUsize,
    is_cut: AtomicBool,
}

static TABLE: [Place; PLACES] = [const {
    Place { start: AtomicUsize::new(0), end: AtomicUsize::new(0), is_cut: AtomicBool::new(false) }
}; PLACES];

/// A mapping whose file may be cut short. It stays mapped as long as this is kept.
pub(crate) struct Guarded(&'static Place);

impl Guarded {
    /// Fails where the table is full.
    pub fn new(mapping: Range<usize>) -> io::Result<Self> {
        let free = TABLE.iter().find(|place| place.end.load(Ordering::Relaxed) == 0);
        let place = free
            .ok_or_else(|| io::Error::other(format!("more than {} slices at once", PLACES / 3)))?;
        place.is_cut.store(false, Ordering::Relaxed);
        place.start.store(mapping.start, Ordering::Relaxed);
        // Last: from here on the handler sees it.
        place.end.store(mapping.end, Ordering::Release);
        Ok(Self(place))
    }

    /// Whether some of what was read was not there: then none of it counts.
    pub fn is_cut(&self) -> bool {
        self.0.is_cut.load(Ordering::Acquire)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.0.end.store(0, Ordering::Release);
    }
}

/// The handler, for as long as this lives.
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
        // SAFETY: the handler does what a handler may: atomics and mmap.
        match unsafe { libc::sigaction(libc::SIGBUS, &raw const action, &raw mut previous) } {
            0 => Ok(Self { previous }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        // SAFETY: what the kernel gave us.
        unsafe { libc::sigaction(libc::SIGBUS, &raw const self.previous, null_mut()) };
    }
}

extern "C" fn replace(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes it, with an address for this signal.
    let address = unsafe { (*info).si_addr() }.addr();
    let place = TABLE.iter().find(|place| {
        let end = place.end.load(Ordering::Acquire);
        (place.start.load(Ordering::Relaxed)..end).contains(&address)
    });
    // SAFETY: the errno of the thread that was interrupted.
    let errno = unsafe { *libc::__errno_location() };
    if place.is_none_or(|place| !put_zeroes(place)) {
        // Somebody else's fault: it comes again, and ends the process as it would have without us.
        // SAFETY: the default action is always there.
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

fn put_zeroes(place: &Place) -> bool {
    let start = place.start.load(Ordering::Relaxed);
    let size = place.end.load(Ordering::Relaxed) - start;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: exactly a mapping of ours is replaced, by memory in which any access is as good.
    let map = unsafe { libc::mmap(start as *mut libc::c_void, size, access, flags, -1, 0) };
    place.is_cut.store(true, Ordering::Release);
    map != libc::MAP_FAILED
}
