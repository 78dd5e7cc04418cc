//! The contents of a batch: how many launches, of one kind or several, and how long they are
//! predicted to take.

use hami_share::limiter::batch_size;

use crate::budget::Estimate;

/// The sums of a batch.
pub(super) struct Contents {
    pub(super) launches: u32,
    /// The most launches it may have, and the most engine time.
    room: u32,
    limit_ns: u64,
    /// The engine time of its launches whose costs are known.
    pub(super) predicted: u64,
    /// Whether the costs of all launches are known.
    pub(super) is_known: bool,
    /// The key of the kernel, while there is only one.
    pub(super) key: Option<u64>,
}

impl Contents {
    /// A batch of at most `limit_ns` of engine time, with its first launch. With `is_single` it has
    /// no other launch.
    pub(super) fn begin(key: u64, cost: Option<u64>, limit_ns: u64, is_single: bool) -> Self {
        Self {
            launches: 1,
            room: if is_single { 1 } else { batch_size(cost, limit_ns) },
            limit_ns,
            predicted: cost.unwrap_or(0),
            is_known: cost.is_some(),
            key: Some(key),
        }
    }

    /// Whether a launch of this cost may be added.
    pub(super) fn has_room(&self, cost: u64) -> bool {
        self.launches < self.room && cost <= self.room_ns()
    }

    fn room_ns(&self) -> u64 {
        self.limit_ns.saturating_sub(self.predicted)
    }

    /// Adds a launch that there is room for.
    pub(super) fn add(&mut self, key: u64, cost: u64) {
        self.launches += 1;
        self.predicted += cost;
        self.key = self.key.filter(|known| *known == key);
    }

    /// The largest possible budget, in nanoseconds and launches. It leaves room for one more launch
    /// of this cost.
    pub(super) fn largest_budget(&self, cost: u64) -> (u64, u32) {
        (self.room_ns().saturating_sub(cost), self.room - self.launches - 1)
    }

    /// Adds the launches that used the budget.
    pub(super) fn add_used(&mut self, used: Estimate) {
        self.launches += used.launches();
        self.predicted += u64::from(used.ns());
        if used.has_others() {
            self.key = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use hami_share::limiter::BATCH_NS;

    use super::*;

    fn used(launches: &[(u32, bool)]) -> Estimate {
        let estimates =
            launches.iter().map(|(ns, is_other)| Estimate::of_launch(*ns).as_other(*is_other));
        estimates.fold(Estimate::default(), Estimate::plus)
    }

    #[test]
    fn launches_on_a_budget_count_as_admitted_ones_do() {
        let mut batch = Contents::begin(7, Some(20_000), BATCH_NS, false);
        batch.add(7, 20_000);
        batch.add_used(used(&[(20_000, false); 3]));
        assert_eq!((batch.launches, batch.predicted, batch.key), (5, 100_000, Some(7)));
        batch.add_used(used(&[(20_000, false), (500_000, true)]));
        assert_eq!((batch.launches, batch.predicted, batch.key), (7, 620_000, None));
        batch.add(7, 20_000);
        assert_eq!((batch.key, batch.is_known), (None, true), "a mix stays one");
    }

    #[test]
    fn the_last_launch_is_not_in_the_budget() {
        let batch = Contents::begin(7, Some(20_000), BATCH_NS, false);
        assert!(batch.has_room(20_000));
        let (ns, launches) = batch.largest_budget(20_000);
        assert_eq!((ns / 20_000, launches), (98, 98), "100 fit, two need admission");
        let single = Contents::begin(7, Some(20_000), BATCH_NS, true);
        assert!(!single.has_room(20_000));
        let mut full = Contents::begin(7, Some(500_000), BATCH_NS, false);
        assert!(full.has_room(1_500_000) && !full.has_room(1_500_001));
        full.add(8, 1_500_000);
        assert!(!full.has_room(1));
    }

    #[test]
    fn a_kernel_that_was_never_measured_is_alone_in_its_batch() {
        let batch = Contents::begin(7, None, BATCH_NS, false);
        assert!(!batch.is_known && !batch.has_room(1));
    }
}
