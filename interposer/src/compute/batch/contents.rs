//! What is in a batch: how many launches, of one kind or several, and what they are predicted to take.

use hami_share::limiter::{BATCH_NS, batch_size};

use crate::compute::ticket::Price;

/// See the module.
pub(super) struct Contents {
    pub(super) launches: u32,
    /// The most launches it may have.
    room: u32,
    /// Engine time of its launches, as far as their costs are known.
    pub(super) predicted: u64,
    /// Whether all costs are known.
    pub(super) is_known: bool,
    /// The kernel, as long as there is only one.
    pub(super) key: Option<u64>,
}

impl Contents {
    /// A first launch; `is_single` where it is to be the only one.
    pub(super) fn begin(key: u64, cost: Option<u64>, is_single: bool) -> Self {
        Self {
            launches: 1,
            room: if is_single { 1 } else { batch_size(cost) },
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
        BATCH_NS.saturating_sub(self.predicted)
    }

    /// Adds a launch that there is room for.
    pub(super) fn add(&mut self, key: u64, cost: u64) {
        self.launches += 1;
        self.predicted += cost;
        self.key = self.key.filter(|known| *known == key);
    }

    /// How much a ticket may be good for, in ns and launches: all but one more launch of this cost, which
    /// there is room for.
    pub(super) fn ticket(&self, cost: u64) -> (u64, u32) {
        (self.room_ns().saturating_sub(cost), self.room - self.launches - 1)
    }

    /// Adds what was launched on a ticket.
    pub(super) fn add_used(&mut self, used: Price) {
        self.launches += used.launches();
        self.predicted += u64::from(used.ns());
        if used.has_others() {
            self.key = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(launches: &[(u32, bool)]) -> Price {
        let prices =
            launches.iter().map(|(ns, is_other)| Price::of_launch(*ns).as_other(*is_other));
        prices.fold(Price::default(), Price::plus)
    }

    #[test]
    fn launches_on_a_ticket_count_as_those_by_the_gate_do() {
        let mut batch = Contents::begin(7, Some(20_000), false);
        batch.add(7, 20_000);
        batch.add_used(used(&[(20_000, false); 3]));
        assert_eq!((batch.launches, batch.predicted, batch.key), (5, 100_000, Some(7)));
        batch.add_used(used(&[(20_000, false), (500_000, true)]));
        assert_eq!((batch.launches, batch.predicted, batch.key), (7, 620_000, None));
        batch.add(7, 20_000);
        assert_eq!((batch.key, batch.is_known), (None, true), "a mix stays one");
    }

    #[test]
    fn the_last_launch_is_not_the_ticket_s() {
        let batch = Contents::begin(7, Some(20_000), false);
        assert!(batch.has_room(20_000));
        let (ns, launches) = batch.ticket(20_000);
        assert_eq!((ns / 20_000, launches), (98, 98), "100 fit, two come by the gate");
        let single = Contents::begin(7, Some(20_000), true);
        assert!(!single.has_room(20_000));
        let mut full = Contents::begin(7, Some(500_000), false);
        assert!(full.has_room(1_500_000) && !full.has_room(1_500_001));
        full.add(8, 1_500_000);
        assert!(!full.has_room(1));
    }

    #[test]
    fn a_kernel_that_was_never_measured_stays_alone() {
        let batch = Contents::begin(7, None, false);
        assert!(!batch.is_known && !batch.has_room(1));
    }
}
