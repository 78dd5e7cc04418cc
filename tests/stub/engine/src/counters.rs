//! A client's counters, in memory that outlives the client.
//!
//! A message for each call or kernel would be too slow, and a killed process could not send it. So
//! the client counts in a page that the server creates, shares with the client
//! ([`crate::ring::Shared`]) and reads when it needs the counters. The server's orders to the
//! client (durations, delays, faults of cards) are in the same page.

use crate::MAX_CARDS;
use crate::health::Health;
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
    /// Changes when the kernel durations change; written by the engine.
    pub durations_version: AtomicU64,
    /// The faults of the cards; written by the engine.
    pub health: Health,
    /// Kernels launched, by card index; written by the client.
    pub kernels: [AtomicU64; MAX_CARDS],
    /// By symbol; written by the client.
    pub calls: [AtomicU64; SYMBOLS],
    /// By symbol, the microseconds that every call takes longer; written by the engine.
    pub delays_us: [AtomicU32; SYMBOLS],
}

/// The values of the counters, by name.
#[derive(Clone, Debug)]
pub struct Activity {
    /// The client's library.
    pub library: Library,
    /// Calls by symbol, without symbols that were never called.
    pub calls: BTreeMap<&'static str, u64>,
    /// Kernels launched, by card index.
    pub kernels: [u64; MAX_CARDS],
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            // The driver starts at 0, so it reads the durations once.
            durations_version: AtomicU64::new(1),
            health: Health::default(),
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
