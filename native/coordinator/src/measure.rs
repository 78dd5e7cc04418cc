//! What the driver holds for the processes of a slice beyond what they are charged.
//!
//! The driver does not report what it takes for modules, and other memory of its own is charged by a
//! table. NVML reports what it holds for each process. The difference is known only while the process
//! neither allocates nor frees: then two sweeps show the same bytes, and its charge is the same when
//! both are read. While a process allocates all the time, its last difference stays.

use crate::sweep::Sweep;
use hami_account::{Holding, ProcessIdentity};

/// One process on one card, between sweeps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measure {
    /// The start of the last sweep that was read, and what was seen then.
    swept_at: u64,
    held: u64,
    holding: Holding,
    /// What the driver holds beyond the charge.
    excess: u64,
}

impl Measure {
    /// What the driver holds beyond the charge, as far as it is known.
    pub fn excess(&self) -> u64 {
        self.excess
    }

    /// Compares a sweep with the process's charge, which was read after it. Returns the excess.
    pub fn update(
        &mut self,
        sweep: &Sweep,
        process: &ProcessIdentity,
        uuid: &str,
        holding: Holding,
    ) -> u64 {
        if sweep.started_at == self.swept_at {
            return self.excess;
        }
        let Some(held) = sweep.memory_of(process, uuid) else { return self.excess };
        let is_stable = self.swept_at != 0 && (held, holding) == (self.held, self.holding);
        if is_stable {
            // Managed memory is charged where it was allocated, and may be on the host.
            self.excess = held.saturating_sub(holding.bytes);
        }
        (self.swept_at, self.held, self.holding) = (sweep.started_at, held, holding);
        self.excess
    }
}
