//! How long a launch waits for work of its own process that makes no progress.

use super::outstanding::Outstanding;

/// The shortest patience. A batch of short kernels takes less, even if its end is noticed late.
const PATIENCE_NS: u64 = 10_000_000;
/// The longest time between two launches that are let through in one stall.
const LONGEST_PATIENCE_NS: u64 = 500_000_000;

/// Work that ends so soon after a launch was let through may have waited for it.
const ENDED_NS: u64 = 2_000_000;

/// Since when the work in flight has made no progress, and which launches were let through.
///
/// Patience is longer than the batches in flight are predicted to take. Work that was never
/// measured may take any time, and so may more launches of its kind. So the more of them were let
/// through, the longer the next one waits. Of launches on idle streams, or of another kind than the
/// one that runs before them, twice as many are let through each time: the work may wait for any of
/// hundreds.
#[derive(Debug, Default)]
pub(super) struct Stall {
    progressed_at: u64,
    let_through_at: u64,
    /// How many launches were let through since the last progress.
    let_through: u32,
    /// When work last ended soon after a launch was let through.
    resolved_at: u64,
}

impl Stall {
    /// A batch has ended, or one has begun on an idle card.
    pub(super) fn progress(&mut self, at: u64) {
        if self.is_resolved(at) {
            self.resolved_at = at;
        }
        (self.progressed_at, self.let_through_at, self.let_through) = (at, at, 0);
    }

    /// A launch did not wait any longer.
    pub(super) fn let_through(&mut self, at: u64) {
        self.let_through_at = at;
        self.let_through = self.let_through.saturating_add(1);
    }

    /// Whether work that began at `began` and ends now may have waited for a launch that was let
    /// through. Then its time says nothing about its kernels.
    pub(super) fn may_have_waited(&self, began: u64, at: u64) -> bool {
        self.is_resolved(at) || began <= self.resolved_at
    }

    fn is_resolved(&self, at: u64) -> bool {
        self.let_through_at > self.progressed_at && at < self.let_through_at + ENDED_NS
    }

    /// When the next launch may be let through, if nothing ends before. `u64::MAX` if nothing is in
    /// flight. `users`: the number of processes that may have to share the card.
    pub(super) fn ends_at(
        &self,
        outstanding: &Outstanding,
        is_behind_own_kind: bool,
        users: u32,
    ) -> u64 {
        if outstanding.is_empty() {
            return u64::MAX;
        }
        let expected = outstanding.next_batches();
        let patience = PATIENCE_NS.max(expected + expected / 4) * u64::from(users);
        if is_behind_own_kind {
            let stall = self.let_through_at - self.progressed_at;
            return self.let_through_at + patience.max((stall / 2).min(LONGEST_PATIENCE_NS));
        }
        // 1, 2, 4, 8, ... launches at once.
        let is_first = (self.let_through + 1).is_power_of_two();
        self.let_through_at + if is_first { patience } else { 0 }
    }

    /// Whether a launch was let through since there was progress.
    pub(super) fn goes_on(&self) -> bool {
        self.let_through > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn outstanding(batches: &[(u64, u64)]) -> Outstanding {
        let mut outstanding = Outstanding::default();
        for (queue, ns) in batches {
            outstanding.add(*queue, *ns, 0);
        }
        outstanding
    }

    #[test]
    fn patience_is_as_long_as_the_work_in_flight_is_known_to_take() {
        let stall = Stall::default();
        assert_eq!(stall.ends_at(&Outstanding::default(), false, 1), u64::MAX);
        assert_eq!(stall.ends_at(&outstanding(&[(1, MS)]), true, 1), 10 * MS);
        assert_eq!(stall.ends_at(&outstanding(&[(1, 400 * MS)]), true, 1), 500 * MS);
        // Two batches behind each other: the first one ends when it is half over.
        assert_eq!(stall.ends_at(&outstanding(&[(1, 40 * MS), (1, 40 * MS)]), true, 1), 50 * MS);
        // Two streams may have to share the card, and so may two processes.
        assert_eq!(stall.ends_at(&outstanding(&[(1, 40 * MS), (2, 40 * MS)]), true, 1), 100 * MS);
        assert_eq!(stall.ends_at(&outstanding(&[(1, 40 * MS)]), true, 2), 100 * MS);
    }

    #[test]
    fn a_long_kernel_that_was_never_measured_lets_few_launches_through() {
        let mut stall = Stall::default();
        let work = outstanding(&[(1, MS)]);
        let mut times = Vec::new();
        while stall.ends_at(&work, true, 1) < 500 * MS {
            let at = stall.ends_at(&work, true, 1);
            stall.let_through(at);
            times.push(at / MS);
        }
        assert_eq!(times, [10, 20, 30, 45, 67, 101, 151, 227, 341]);
        stall.progress(500 * MS);
        assert_eq!(stall.ends_at(&work, true, 1), 510 * MS);
    }

    #[test]
    fn the_time_of_work_that_waited_for_a_launch_is_not_learned() {
        let mut stall = Stall::default();
        stall.progress(MS);
        assert!(!stall.may_have_waited(MS, MS));
        stall.let_through(11 * MS);
        assert!(stall.may_have_waited(MS, 12 * MS));
        assert!(!stall.may_have_waited(MS, 13 * MS));
        stall.progress(12 * MS);
        assert!(stall.may_have_waited(2 * MS, 13 * MS), "it may have waited too");
        assert!(!stall.may_have_waited(12 * MS + 1, 13 * MS));
    }

    #[test]
    fn as_many_streams_as_needed_get_through() {
        let mut stall = Stall::default();
        let work = outstanding(&[(1, MS)]);
        for _ in 1..=240 {
            stall.let_through(stall.ends_at(&work, false, 1));
        }
        assert_eq!(stall.let_through_at, 80 * MS);
    }
}
