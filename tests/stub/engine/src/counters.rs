//! What a client did, in memory that outlives it.
//!
//! Calls and kernels are counted where they happen; a message each would be far too slow, and a
//! killed process could not send it. So the counters are a page that the server makes, shares with
//! the client, and reads whenever it is asked. The server's wishes travel the other way.

use crate::MAX_CARDS;
use crate::clock::{Clock, RealClock};
use crate::symbols::Library;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Room for the larger of the two libraries.
const SYMBOLS: usize = 1024;
const _: () = assert!(crate::symbols::CUDA.len() <= SYMBOLS);
const _: () = assert!(crate::symbols::NVML.len() <= SYMBOLS);

/// One card's counters.
#[repr(C)]
#[derive(Debug, Default)]
pub struct CardCounters {
    /// Kernels launched.
    pub kernels: AtomicU64,
    /// Nanoseconds they take together, those still running or queued included.
    pub queued_ns: AtomicU64,
    /// When the last of them is done, on the system's monotonic clock.
    pub done_at: AtomicU64,
}

impl CardCounters {
    /// Notes a kernel that will be done at `done_at`.
    pub fn launched(&self, duration: u64, done_at: u64) {
        self.kernels.fetch_add(1, Relaxed);
        self.queued_ns.fetch_add(duration, Relaxed);
        self.done_at.fetch_max(done_at, Relaxed);
    }

    /// Nanoseconds of kernel time up to now: what is still to come is not counted, as far as one
    /// stream's end tells.
    pub fn busy_ns(&self) -> u64 {
        let pending = self.done_at.load(Relaxed).saturating_sub(RealClock.now());
        self.queued_ns.load(Relaxed).saturating_sub(pending)
    }
}

/// A client's counters. Every field is valid when zero.
#[repr(C)]
#[derive(Debug)]
pub struct Counters {
    /// Changes whenever the kernel durations do; written by the engine.
    pub durations_version: AtomicU64,
    /// By card index; written by the client.
    pub cards: [CardCounters; MAX_CARDS],
    /// By symbol; written by the client.
    pub calls: [AtomicU64; SYMBOLS],
    /// Microseconds that every call of a symbol takes longer; written by the engine.
    pub delays_us: [AtomicU32; SYMBOLS],
}

/// What the counters say, in words.
#[derive(Clone, Debug)]
pub struct Activity {
    /// Whose they are.
    pub library: Library,
    /// Calls by symbol, those never called left out.
    pub calls: BTreeMap<&'static str, u64>,
    /// Kernels and their nanoseconds, by card index.
    pub cards: [(u64, u64); MAX_CARDS],
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            // 0 means "never asked", so that the driver asks once.
            durations_version: AtomicU64::new(1),
            cards: std::array::from_fn(|_| CardCounters::default()),
            calls: [const { AtomicU64::new(0) }; SYMBOLS],
            delays_us: [const { AtomicU32::new(0) }; SYMBOLS],
        }
    }
}

impl Counters {
    /// Reads everything.
    pub fn activity(&self, library: Library) -> Activity {
        let calls = library.symbols().iter().zip(&self.calls);
        Activity {
            library,
            calls: calls
                .map(|(name, count)| (*name, count.load(Relaxed)))
                .filter(|(_, count)| *count > 0)
                .collect(),
            cards: std::array::from_fn(|index| {
                let card = &self.cards[index];
                (card.kernels.load(Relaxed), card.busy_ns())
            }),
        }
    }
}

/// [`Counters`] in shared memory.
#[derive(Debug)]
pub struct Shared(*mut Counters);

// SAFETY: the mapping is only ever reached through the atomics of `Counters`.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// New counters, all zero, and the file that another process can map.
    pub fn create() -> std::io::Result<(Self, File)> {
        // SAFETY: the name is a C string; the result is checked.
        let fd = unsafe { libc::memfd_create(c"stub-gpu-counters".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and ours alone.
        let file = unsafe { <File as std::os::fd::FromRawFd>::from_raw_fd(fd) };
        file.set_len(size_of::<Counters>() as u64)?;
        Ok((Self::map(&file)?, file))
    }

    /// The counters in a file that [`Shared::create`] made.
    pub fn map(file: &File) -> std::io::Result<Self> {
        if file.metadata()?.len() < size_of::<Counters>() as u64 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<Counters>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        Ok(Self(start.cast()))
    }
}

impl std::ops::Deref for Shared {
    type Target = Counters;

    fn deref(&self) -> &Counters {
        // SAFETY: the mapping is as large as `Counters`, whose fields are valid whatever is there.
        unsafe { &*self.0 }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference outlives `self`.
        unsafe { libc::munmap(self.0.cast(), size_of::<Counters>()) };
    }
}
