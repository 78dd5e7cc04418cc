//! A process's own bucket: credit by the clock, debit by measured engine time.

use crate::timing;

/// A whole card, in the unit of all rates and weights.
pub const WHOLE_PPM: u32 = 1_000_000;

/// One nanosecond of balance. The balance is kept in millionths of it, so that no credit is rounded
/// away, however often it is computed.
pub(crate) const NS: i64 = WHOLE_PPM as i64;

/// The engine time that a process may use before it has to wait; negative while it owes some.
#[derive(Clone, Debug)]
pub struct Bucket {
    /// Millionths of ns at the instant `at`.
    balance: i64,
    at: u64,
    rate_ppm: u32,
    /// Since when work has been in flight that is not debited yet.
    unbilled_since: Option<u64>,
    forgiven_ns: u64,
}

impl Bucket {
    /// An empty bucket without a rate; see [`set_rate`](Self::set_rate).
    pub fn new(now: u64) -> Self {
        Self { balance: 0, at: now, rate_ppm: 0, unbilled_since: None, forgiven_ns: 0 }
    }

    /// The rate of its credit, in millionths.
    pub fn rate_ppm(&self) -> u32 {
        self.rate_ppm
    }

    /// Credits `rate_ppm` millionths of the time from `now` on. More than the whole card counts as
    /// the whole.
    pub fn set_rate(&mut self, now: u64, rate_ppm: u32) {
        self.advance(now);
        self.rate_ppm = rate_ppm.min(WHOLE_PPM);
    }

    /// From `now` on, work is in flight that started at `since`, or none is. Its time is debited
    /// only when it has ended, so the credit that comes in the meantime is kept beyond what is saved
    /// up.
    pub fn set_unbilled(&mut self, now: u64, since: Option<u64>) {
        self.advance(now);
        self.unbilled_since = since;
    }

    /// Debits `ns` of engine time.
    pub fn debit(&mut self, now: u64, ns: u64) {
        self.advance(now);
        let after = i128::from(self.balance) - i128::from(ns) * i128::from(NS);
        let floor = -i128::from(timing::DEBT) * i128::from(NS);
        if after < floor {
            self.forgiven_ns =
                self.forgiven_ns.saturating_add(((floor - after) / i128::from(NS)) as u64);
        }
        self.balance = after.max(floor) as i64;
    }

    /// The balance at `now`, in ns. The process may launch while it is positive.
    pub fn balance(&self, now: u64) -> i64 {
        self.balance_at(now).div_euclid(NS)
    }

    /// When the balance becomes positive: `now` if it is, `None` if it never will.
    pub fn positive_at(&self, now: u64) -> Option<u64> {
        let missing = NS - self.balance_at(now);
        if missing <= 0 {
            return Some(now);
        }
        let rate = u64::from(self.rate_ppm);
        (rate > 0).then(|| now.max(self.at).saturating_add((missing as u64).div_ceil(rate)))
    }

    /// The debt beyond the most that is carried, which was forgiven so far, in ns.
    pub fn forgiven_ns(&self) -> u64 {
        self.forgiven_ns
    }

    fn advance(&mut self, now: u64) {
        self.balance = self.balance_at(now);
        self.at = self.at.max(now);
    }

    fn balance_at(&self, now: u64) -> i64 {
        let credit = u128::from(now.saturating_sub(self.at)) * u128::from(self.rate_ppm);
        let unbilled = self.unbilled_since.map_or(0, |since| now.saturating_sub(since));
        let ceiling = timing::SAVED.saturating_add(unbilled).min(timing::DEBT);
        let ceiling = i128::from(ceiling) * i128::from(NS);
        (i128::from(self.balance) + credit as i128).min(ceiling) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;

    const MS: u64 = 1_000_000;
    const SAVED_NS: i64 = timing::SAVED as i64;
    const DEBT_NS: i64 = timing::DEBT as i64;

    fn bucket(percent: u32) -> Bucket {
        let mut bucket = Bucket::new(0);
        bucket.set_rate(0, percent * 10_000);
        bucket
    }

    #[test]
    fn credit_comes_by_the_clock_and_is_saved_up_to_a_limit() {
        let bucket = bucket(30);
        assert_eq!(bucket.balance(0), 0);
        assert_eq!(bucket.balance(10 * MS), 3_000_000);
        assert_eq!(bucket.balance(u64::MAX), SAVED_NS);
    }

    #[test]
    fn credit_that_comes_while_a_long_kernel_runs_is_kept_for_its_bill() {
        let mut bucket = bucket(75);
        bucket.set_unbilled(0, Some(0));
        assert_eq!(bucket.balance(200 * MS), 150_000_000);
        bucket.set_unbilled(200 * MS, None);
        assert_eq!(bucket.balance(200 * MS), SAVED_NS, "unless there was no work");
        let mut bucket = self::bucket(75);
        bucket.set_unbilled(0, Some(0));
        bucket.debit(200 * MS, 200 * MS);
        bucket.set_unbilled(200 * MS, None);
        assert_eq!(bucket.balance(200 * MS), -50_000_000);
    }

    #[test]
    fn debt_is_carried_and_paid_to_the_nanosecond() {
        let mut bucket = bucket(30);
        bucket.debit(1_000 * MS, 130 * MS);
        assert_eq!(bucket.balance(1_000 * MS), -30_000_000);
        let opens = bucket.positive_at(1_000 * MS).unwrap();
        assert!(bucket.balance(opens) > 0);
        assert!(bucket.balance(opens - 1) <= 0);
        assert_eq!(bucket.positive_at(opens), Some(opens));
    }

    #[test]
    fn debt_beyond_the_most_is_forgiven_and_counted() {
        let mut bucket = bucket(10);
        bucket.debit(0, DEBT_NS.unsigned_abs());
        assert_eq!((bucket.balance(0), bucket.forgiven_ns()), (-DEBT_NS, 0));
        bucket.debit(0, 500 * MS);
        assert_eq!((bucket.balance(0), bucket.forgiven_ns()), (-DEBT_NS, 500 * MS));
        bucket.debit(0, u64::MAX);
        assert_eq!(bucket.balance(0), -DEBT_NS);
    }

    #[test]
    fn without_a_rate_it_never_becomes_positive() {
        let mut bucket = Bucket::new(5);
        assert_eq!(bucket.positive_at(u64::MAX), None);
        bucket.set_rate(9, 1);
        assert_eq!(bucket.positive_at(9), Some(9 + MS));
    }

    #[test]
    fn a_clock_that_goes_back_changes_nothing() {
        let mut bucket = bucket(50);
        bucket.debit(1_000 * MS, 0);
        bucket.debit(40 * MS, 90 * MS);
        assert_eq!(bucket.balance(1_000 * MS), 10_000_000);
        assert_eq!(bucket.balance(1_000 * MS + 2), 10_000_001);
        assert_eq!(bucket.positive_at(0), Some(0));
    }

    #[test]
    fn frequent_reading_does_not_change_the_share() {
        let mut prng = Prng::new(1);
        for percent in [1, 7, 33, 80] {
            let mut bucket = bucket(percent);
            let (mut now, mut used) = (0, 0);
            while now < 5_000 * MS {
                now = bucket.positive_at(now).unwrap() + prng.below(100_000);
                let kernel = prng.below(3 * MS);
                now += kernel;
                bucket.debit(now, kernel);
                used += kernel;
            }
            // All credit was used, except the balance.
            let credit = i128::from(now) * i128::from(percent) / 100;
            let left = credit - i128::from(used);
            assert!((left - i128::from(bucket.balance(now))).unsigned_abs() <= 1);
        }
    }
}
