//! What a client did, in memory that outlives it.
//!
//! Calls and kernels are counted where they happen; a message each would be far too slow, and a
//! killed process could not send it. So the counters lie in a page that the server makes, shares with
//! the client ([`crate::ring::Shared`]), and reads whenever it is asked. The server's wishes travel
//! the other way.

use crate::MAX_CARDS;
use crate::symbols::Library;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Room for the larger of the two libraries.
const SYMBOLS: usize = 1024;
const _: () = assert!(crate::symbols::CUDA.len() <= SYMBOLS);
const _: () = assert!(crate::symbols::NVML.len() <= SYMBOLS);

/// A client's counters. Every field is valid when zero.
#[repr(C)]
#[derive(Debug)]
pub struct Counters {
    /// Changes whenever the kernel durations do; written by the engine.
    pub durations_version: AtomicU64,
    /// Kernels launched, by card index; written by the client.
    pub kernels: [AtomicU64; MAX_CARDS],
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
    /// Kernels launched, by card index.
    pub kernels: [u64; MAX_CARDS],
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            // 0 means "never asked", so that the driver asks once.
            durations_version: AtomicU64::new(1),
            kernels: [const { AtomicU64::new(0) }; MAX_CARDS],
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
            kernels: self.kernels.each_ref().map(|count| count.load(Relaxed)),
        }
    }
}
