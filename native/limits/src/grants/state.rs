//! The report with which a process answers a grant.
//!
//! The account stores it as one word: the number of the grant that the process has seen, the state
//! of its work, whether the work is stalled, and how long the next launch takes. The interposer
//! writes it, the coordinator reads it, and both use these types.

/// A process's work on a card.
#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ComputeState {
    /// Nothing is in flight, and no admission is requested. A thread may still wait for the
    /// process's own bucket during a lease of the process, because no grant fills that bucket.
    #[default]
    Idle = 0,
    /// A thread waits to launch, for a lease or, without leases, for the process's own bucket.
    /// Nothing is in flight.
    Waiting = 1,
    /// Work may be in flight. The last of it may have just ended.
    Running = 2,
}

/// The report of a process about its work on one card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The number of the grant that the process had seen.
    pub grant: u32,
    /// The state of its work.
    pub state: ComputeState,
    /// Whether no interval in flight has ended for longer than the process expected. The work may
    /// wait for a launch that waits for a lease.
    pub is_stalled: bool,
    /// Whether its work is in several contexts.
    pub is_split: bool,
    /// The predicted time of the launch that waits for a lease, in nanoseconds; 0 if no launch
    /// waits.
    pub needs_ns: u64,
}

/// The lowest two bits of the word are the state, the third is the stall, and the fourth says that
/// the work is in several contexts. Bytes 1 to 3 are the
/// need, and the upper half is the number of the grant.
const STATE: u64 = 3;
const STALLED: u64 = 4;
const SPLIT: u64 = 8;
const NEED_SHIFT: u32 = 8;
const GRANT_SHIFT: u32 = 32;
/// The unit of a need. The 24 bits hold up to 167 s.
const NEED_UNIT_NS: u64 = 10_000;
const LARGEST_NEED: u64 = (1 << (GRANT_SHIFT - NEED_SHIFT)) - 1;

impl Report {
    /// The word. The need is rounded up to 10 µs.
    #[inline]
    pub fn to_word(self) -> u64 {
        let need = self.needs_ns.div_ceil(NEED_UNIT_NS).min(LARGEST_NEED);
        let stalled = if self.is_stalled { STALLED } else { 0 };
        let split = if self.is_split { SPLIT } else { 0 };
        u64::from(self.grant) << GRANT_SHIFT
            | need << NEED_SHIFT
            | split
            | stalled
            | self.state as u64
    }

    /// The report in a word. An unknown state is read as idle, so that no process waits for another
    /// that writes invalid words.
    #[inline]
    pub fn from_word(word: u64) -> Self {
        let state = match word & STATE {
            1 => ComputeState::Waiting,
            2 => ComputeState::Running,
            _ => ComputeState::Idle,
        };
        let needs_ns = (word >> NEED_SHIFT & LARGEST_NEED) * NEED_UNIT_NS;
        let is_stalled = word & STALLED != 0;
        let is_split = word & SPLIT != 0;
        Self { grant: (word >> GRANT_SHIFT) as u32, state, is_stalled, is_split, needs_ns }
    }

    /// Whether a launch waits.
    pub fn waits(self) -> bool {
        self.state == ComputeState::Waiting || self.needs_ns > 0
    }
}

#[cfg(test)]
mod tests {
    use super::ComputeState::{Idle, Running, Waiting};
    use super::{NEED_UNIT_NS, Report};

    #[test]
    fn a_word_holds_the_whole_report() {
        for grant in [0, 1, 7, u32::MAX] {
            for state in [Idle, Waiting, Running] {
                for (is_stalled, needs_ns) in [(false, 0), (true, 10_000), (true, 167_000_000_000)]
                {
                    let report =
                        Report { grant, state, is_stalled, is_split: grant == 7, needs_ns };
                    assert_eq!(Report::from_word(report.to_word()), report);
                }
            }
        }
        let report =
            Report { grant: 7, state: Running, is_stalled: true, needs_ns: 1, ..Report::default() };
        assert_eq!(report.to_word(), 0x0000_0007_0000_0106, "rounded up");
        let long = Report { needs_ns: u64::MAX, ..report };
        assert_eq!(long.to_word(), 0x0000_0007_ffff_ff06, "at most");
    }

    #[test]
    fn an_unknown_state_is_idle() {
        assert_eq!(Report::from_word(9 << 32 | 3).state, Idle);
    }

    #[test]
    fn a_running_process_with_a_need_waits_too() {
        let report = Report { state: Running, ..Report::default() };
        assert!(!report.waits());
        assert!(Report { needs_ns: NEED_UNIT_NS, ..report }.waits());
        assert!(Report { state: Waiting, ..report }.waits());
    }
}
