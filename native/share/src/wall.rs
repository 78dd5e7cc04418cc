//! The most that can be billed: the wall time in which work was outstanding on the card.
//!
//! The measured time may be more. Two contexts of a process take turns on the card, and the elapsed
//! time of each one includes the turns of the other.

/// The wall time in which a process had work outstanding on a card, less the time that was billed.
#[derive(Clone, Debug, Default)]
pub struct Wall {
    /// Since when work has been outstanding whose time is not yet in `unused`.
    since: Option<u64>,
    unused: u64,
}

impl Wall {
    /// Work is outstanding from `now` on.
    pub fn begin(&mut self, now: u64) {
        self.since.get_or_insert(now);
    }

    /// Bills `measured` ns of engine time, but no more than is possible. It returns the billed
    /// time. `rest`: other work is still outstanding.
    pub fn bill(&mut self, now: u64, measured: u64, rest: bool) -> u64 {
        if let Some(since) = self.since {
            self.unused = self.unused.saturating_add(now.saturating_sub(since));
        }
        let billed = measured.min(self.unused);
        // Later work cannot have run in the time that is left now.
        self.unused = if rest { self.unused - billed } else { 0 };
        self.since = rest.then_some(now);
        billed
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
        assert_eq!(
            wall.bill(8_200, 3_000, false),
            1_100,
            "the rest of the last bill, and the time since"
        );
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
    fn a_clock_that_goes_back_is_no_time() {
        let mut wall = Wall::default();
        wall.begin(100);
        assert_eq!(wall.bill(50, 10, true), 0);
        assert_eq!(wall.bill(60, 100, false), 10);
    }
}
