//! The union of measured spans: two streams that work at the same time use the card once.
//!
//! A span may contain idle time at unknown positions. So each interval of time stores how much of
//! it is still *free*, that is, not used by the spans that were added before. A new span takes free
//! time at the rate at which the span itself was busy, because streams work independently of each
//! other. For spans without idle time the result is exactly their union.

/// The most intervals. If there are more, the two oldest are joined to one with the free time of
/// both, so a span that began before them finds all of that time.
const KEPT: usize = 256;

/// The time for which a card was busy with the work of a process, in whatever order its batches are
/// measured.
#[derive(Clone, Debug, Default)]
pub struct Busy {
    /// Disjoint and in order. The time between two intervals is free.
    intervals: Vec<Interval>,
    /// No later span begins before this time; one that does is cut.
    floor: u64,
    last_end: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Interval {
    start: u64,
    end: u64,
    free: u64,
}

impl Interval {
    fn len(self) -> u64 {
        self.end - self.start
    }

    /// The parts before and after an instant, each with its part of the free time.
    fn split(self, at: u64) -> (Self, Self) {
        let free = part(self.free, at - self.start, self.len());
        let after = Self { start: at, end: self.end, free: self.free - free };
        (Self { start: self.start, end: at, free }, after)
    }

    /// Both intervals and the time between them.
    fn join(self, next: Self) -> Self {
        let free = self.free + (next.start - self.end) + next.free;
        Self { start: self.start, end: next.end, free }
    }
}

/// `of * numerator / denominator`; all of it where nothing is to be divided.
fn part(of: u64, numerator: u64, denominator: u64) -> u64 {
    if numerator >= denominator {
        return of;
    }
    (u128::from(of) * u128::from(numerator) / u128::from(denominator)) as u64
}

impl Busy {
    /// No span yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the span `start..end`, in which the card was busy all the time. It returns the time of
    /// it, in ns, that no span covered before.
    ///
    /// `oldest_open_start` is a time before which no later span begins: `u64::MAX` if no batch is
    /// in flight, 0 if it is unknown. Intervals before it are removed.
    pub fn add(&mut self, start: u64, end: u64, oldest_open_start: u64) -> u64 {
        self.add_partly(start, end, u64::MAX, oldest_open_start)
    }

    /// The same for a span in which the card was busy for `busy` ns at unknown positions. It
    /// returns an estimate of the new part of this time.
    pub fn add_partly(&mut self, start: u64, end: u64, busy: u64, oldest_open_start: u64) -> u64 {
        let new = self.cover(start.max(self.floor), end, busy.min(end.saturating_sub(start)));
        self.last_end = self.last_end.max(end);
        // With nothing in flight, later spans begin after the end of all earlier ones.
        self.forget_before(oldest_open_start.min(self.last_end));
        new
    }

    fn cover(&mut self, start: u64, end: u64, busy: u64) -> u64 {
        if start >= end {
            return 0;
        }
        self.cut(start);
        self.cut(end);
        let from = self.intervals.partition_point(|interval| interval.end <= start);
        let to = self.fill(from, start, end);
        let mut new = 0;
        for interval in &mut self.intervals[from..to] {
            let taken = part(interval.free, busy, end - start);
            interval.free -= taken;
            new += taken;
        }
        for index in (from.saturating_sub(1)..to.min(self.intervals.len() - 1)).rev() {
            self.join_if_full(index);
        }
        while self.intervals.len() > KEPT {
            let oldest = self.intervals.remove(0);
            self.intervals[0] = oldest.join(self.intervals[0]);
        }
        new
    }

    /// Fills the gaps between the intervals of `start..end`, which begin at the index `from`, with
    /// new intervals. It returns the index after the last one.
    fn fill(&mut self, from: usize, start: u64, end: u64) -> usize {
        let (mut index, mut at) = (from, start);
        while at < end {
            let next = self.intervals.get(index).map_or(end, |interval| interval.start.min(end));
            if at < next {
                self.intervals.insert(index, Interval { start: at, end: next, free: next - at });
            }
            at = self.intervals[index].end;
            index += 1;
        }
        index
    }

    /// Splits the interval around an instant.
    fn cut(&mut self, at: u64) {
        let index = self.intervals.partition_point(|interval| interval.end <= at);
        if let Some(interval) = self.intervals.get(index).filter(|interval| interval.start < at) {
            let (before, after) = interval.split(at);
            self.intervals[index] = before;
            self.intervals.insert(index + 1, after);
        }
    }

    /// Joins an interval with the next one if they touch and have no free time.
    fn join_if_full(&mut self, index: usize) {
        let (interval, next) = (self.intervals[index], self.intervals[index + 1]);
        if interval.end == next.start && interval.free == 0 && next.free == 0 {
            self.intervals[index] = interval.join(next);
            self.intervals.remove(index + 1);
        }
    }

    fn forget_before(&mut self, floor: u64) {
        self.floor = self.floor.max(floor);
        let ended = self.intervals.partition_point(|interval| interval.end <= self.floor);
        self.intervals.drain(..ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;

    #[test]
    fn overlap_counts_once_in_either_order() {
        for (first, second, news) in [
            ((10, 20), (15, 30), (10, 10)),
            ((15, 30), (10, 20), (15, 5)),
            ((10, 40), (20, 30), (30, 0)),
            ((20, 30), (10, 40), (10, 20)),
            ((10, 20), (20, 30), (10, 10)),
            ((10, 20), (30, 40), (10, 10)),
        ] {
            let mut busy = Busy::new();
            assert_eq!((busy.add(first.0, first.1, 0), busy.add(second.0, second.1, 0)), news);
        }
    }

    #[test]
    fn an_empty_or_inverted_span_is_nothing() {
        let mut busy = Busy::new();
        assert_eq!(busy.add(5, 5, 0), 0);
        assert_eq!(busy.add(9, 3, 0), 0);
        assert_eq!(busy.add_partly(0, 10, 0, 0), 0);
        assert_eq!(busy.add(0, 10, 0), 10);
    }

    #[test]
    fn nothing_in_flight_lets_everything_be_forgotten() {
        let mut busy = Busy::new();
        for i in 0..1_000 {
            assert_eq!(busy.add(i * 10, i * 10 + 5, u64::MAX), 5);
            assert_eq!(busy.intervals.len(), 0);
        }
        assert_eq!(busy.add(9_995, 10_005, u64::MAX), 10);
        assert_eq!(
            busy.add(10_000, 10_010, u64::MAX),
            5,
            "everything before the floor was counted"
        );
    }

    #[test]
    fn idle_time_in_a_span_is_free_for_others() {
        let mut busy = Busy::new();
        assert_eq!(busy.add_partly(0, 100, 20, 0), 20);
        assert_eq!(busy.add(0, 50, 0), 40, "of which the first had used ten");
        assert_eq!(busy.add_partly(50, 100, 25, 0), 20, "half of what is free");
        assert_eq!(busy.add(0, 100, 0), 20);
        assert_eq!(busy.add(0, 100, 0), 0);
    }

    /// Many streams with pauses between their kernels and independent phases.
    #[test]
    fn independent_streams_with_pauses_add_up() {
        let mut prng = Prng::new(5);
        let mut field = vec![false; 100_000];
        let mut busy = Busy::new();
        let mut sum = 0;
        for start in (0..100_000).step_by(2_000) {
            for _ in 0..8 {
                for kernel in 0..10 {
                    let at = (start + kernel * 200 + prng.below(180)) as usize;
                    field[at..at + 20].fill(true);
                }
                sum += busy.add_partly(start, start + 2_000, 200, start);
            }
        }
        let truth = field.iter().filter(|cell| **cell).count() as u64;
        assert!(sum.abs_diff(truth) <= truth / 50, "{sum} of {truth}");
    }

    /// Otherwise it would be billed only for the time of the stored intervals.
    #[test]
    fn a_long_kernel_beside_many_short_ones_is_billed_in_full() {
        let mut busy = Busy::new();
        let mut sum = 0;
        for i in 0..10_000 {
            sum += busy.add(i * 100, i * 100 + 20, 0);
        }
        assert_eq!((sum, busy.intervals.len()), (200_000, KEPT));
        assert_eq!(busy.add(0, 1_000_000, 0), 800_000);
        assert_eq!(busy.add(0, 1_000_000, 0), 0);
    }

    /// Compared with a field of nanoseconds, with spans that arrive up to 20 starts late.
    #[test]
    fn the_sum_is_the_union_whatever_the_order() {
        let mut prng = Prng::new(7);
        for _ in 0..300 {
            let mut start = 0;
            let mut spans: Vec<(u64, u64)> = (0..100)
                .map(|_| {
                    start += prng.below(60);
                    (start, start + prng.below(150))
                })
                .collect();
            for i in 0..spans.len() {
                let j = (i + prng.below(20) as usize).min(spans.len() - 1);
                spans.swap(i, j);
            }
            let mut field = vec![false; 7_000];
            let mut busy = Busy::new();
            for i in 0..spans.len() {
                let (start, end) = spans[i];
                let open = spans[i + 1..].iter().map(|span| span.0).min().unwrap_or(u64::MAX);
                let cells = &mut field[start as usize..end as usize];
                let expected = cells.iter().filter(|cell| !**cell).count() as u64;
                cells.fill(true);
                assert_eq!(busy.add(start, end, open), expected);
                assert!(busy.intervals.len() <= 40);
            }
        }
    }

    /// No time is billed twice or lost, wherever the idle time of the spans is.
    #[test]
    fn new_and_free_time_add_up_to_the_whole() {
        let mut prng = Prng::new(11);
        for _ in 0..200 {
            let mut busy = Busy::new();
            let mut sum = 0;
            for _ in 0..500 {
                let start = prng.below(10_000);
                let end = start + prng.below(2_000);
                let used = prng.below(end - start + 1);
                let new = busy.add_partly(start, end, used, 0);
                assert!(new <= used);
                sum += new;
            }
            sum += busy.add(0, 12_000, 0);
            assert_eq!(sum, 12_000);
        }
    }
}
