//! The pace of a process: how much of its work is in flight, and when a launch is made although
//! nothing of that work ends.
//!
//! The launches of a stream are counted in *intervals*: behind each interval the library records an
//! event. Its time tells the cost of the first function, or of the last one, if that is long or of
//! unknown cost. An interval has as many launches as take the time that it should. As many are in
//! flight as the depth allows: at least two, one that runs and one that waits. Longer launches are in
//! flight one by one, and those of unknown cost too, until some in a row have been short.
//!
//! A kernel may wait for a launch that comes later: of another stream, thread or process. So a
//! launch waits only while work of the process ends now and then ([`Progress`]). After the time in
//! which something should have ended, one launch is made, then two, then four. A long kernel looks
//! the same. So launches of the function that runs, or of unknown cost, wait longer: a program would
//! queue long kernels, or graphs, faster than they end.

use std::collections::{BTreeMap, VecDeque};

use crate::timing;

/// How long a launch of each function takes, in ns, if one has ended.
pub type Costs = BTreeMap<usize, u64>;
/// The most functions whose cost is remembered: a program may create graphs without end.
const MOST_COSTS: usize = 4096;

/// An interval: the launches of a stream up to an event of ours.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    launches: u64,
    /// Those of functions of unknown cost.
    unknown: u64,
    /// How long those of known cost take, and how long those before the last launch, in ns.
    ns: u64,
    before_ns: u64,
    /// The first function and its cost, and the last function.
    first: (usize, u64),
    last: usize,
    /// Whether one is long, or of unknown cost.
    is_measured: bool,
}

/// The launches in flight on one stream. `M` is what the caller knows of the event of an interval.
#[derive(Debug)]
pub struct StreamPace<M> {
    open: Work,
    closed: VecDeque<(Work, M)>,
    /// How many functions in a row were short when their cost became known.
    short: u64,
}

impl<M> Default for StreamPace<M> {
    fn default() -> Self {
        Self { open: Work::default(), closed: VecDeque::new(), short: 0 }
    }
}

impl<M> StreamPace<M> {
    /// Whether nothing can be in flight.
    pub fn is_idle(&self) -> bool {
        self.open.launches == 0 && self.closed.is_empty()
    }

    fn sum(&self, of: impl Fn(&Work) -> u64) -> u64 {
        of(&self.open) + self.closed.iter().map(|(work, _)| of(work)).sum::<u64>()
    }

    /// How long they are expected to take, in ns.
    pub fn in_flight_ns(&self) -> u64 {
        self.sum(|work| work.ns)
    }

    /// The launches behind the last event.
    pub fn open(&self) -> u64 {
        self.open.launches
    }

    /// The mark of the oldest interval in flight.
    pub fn oldest(&self) -> Option<&M> {
        self.closed.front().map(|(_, mark)| mark)
    }

    /// The mark of the newest interval in flight.
    pub fn newest(&self) -> Option<&M> {
        self.closed.back().map(|(_, mark)| mark)
    }

    fn oldest_work(&self) -> &Work {
        self.closed.front().map_or(&self.open, |(work, _)| work)
    }

    /// How long the oldest interval is expected to take, or what is open if there is none.
    pub fn expected_ns(&self) -> u64 {
        self.oldest_work().ns
    }

    /// Whether as much is in flight as may be, for a launch that takes `cost`, if that is known.
    /// Where the driver `shares` the card, two launches are in flight in any case, unless they are
    /// long and the depth is little: it gives the time of a process with nothing behind a kernel that
    /// ends to others, and a short launch that waits for a lease seems to take up to an interval.
    pub fn is_full(&self, cost: Option<u64>, depth: u64, shares: bool) -> bool {
        // The cost of a launch that was measured beside others may be a quarter too high.
        let is_short = |cost| depth > timing::SHALLOW || cost <= timing::INTERVAL * 5 / 4;
        let is_full = match cost {
            Some(cost) if shares && is_short(cost) && self.sum(|work| work.launches) < 2 => false,
            Some(cost) => self.in_flight_ns().saturating_add(cost) > depth,
            None => self.sum(|work| work.unknown) > (self.short / 4).min(3),
        };
        is_full && !self.is_idle()
    }

    /// How long a launch of a function waits while the work is stalled, in ns, and whether it is of
    /// the function that runs. One of unknown cost may be long.
    pub fn waits(&self, function: usize, costs: &Costs) -> (u64, bool) {
        let is_known = costs.contains_key(&function);
        match self.oldest_work().first.0 == function {
            _ if self.is_idle() => (0, false),
            true if is_known => (self.expected_ns(), true),
            is_alike => (if is_known { 0 } else { timing::UNKNOWN }, is_alike),
        }
    }

    /// A launch of a function is made that takes `cost`, if that is known. Returns whether an event
    /// belongs behind it.
    pub fn launched(&mut self, function: usize, cost: Option<u64>, depth: u64) -> bool {
        let (work, longest) = (&mut self.open, (depth / 2).min(timing::INTERVAL));
        if work.launches == 0 {
            work.first = (function, cost.unwrap_or(0));
        }
        (work.last, work.before_ns) = (function, work.ns);
        work.launches += 1;
        work.unknown += u64::from(cost.is_none());
        work.ns = work.ns.saturating_add(cost.unwrap_or(0));
        work.is_measured |= cost.is_none_or(|cost| cost > longest);
        work.is_measured || work.ns.saturating_add(cost.unwrap_or(0)) > longest
    }

    /// An event was recorded behind all that was launched. The interval has no launches if an event
    /// of another thread has counted them already, perhaps before they were made. It still takes
    /// time on the card.
    pub fn close(&mut self, mark: M) {
        self.closed.push_back((std::mem::take(&mut self.open), mark));
    }

    /// The oldest interval has ended, or all that is open if there is none. It took the time
    /// `took`, if that is known. If it `waited` for another launch, its launches may be shorter.
    pub fn ended(&mut self, took: Option<u64>, waited: bool, costs: &mut Costs) {
        let oldest = self.closed.pop_front().map(|(work, _)| work);
        let work = oldest.unwrap_or_else(|| std::mem::take(&mut self.open));
        let Some(took) = took.filter(|_| work.launches > 0 && !waited) else { return };
        let (function, cost) = if work.is_measured {
            let cost = took.saturating_sub(work.before_ns);
            self.short = if cost <= timing::INTERVAL { self.short + work.unknown } else { 0 };
            (work.last, cost)
        } else {
            (work.first.0, work.first.1.saturating_mul(took) / work.ns.max(1))
        };
        if costs.len() >= MOST_COSTS && !costs.contains_key(&function) {
            costs.clear();
        }
        costs.insert(function, cost.max(timing::LEAST_COST));
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
    /// How many launches of the function that runs, or of unknown cost, were let go on since an
    /// interval that waited for no launch.
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
            self.admitted_at > 0 && since < took && since < (took / 8).max(timing::DEPTH / 4);
        if !waited {
            // A kernel that waited for the host is no reason for more patience.
            let rest = self.longest - self.longest.div_ceil(FORGETS);
            (self.longest, self.alike) = (took.min(timing::DRAIN).max(rest), 0);
        }
        (self.at, self.round_at, self.admitted) = (now, now, 0);
        (self.rounds, self.silent) = (0, 0);
        waited
    }

    /// How long nothing may end. `expected`: how long the oldest interval is expected to take, of
    /// the stream with the longest.
    fn patience(&self, expected: u64) -> u64 {
        timing::STALL.max(self.longest.max(expected).saturating_mul(2))
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

    /// Whether a launch that [waits](StreamPace::waits) so long is made although the work is stalled.
    /// One of the function that runs does not end it: each waits twice as long as the one before it.
    pub fn admits(&mut self, now: u64, (wait, is_alike): (u64, bool)) -> bool {
        let wait = if is_alike {
            self.patience(wait) << self.alike.min(10)
        } else {
            wait * (1 + u64::from(self.alike))
        };
        if self.admitted == 0 || now < self.at.saturating_add(wait) {
            return false;
        }
        self.admitted -= 1;
        self.alike += u32::from(wait > 0);
        if !is_alike {
            self.admitted_at = now;
        }
        true
    }
}
