//! The most that can be billed: the wall time in which anything was outstanding on the card.
//!
//! What is measured may be more. Two contexts of a process take turns on the card, and each one's
//! elapsed time has the other's turns in it.

/// Wall time in which a process had work outstanding on a card, and which no bill has used up.
#[derive(Clone, Debug, Default)]
pub struct Wall {
    /// Since when something has been outstanding, as far as that is not yet in `unused`.
    since: Option<u64>,
    unused: u64,
}

impl Wall {
    /// Something is outstanding from `now` on.
    pub fn begin(&mut self, now: u64) {
        self.since.get_or_insert(now);
    }

    /// Bills `measured` ns of engine time, but no more than can have been: what is billed of it.
    /// `rest`: something is still outstanding.
    pub fn bill(&mut self, now: u64, measured: u64, rest: bool) -> u64 {
        self.settle(now);
        let billed = measured.min(self.unused);
        self.use_up(billed, now, rest);
        billed
    }

    /// The same of what was not measured, and is billed as it was predicted: it may still run when it
    /// no longer counts as outstanding.
    pub fn bill_unmeasured(&mut self, now: u64, predicted: u64, rest: bool) {
        self.settle(now);
        self.use_up(predicted, now, rest);
    }

    fn settle(&mut self, now: u64) {
        if let Some(since) = self.since.replace(now) {
            self.unused = self.unused.saturating_add(now.saturating_sub(since));
        }
    }

    fn use_up(&mut self, billed: u64, now: u64, rest: bool) {
        // Nothing that comes later can have run in what is left of it now.
        self.unused = if rest { self.unused.saturating_sub(billed) } else { 0 };
        self.since = rest.then_some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_contexts_that_take_turns_are_billed_the_time_that_passed() {
        let mut wall = Wall::default();
        wall.begin(100);
        // Both were in flight for 4 ms, and each measured all of them.
        assert_eq!(wall.bill(4_100, 4_000, true), 4_000);
        assert_eq!(wall.bill(4_100, 4_000, true), 0);
        assert_eq!(wall.bill(8_100, 3_000, true), 3_000);
        assert_eq!(wall.bill(8_200, 3_000, false), 1_100, "what the last bill left, and since");
    }

    #[test]
    fn time_with_nothing_outstanding_pays_for_nothing() {
        let mut wall = Wall::default();
        assert_eq!(wall.bill(50, 10, false), 0);
        wall.begin(100);
        wall.begin(120);
        assert_eq!(wall.bill(200, 30, false), 30);
        wall.begin(1_000);
        assert_eq!(wall.bill(1_010, 30, false), 10);
    }

    #[test]
    fn what_was_not_measured_is_billed_whatever_has_passed() {
        let mut wall = Wall::default();
        wall.begin(0);
        wall.bill_unmeasured(10, 500, true);
        assert_eq!(wall.bill(30, 100, true), 20);
    }

    #[test]
    fn a_clock_that_goes_back_is_no_time() {
        let mut wall = Wall::default();
        wall.begin(100);
        assert_eq!(wall.bill(50, 10, true), 0);
        assert_eq!(wall.bill(60, 100, false), 10);
    }
}
