//! The union of measured spans: two streams that work at once use the card once.

/// Spans that are kept apart. Gaps between spans matter only while a batch that began before them is
/// still to be measured, and few batches are in flight.
const KEPT: usize = 64;

/// How long a card was busy with the work of a process, whatever order its batches are measured in.
#[derive(Clone, Debug)]
pub struct Busy {
    /// Disjoint, in order; the first `kept` count.
    spans: [(u64, u64); KEPT],
    kept: usize,
    /// Nothing that is still to come begins before; what does is cut.
    floor: u64,
    last_end: u64,
}

impl Default for Busy {
    fn default() -> Self {
        Self { spans: [(0, 0); KEPT], kept: 0, floor: 0, last_end: 0 }
    }
}

impl Busy {
    /// Nothing measured yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the span `start..end` and returns the ns of it that no span covered before.
    ///
    /// `oldest_open_start` is a time before which no span that is still to be added begins:
    /// `u64::MAX` where no batch is in flight, 0 where nobody knows. What lies before it is forgotten;
    /// with more than 64 gaps after it the oldest is taken as covered.
    pub fn add(&mut self, start: u64, end: u64, oldest_open_start: u64) -> u64 {
        let new = self.cover(start.max(self.floor), end);
        self.last_end = self.last_end.max(end);
        // With nothing in flight whatever comes begins later than all that ended.
        self.forget_before(oldest_open_start.min(self.last_end));
        new
    }

    fn cover(&mut self, mut start: u64, mut end: u64) -> u64 {
        if start >= end {
            return 0;
        }
        let spans = &self.spans[..self.kept];
        let from = spans.partition_point(|span| span.1 < start);
        let to = from + spans[from..].partition_point(|span| span.0 <= end);
        let mut covered = 0;
        for &(s, e) in &spans[from..to] {
            covered += e.min(end).saturating_sub(s.max(start));
        }
        let new = end - start - covered;
        if from < to {
            start = start.min(spans[from].0);
            end = end.max(spans[to - 1].1);
        } else if self.kept == KEPT {
            return self.cover_when_full(start, end, new);
        }
        self.spans.copy_within(to..self.kept, from + 1);
        self.kept = self.kept + 1 - (to - from);
        self.spans[from] = (start, end);
        new
    }

    #[cold]
    fn cover_when_full(&mut self, start: u64, end: u64, new: u64) -> u64 {
        self.forget_before(self.spans[0].1 + 1);
        if start > self.floor {
            let at = self.spans[..self.kept].partition_point(|span| span.1 < start);
            self.spans.copy_within(at..self.kept, at + 1);
            self.spans[at] = (start, end);
            self.kept += 1;
        }
        new
    }

    fn forget_before(&mut self, floor: u64) {
        self.floor = self.floor.max(floor);
        let gone = self.spans[..self.kept].partition_point(|span| span.1 <= self.floor);
        self.spans.copy_within(gone..self.kept, 0);
        self.kept -= gone;
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
        assert_eq!(busy.add(0, 10, 0), 10);
    }

    #[test]
    fn nothing_in_flight_lets_everything_be_forgotten() {
        let mut busy = Busy::new();
        for i in 0..1_000 {
            assert_eq!(busy.add(i * 10, i * 10 + 5, u64::MAX), 5);
            assert_eq!(busy.kept, 0);
        }
        assert_eq!(busy.add(9_995, 10_005, u64::MAX), 10);
        assert_eq!(busy.add(10_000, 10_010, u64::MAX), 5, "what lies before the floor was counted");
    }

    #[test]
    fn more_gaps_than_fit_bill_less_and_never_twice() {
        let mut busy = Busy::new();
        let mut sum = 0;
        for i in 0..200 {
            sum += busy.add(i * 10, i * 10 + 5, 0);
        }
        assert_eq!((sum, busy.kept), (1_000, KEPT));
        // A span over everything: only the gaps that are still known count.
        let rest = busy.add(0, 2_000, 0);
        assert!(rest <= 1_000 && rest >= 5 * KEPT as u64 - 5, "{rest}");
        assert_eq!(busy.add(0, 2_000, 0), 0);
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
                assert!(busy.kept <= 40);
            }
        }
    }
}
