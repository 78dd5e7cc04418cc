//! The union of measured spans: two streams that work at once use the card once.
//!
//! A span may have idle time in it, nobody knows where. So each stretch of time remembers how much of
//! it is still *free*, used by nothing that was added before, and what a span adds is taken from that
//! at the rate at which the span itself was busy: streams that work beside each other do so without
//! regard to one another. Where spans have no idle time in them, that is their union, exactly.

/// Stretches that are kept apart. More of them, and the two oldest become one that is as busy as they
/// were together: a span that began before both finds all the time that was free in them.
const KEPT: usize = 256;

/// How long a card was busy with the work of a process, whatever order its batches are measured in.
#[derive(Clone, Debug, Default)]
pub struct Busy {
    /// Disjoint, in order. What lies between two is free.
    stretches: Vec<Stretch>,
    /// Nothing that is still to come begins before; what does is cut.
    floor: u64,
    last_end: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    start: u64,
    end: u64,
    free: u64,
}

impl Stretch {
    fn len(self) -> u64 {
        self.end - self.start
    }

    /// The parts before and after an instant, each with its part of the free time.
    fn split(self, at: u64) -> (Self, Self) {
        let free = part(self.free, at - self.start, self.len());
        let after = Self { start: at, end: self.end, free: self.free - free };
        (Self { start: self.start, end: at, free }, after)
    }

    /// Both, and what lies between them.
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
    /// Nothing measured yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the span `start..end`, in which the card was busy all the time, and returns the ns of it
    /// that no span covered before.
    ///
    /// `oldest_open_start` is a time before which no span that is still to be added begins:
    /// `u64::MAX` where no batch is in flight, 0 where nobody knows. What lies before it is forgotten.
    pub fn add(&mut self, start: u64, end: u64, oldest_open_start: u64) -> u64 {
        self.add_partly(start, end, u64::MAX, oldest_open_start)
    }

    /// The same of a span in which the card was busy for `busy` ns, nobody knows which: the ns of
    /// these that are new, as far as can be told.
    pub fn add_partly(&mut self, start: u64, end: u64, busy: u64, oldest_open_start: u64) -> u64 {
        let new = self.cover(start.max(self.floor), end, busy.min(end.saturating_sub(start)));
        self.last_end = self.last_end.max(end);
        // With nothing in flight whatever comes begins later than all that ended.
        self.forget_before(oldest_open_start.min(self.last_end));
        new
    }

    fn cover(&mut self, start: u64, end: u64, busy: u64) -> u64 {
        if start >= end {
            return 0;
        }
        self.cut(start);
        self.cut(end);
        let from = self.stretches.partition_point(|stretch| stretch.end <= start);
        let to = self.fill(from, start, end);
        let mut new = 0;
        for stretch in &mut self.stretches[from..to] {
            let taken = part(stretch.free, busy, end - start);
            stretch.free -= taken;
            new += taken;
        }
        for place in (from.saturating_sub(1)..to.min(self.stretches.len() - 1)).rev() {
            self.join_if_full(place);
        }
        while self.stretches.len() > KEPT {
            let oldest = self.stretches.remove(0);
            self.stretches[0] = oldest.join(self.stretches[0]);
        }
        new
    }

    /// Makes what lies between the stretches of `start..end` stretches as well, which begin at the
    /// place `from`; where they end.
    fn fill(&mut self, from: usize, start: u64, end: u64) -> usize {
        let (mut place, mut at) = (from, start);
        while at < end {
            let next = self.stretches.get(place).map_or(end, |stretch| stretch.start.min(end));
            if at < next {
                self.stretches.insert(place, Stretch { start: at, end: next, free: next - at });
            }
            at = self.stretches[place].end;
            place += 1;
        }
        place
    }

    /// Makes an instant a border between stretches, or one of them.
    fn cut(&mut self, at: u64) {
        let place = self.stretches.partition_point(|stretch| stretch.end <= at);
        if let Some(stretch) = self.stretches.get(place).filter(|stretch| stretch.start < at) {
            let (before, after) = stretch.split(at);
            self.stretches[place] = before;
            self.stretches.insert(place + 1, after);
        }
    }

    /// Joins a stretch with the next where they touch and have nothing free.
    fn join_if_full(&mut self, place: usize) {
        let (stretch, next) = (self.stretches[place], self.stretches[place + 1]);
        if stretch.end == next.start && stretch.free == 0 && next.free == 0 {
            self.stretches[place] = stretch.join(next);
            self.stretches.remove(place + 1);
        }
    }

    fn forget_before(&mut self, floor: u64) {
        self.floor = self.floor.max(floor);
        let gone = self.stretches.partition_point(|stretch| stretch.end <= self.floor);
        self.stretches.drain(..gone);
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
            assert_eq!(busy.stretches.len(), 0);
        }
        assert_eq!(busy.add(9_995, 10_005, u64::MAX), 10);
        assert_eq!(busy.add(10_000, 10_010, u64::MAX), 5, "before the floor all was counted");
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

    /// Many streams with pauses between their kernels, whose phases have nothing to do with each other.
    #[test]
    fn streams_with_pauses_add_up_as_chance_has_it() {
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

    /// Else it would be billed for as long as the gaps are remembered, and for nothing before.
    #[test]
    fn a_long_kernel_beside_many_short_ones_is_billed_in_full() {
        let mut busy = Busy::new();
        let mut sum = 0;
        for i in 0..10_000 {
            sum += busy.add(i * 100, i * 100 + 20, 0);
        }
        assert_eq!((sum, busy.stretches.len()), (200_000, KEPT));
        assert_eq!(busy.add(0, 1_000_000, 0), 800_000);
        assert_eq!(busy.add(0, 1_000_000, 0), 0);
    }

    /// Against a field of nanoseconds, with spans that arrive up to 20 starts late.
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
                assert!(busy.stretches.len() <= 40);
            }
        }
    }

    /// Nothing is billed twice or lost, however spans with idle time lie.
    #[test]
    fn what_is_new_and_what_is_free_are_all_there_is() {
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
