//! The pace of a process: how much of its work is in flight, and when a launch is made although
//! nothing of that work ends.
//!
//! The launches of a stream are counted in *intervals*: behind each interval the library records an
//! event. The interval's time over its launches is their mean cost. So an interval doubles or
//! shrinks until it takes the time that it should, and as many of them are in flight as the depth
//! allows: at least two, one that runs and one that waits. Nothing else is learned about kernels.
//!
//! A kernel may wait for a launch that comes later: of another stream, thread or process. So a
//! launch waits only while work of the process ends now and then ([`Progress`]). After the time in
//! which something should have ended, one launch is made, then two, then four.

use std::collections::VecDeque;

use crate::TIMING;

/// Launches of a stream up to an event of ours, which is, or leads to, `mark`.
#[derive(Clone, Copy, Debug)]
pub struct Interval<M> {
    /// How many launches.
    pub launches: u64,
    /// When the first of them was made, by the host's clock.
    pub began: u64,
    /// The function of the first of them.
    pub function: usize,
    /// What the caller knows of its event.
    pub mark: M,
}

/// Intervals of so few launches grow to their length again in two rounds.
const FEW: u64 = 4;

/// The launches in flight on one stream.
#[derive(Debug)]
pub struct StreamPace<M> {
    /// The launches since the last event, and when the first of them was made.
    open: u64,
    open_began: u64,
    open_function: usize,
    closed: VecDeque<Interval<M>>,
    /// The mean time of a launch in the last interval, in ns; `None` before the first one.
    cost: Option<u64>,
    /// The launches of the last interval that ended.
    last: u64,
}

impl<M> Default for StreamPace<M> {
    fn default() -> Self {
        Self {
            open: 0,
            open_began: 0,
            open_function: 0,
            closed: VecDeque::new(),
            cost: None,
            last: 1,
        }
    }
}

impl<M> StreamPace<M> {
    /// Whether nothing can be in flight.
    pub fn is_idle(&self) -> bool {
        self.open == 0 && self.closed.is_empty()
    }

    /// How many launches may be in flight.
    pub fn in_flight(&self) -> u64 {
        self.open + self.closed.iter().map(|interval| interval.launches).sum::<u64>()
    }

    /// How long they are expected to take, in ns.
    pub fn in_flight_ns(&self) -> u64 {
        self.in_flight().saturating_mul(self.cost.unwrap_or(0))
    }

    /// The launches behind the last event.
    pub fn open(&self) -> u64 {
        self.open
    }

    /// The oldest interval in flight.
    pub fn oldest(&self) -> Option<&Interval<M>> {
        self.closed.front()
    }

    /// The mark of the newest interval in flight.
    pub fn newest(&self) -> Option<&M> {
        self.closed.back().map(|interval| &interval.mark)
    }

    /// How long the oldest interval is expected to take, or what is open if there is none.
    pub fn expected_ns(&self) -> u64 {
        let launches = self.closed.front().map_or(self.open, |interval| interval.launches);
        launches.saturating_mul(self.cost.unwrap_or(0))
    }

    /// How many launches an interval may have.
    fn most(&self, depth: u64) -> u64 {
        self.fitting(depth).min(self.last.saturating_mul(2))
    }

    /// How many launches take as long as an interval should.
    fn fitting(&self, depth: u64) -> u64 {
        let ns = (depth / 2).min(TIMING.interval);
        self.cost.map_or(1, |cost| ns.checked_div(cost).unwrap_or(u64::MAX)).max(1)
    }

    /// Whether as much is in flight as may be.
    pub fn is_full(&self, depth: u64) -> bool {
        let in_flight = self.in_flight();
        if in_flight == 0 {
            return false;
        }
        // While the intervals grow, their cost may be that of a few launches only.
        let most = self.most(depth);
        let is_growing = most < self.fitting(depth) || self.cost.is_none();
        let ns = (in_flight + 1).saturating_mul(self.cost.unwrap_or(0));
        ns > depth || (is_growing && in_flight >= 2 * most)
    }

    /// Whether the oldest interval began with this function.
    pub fn runs(&self, function: usize) -> bool {
        match self.closed.front() {
            Some(oldest) => oldest.function == function,
            None => self.open > 0 && self.open_function == function,
        }
    }

    /// A launch of a function is made. Returns whether an event belongs behind it.
    pub fn launched(&mut self, now: u64, function: usize, depth: u64) -> bool {
        if self.open == 0 {
            (self.open_began, self.open_function) = (now, function);
        }
        self.open += 1;
        self.open >= self.most(depth)
    }

    /// An event was recorded behind all that was launched. The interval has no launches if an event
    /// of another thread has counted them already, perhaps before they were made. It still takes
    /// time on the card.
    pub fn close(&mut self, mark: M) {
        let launches = std::mem::take(&mut self.open);
        let (began, function) = (self.open_began, self.open_function);
        self.closed.push_back(Interval { launches, began, function, mark });
    }

    /// The oldest interval has ended, or all that is open if there is none. It took the time
    /// `took`; `None` if that says nothing about its launches. Returns the interval.
    pub fn ended(&mut self, took: Option<u64>) -> Option<Interval<M>> {
        let ended = self.closed.pop_front();
        let launches = match &ended {
            Some(interval) => interval.launches,
            None => std::mem::take(&mut self.open),
        };
        if let Some(took) = took.filter(|_| launches > 0) {
            let cost = took / launches;
            // The first launch after a pause is an interval of its own. It says nothing new if it
            // took about as long as the ones before. Short kernels would lose much time if the
            // intervals grew from one launch again.
            let is_alike = |known: u64| known.abs_diff(cost) <= known / 2;
            let is_news = launches > 1 || self.last <= FEW || !self.cost.is_some_and(is_alike);
            if is_news {
                (self.cost, self.last) = (Some(cost), launches);
            }
        }
        ended
    }
}

/// How many of the last intervals tell a stall from a long kernel.
const REMEMBERED: usize = 8;

/// Whether the work of a process on a card makes progress.
#[derive(Debug, Default)]
pub struct Progress {
    /// When work last ended, or began on an idle card.
    at: u64,
    longest: [u64; REMEMBERED],
    intervals: usize,
    /// When the last round began in which launches are let go on although nothing has ended, and how
    /// many rounds there were; `silent` ones in which the process was not permitted to launch.
    round_at: u64,
    rounds: u32,
    silent: u32,
    /// How many launches may still be made in this round.
    admitted: u64,
    /// When launches were last let go on, of this process or perhaps of another one.
    admitted_at: u64,
    /// How many launches of the function that runs were made since the progress.
    alike: u32,
}

impl Progress {
    /// Work begins on an idle card.
    pub fn begin(&mut self, now: u64) {
        self.at = now;
    }

    /// Work that took the time `took` has ended. Returns that time if it says something about the
    /// launches: they did not wait for one that was let go on.
    pub fn ended(&mut self, now: u64, took: u64) -> Option<u64> {
        let since = now.saturating_sub(self.admitted_at);
        let waited =
            self.admitted_at > 0 && since < took && since < (took / 8).max(TIMING.depth / 4);
        if !waited {
            // A kernel that waited for the host is no reason for more patience.
            self.longest[self.intervals % REMEMBERED] = took.min(TIMING.drain);
            self.intervals += 1;
        }
        (self.at, self.round_at, self.admitted) = (now, now, 0);
        (self.rounds, self.silent, self.alike) = (0, 0, 0);
        (!waited).then_some(took)
    }

    /// How long nothing may end. `expected`: how long the oldest interval is expected to take, of
    /// the stream with the longest.
    fn patience(&self, expected: u64) -> u64 {
        let longest = self.longest.iter().copied().fold(expected, u64::max);
        TIMING.stall.max(longest.saturating_mul(2))
    }

    /// When the work counts as stalled, or the next round comes, if nothing ends until then.
    pub fn stalls_at(&self, expected: u64) -> u64 {
        let wait = self.patience(expected) << self.silent.min(10);
        self.at.max(self.round_at).saturating_add(wait)
    }

    /// The work is stalled. If the process is `permitted` to launch, some launches that wait are
    /// made: one, then two, then four. Otherwise the coordinator may let launches of another process
    /// go on, and the next round comes after twice the time.
    pub fn stalled(&mut self, now: u64, permitted: bool) {
        self.round_at = now;
        if permitted {
            self.admitted = 1 << self.rounds.min(20);
        } else {
            (self.admitted, self.admitted_at) = (0, now);
            self.silent += 1;
        }
        self.rounds += 1;
    }

    /// Whether nothing has ended for as long as expected.
    pub fn is_stalled(&self) -> bool {
        self.rounds > 0
    }

    /// The coordinator lets launches go on because work of the slice is stalled: this many of this
    /// process.
    pub fn unblock(&mut self, now: u64, launches: u64) {
        self.admitted_at = now;
        if launches > 0 {
            self.round_at = now;
        }
        self.admitted = self.admitted.max(launches);
    }

    /// Whether a launch that waits is made although the work is stalled. More launches of the
    /// function that runs (`is_alike`) may just be as long, so each of them waits twice as long as
    /// the one before it.
    pub fn admits(&mut self, now: u64, expected: u64, is_alike: bool) -> bool {
        let alike_at = self.at.saturating_add(self.patience(expected) << self.alike.min(10));
        if self.admitted == 0 || is_alike && now < alike_at {
            return false;
        }
        (self.admitted, self.admitted_at) = (self.admitted - 1, now);
        self.alike += u32::from(is_alike);
        true
    }
}
