//! The lease that a process gives itself: a hard share without a coordinator, and of a process that
//! has the card alone.
//!
//! The bucket gets credit by the clock and pays the engine time that was measured. A lease begins
//! when the bucket has credit. What the lease begins together is launched together, so kernels of
//! several streams overlap as without a share, and a step of a program is not cut. The debt is paid
//! by a later beginning of the next lease. If kernels of several streams run at the same time, the
//! leases and the pauses are longer: a pipeline over streams begins each lease with one stream.

use crate::{Bucket, WHOLE_PPM, timing};

/// The bucket of a process, and the end of its last lease.
#[derive(Clone, Debug)]
pub struct OwnLease {
    /// Credit less engine time.
    pub bucket: Bucket,
    until: u64,
    /// The recent time of the streams, and of the card: less, if streams run at the same time.
    on_streams: u64,
    on_card: u64,
}

/// Whether the process may launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    /// It may have this much work in flight, in ns.
    Held(u64),
    /// It has no credit until then, if nothing else is billed.
    Empty(u64),
}

impl OwnLease {
    /// Without credit.
    pub fn new(now: u64) -> Self {
        Self { bucket: Bucket::new(now), until: 0, on_streams: 0, on_card: 0 }
    }

    /// Work of a stream has ended that took the time `took`, of which `billed` was billed.
    pub fn ended(&mut self, took: u64, billed: u64) {
        (self.on_streams, self.on_card) = (self.on_streams + took, self.on_card + billed);
        if self.on_card > timing::RECENT {
            (self.on_streams, self.on_card) = (self.on_streams / 2, self.on_card / 2);
        }
    }

    /// How many streams have run at the same time.
    pub fn overlap(&self) -> u64 {
        (self.on_streams / self.on_card.max(1)).max(1)
    }

    /// Asks for a launch. `running`: since when work that is not billed yet has been running.
    /// `depth`: the most that may be in flight.
    pub fn ask(&mut self, now: u64, rate_ppm: u32, running: Option<u64>, depth: u64) -> Own {
        self.bucket.set_rate(now, rate_ppm);
        let unbilled = running.map_or(0, |since| now.saturating_sub(since));
        let balance = self.bucket.balance(now).saturating_sub_unsigned(unbilled);
        // A pause takes as long as the lease before it, over the share.
        let (rate, whole) = (u64::from(rate_ppm.max(1)), u64::from(WHOLE_PPM));
        let rest = whole.saturating_sub(rate).max(1);
        let length = timing::PAUSE.saturating_mul(rate) / rest;
        if balance > 0 && now >= self.until {
            let longer = length.saturating_mul(self.overlap().min(5));
            self.until = now + longer.clamp(timing::DEPTH, timing::LEASE * self.overlap().min(2));
        }
        if now < self.until {
            return Own::Held(depth.min(length.max(timing::DEPTH)));
        }
        let missing = (1 - balance).max(0).unsigned_abs();
        Own::Empty(now + (missing.saturating_mul(whole) / rate).max(1))
    }
}
