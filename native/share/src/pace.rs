//! The pace of a process: how much of its work is in flight, and when a launch is made although
//! nothing of that work ends.
//!
//! The launches of a stream are counted in *intervals*: behind each interval the library records an
//! event. The interval's time over its launches is their mean cost. So an interval doubles or
//! shrinks until it takes the time that it should, and as many of them are in flight as the depth
//! allows: at least two, one that runs and one that waits. Launches of which nothing is known, or
//! which take longer than that, are in flight one by one.
//!
//! A kernel may wait for a launch that comes later: of another stream, thread or process. So a
//! launch waits only while work of the process ends now and then ([`Progress`]). After the time in
//! which something should have ended, one launch is made, then two, then four. A long kernel looks
//! the same. So launches of the function that runs wait longer: a program would queue long kernels,
//! or graphs, faster than they end.

use std::collections::VecDeque;

use crate::TIMING;

/// Launches of a stream up to an event of ours, which is, or leads to, `mark`.
#[derive(Clone, Copy, Debug)]
pub struct Interval<M> {
    /// How many launches.
    pub launches: u64,
    /// The function of the first of them.
    pub function: usize,
    /// What the caller knows of its event.
    pub mark: M,
}

/// The launches in flight on one stream.
#[derive(Debug)]
pub struct StreamPace<M> {
    /// The launches since the last event, and the function of the first of them.
    open: u64,
    open_function: usize,
    closed: VecDeque<Interval<M>>,
    /// The mean time of a launch in the last interval, in ns, and the function of the first of them;
    /// `None` before the first one. It is at least half of the time before, if that was of another
    /// function.
    cost: Option<u64>,
    cost_of: usize,
    /// How many launches in a row have taken about this time.
    in_a_row: u64,
}

impl<M> Default for StreamPace<M> {
    fn default() -> Self {
        Self {
            open: 0,
            open_function: 0,
            closed: VecDeque::new(),
            cost: None,
            cost_of: 0,
            in_a_row: 1,
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
        self.fitting(depth).min(self.in_a_row.saturating_mul(2))
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
        let Some(cost) = self.cost else { return true };
        // While the intervals grow, their cost may be that of a few launches only.
        let most = self.most(depth);
        let is_growing = most < self.fitting(depth);
        (in_flight + 1).saturating_mul(cost) > depth || (is_growing && in_flight >= 2 * most)
    }

    /// How long the oldest interval may take, if it began with this function.
    pub fn alike_ns(&self, function: usize) -> Option<u64> {
        let of = self.closed.front().map_or(self.open_function, |oldest| oldest.function);
        let may_take = || if self.cost_of == of { self.expected_ns() } else { TIMING.unknown };
        (!self.is_idle() && of == function).then(may_take)
    }

    /// A launch of a function is made. Returns whether an event belongs behind it.
    pub fn launched(&mut self, function: usize, depth: u64) -> bool {
        if self.open == 0 {
            self.open_function = function;
        }
        self.open += 1;
        self.open >= self.most(depth)
    }

    /// An event was recorded behind all that was launched. The interval has no launches if an event
    /// of another thread has counted them already, perhaps before they were made. It still takes
    /// time on the card.
    pub fn close(&mut self, mark: M) {
        let launches = std::mem::take(&mut self.open);
        self.closed.push_back(Interval { launches, function: self.open_function, mark });
    }

    /// The oldest interval has ended, or all that is open if there is none. It took the time
    /// `took`, if that is known. If it `waited` for another launch, its launches may be shorter.
    pub fn ended(&mut self, took: Option<u64>, waited: bool) {
        let (function, launches) = match self.closed.pop_front() {
            Some(interval) => (interval.function, interval.launches),
            None => (self.open_function, std::mem::take(&mut self.open)),
        };
        let known = self.cost.unwrap_or(0);
        let Some(took) = took.filter(|_| launches > 0 && (!waited || known == 0)) else { return };
        let cost = took / launches;
        // One launch is an interval of its own after a pause, and where a stream waits for another.
        let is_alike = launches == 1 && known.abs_diff(cost) <= known / 2;
        self.in_a_row = launches + if is_alike { self.in_a_row } else { 0 };
        // Behind a few short launches, the long one of another function may come again.
        let least = if function == self.cost_of { 0 } else { known / 2 };
        if cost >= least {
            self.cost_of = function;
        }
        self.cost = Some(cost.max(least));
    }
}

/// The longest time seen tells a stall from a long kernel. It counts less with each interval: by one
/// part of so many.
const FORGETS: u64 = 32;

/// Whether the work of a process on a card makes progress.
#[derive(Debug, Default)]
pub struct Progress {
    /// When work last ended, or began on an idle card.
    at: u64,
    /// The longest time of an interval that waited for no launch.
    longest: u64,
    /// When the last round began in which launches are let go on although nothing has ended, and how
    /// many rounds there were; `silent` ones in which the process was not permitted to launch.
    round_at: u64,
    rounds: u32,
    silent: u32,
    /// How many launches may still be made in this round.
    admitted: u64,
    /// When launches were last let go on, of this process or perhaps of another one.
    admitted_at: u64,
    /// How many launches of the function that runs were let go on, since an interval that waited for
    /// no launch.
    alike: u32,
}

impl Progress {
    /// Work begins on an idle card.
    pub fn begin(&mut self, now: u64) {
        self.at = now;
    }

    /// Work that took the time `took` has ended. Returns whether it may have waited for a launch that
    /// was let go on.
    pub fn ended(&mut self, now: u64, took: u64) -> bool {
        let since = now.saturating_sub(self.admitted_at);
        let waited =
            self.admitted_at > 0 && since < took && since < (took / 8).max(TIMING.depth / 4);
        if !waited {
            // A kernel that waited for the host is no reason for more patience.
            let rest = self.longest - self.longest.div_ceil(FORGETS);
            (self.longest, self.alike) = (took.min(TIMING.drain).max(rest), 0);
        }
        (self.at, self.round_at, self.admitted) = (now, now, 0);
        (self.rounds, self.silent) = (0, 0);
        waited
    }

    /// How long nothing may end. `expected`: how long the oldest interval is expected to take, of
    /// the stream with the longest.
    fn patience(&self, expected: u64) -> u64 {
        TIMING.stall.max(self.longest.max(expected).saturating_mul(2))
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

    /// Whether a launch that waits is made although the work is stalled. `alike_ns`: it is of the
    /// function that runs, which may take so long. Such launches are as long, and behind the running
    /// one, so they do not end it: each waits twice as long as the one before it.
    pub fn admits(&mut self, now: u64, alike_ns: Option<u64>) -> bool {
        let wait = alike_ns.map_or(0, |ns| self.patience(ns) << self.alike.min(10));
        if self.admitted == 0 || now < self.at.saturating_add(wait) {
            return false;
        }
        self.admitted -= 1;
        self.alike += u32::from(alike_ns.is_some());
        self.admitted_at = alike_ns.map_or(now, |_| self.admitted_at);
        true
    }
}
