//! The library in one process: it admits launches, and records events behind them.

use std::collections::{BTreeMap, VecDeque};

use hami_share::limiter::Bucket;
use hami_share::{Grant, Holder, Kind, Mode, Regime, Timing};

use crate::MS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Launches need none.
    Free,
    /// No lease is needed; the own bucket keeps this share, if there is one.
    Alone(Option<u32>),
    Held {
        until: u64,
    },
    None,
}

/// The permission that a grant gives to the process in a slot.
pub fn permission(grant: &Grant, slot: u16, regime: Regime) -> Permission {
    let share = (1..100).contains(&regime.share).then_some(regime.share);
    let is_holder = grant.holder == Holder::All || grant.holder == Holder::Slot(slot);
    match grant.kind {
        Kind::Own if share.is_none() => Permission::Free,
        Kind::Own => Permission::Alone(share),
        _ if !is_holder => Permission::None,
        Kind::Alone => Permission::Alone(share.filter(|_| regime.mode == Mode::Hard)),
        Kind::Turn => Permission::Held { until: grant.until },
    }
}

/// Launches up to an event of ours.
#[derive(Clone, Copy, Debug)]
struct Interval {
    launches: u64,
    began: u64,
}

#[derive(Debug, Default)]
pub struct StreamPace {
    /// The launches since the last event.
    open: u64,
    open_began: u64,
    events: VecDeque<Interval>,
    /// The mean time of the launches of the last interval.
    cost: u64,
    launches: u64,
    /// Launches of the last closed interval.
    last: u64,
    ended_at: u64,
}

impl StreamPace {
    pub fn in_flight(&self) -> u64 {
        self.open + self.events.iter().map(|it| it.launches).sum::<u64>()
    }

    fn is_full(&self, depth: u64) -> bool {
        let in_flight = self.in_flight();
        in_flight > 0 && (self.events.len() >= 2 || (in_flight + 1) * self.cost > depth)
    }

    /// Whether an event belongs behind the next launch.
    fn records(&self, depth: u64) -> bool {
        let most = (depth / 2).checked_div(self.cost).unwrap_or(1).max(1);
        self.open + 1 >= most.min(self.last.max(1) * 2)
    }
}

#[derive(Debug)]
pub struct Pace {
    pub streams: BTreeMap<usize, StreamPace>,
    pub bucket: Bucket,
    has_bucket: bool,
    /// When work last ended, or began on an idle card.
    progress_at: u64,
    /// The last intervals, by which a stall is told from a long kernel.
    longest: [u64; 8],
    intervals: usize,
    unblocked_at: u64,
    /// How often the process was let go on although nothing ended.
    rounds: u32,
    admitted: u64,
    /// Until when its engine time is billed.
    billed_until: u64,
    idle: bool,
    permitted: bool,
    /// The end of its own lease, while it has the card alone.
    until: u64,
}

impl Pace {
    pub fn new() -> Self {
        Self {
            streams: BTreeMap::new(),
            bucket: Bucket::new(0),
            has_bucket: false,
            progress_at: 0,
            longest: [0; 8],
            intervals: 0,
            unblocked_at: 0,
            rounds: 0,
            admitted: 0,
            billed_until: 0,
            idle: true,
            permitted: true,
            until: 0,
        }
    }

    pub fn is_idle(&self) -> bool {
        self.idle
    }

    /// How long it expects to see no end of its work.
    fn patience(&self, timing: &Timing) -> u64 {
        let expected = self
            .streams
            .values()
            .filter_map(|it| Some(it.cost * it.events.front().map(|event| event.launches)?));
        let longest = self.longest.iter().copied().chain(expected).max().unwrap_or(0);
        timing.stall.max(2 * longest)
    }

    /// When its work counts as stalled if nothing ends until then.
    pub fn stalls_at(&self, timing: &Timing) -> u64 {
        if self.idle {
            return u64::MAX;
        }
        self.progress_at.max(self.unblocked_at) + (self.patience(timing) << self.rounds.min(10))
    }

    /// The process is stalled: the launches that wait are made, one, then two, then four.
    pub fn stalled(&mut self, now: u64) {
        self.unblocked_at = now;
        self.admitted = 1 << self.rounds.min(20);
        self.rounds += 1;
        if !self.permitted {
            self.admitted = 0;
        }
    }

    pub fn is_stalled(&self) -> bool {
        self.rounds > 0
    }

    /// The coordinator lets launches go on because work of the slice is stalled.
    pub fn unblock(&mut self, now: u64, launches: u64) {
        self.unblocked_at = now;
        self.admitted = self.admitted.max(launches);
    }

    /// Whether a launch is made now; if not, when to ask again without a change.
    pub fn may_launch(
        &mut self,
        now: u64,
        stream: usize,
        (permission, depth): (Permission, u64),
        timing: &Timing,
    ) -> Result<(), Option<u64>> {
        // The coordinator's ledger keeps a share that no bucket keeps.
        let share = if let Permission::Alone(share) = permission { share } else { None };
        self.has_bucket = share.is_some();
        self.bucket.set_rate(now, share.unwrap_or(0) * 10_000);
        let (permitted, depth, again) = match permission {
            Permission::Free => return Ok(()),
            Permission::Held { until } => (now < until, depth, None),
            Permission::None => (false, depth, None),
            Permission::Alone(hard) => match hard {
                None => (true, depth, None),
                Some(share) => {
                    let running = if self.idle { 0 } else { now - self.billed_until.min(now) };
                    let balance = self.bucket.balance(now) - running as i64;
                    // A pause takes as long as the work in flight lets it.
                    let share = u64::from(share);
                    let longest = timing.pause * share / (100 - share);
                    let depth = depth.min(longest.max(timing.depth));
                    if balance > 0 && now >= self.until {
                        // A lease of its own: what begins together is launched together.
                        self.until = now + longest.clamp(timing.depth, timing.turn);
                    }
                    let again = if self.idle { self.bucket.positive_at(now) } else { None };
                    let again = again.or(Some(now + (-balance).max(100_000) as u64 * 100 / share));
                    (now < self.until, depth, again)
                }
            },
        };
        self.permitted = permission != Permission::None;
        let is_full = self.streams.get(&stream).is_some_and(|it| it.is_full(depth));
        if permitted && !is_full {
            return Ok(());
        }
        if self.admitted > 0 {
            self.admitted -= 1;
            return Ok(());
        }
        Err(if permitted { None } else { again })
    }

    /// A launch is made. True if an event is recorded behind it.
    pub fn launched(&mut self, now: u64, stream: usize, depth: u64) -> bool {
        if self.idle {
            self.idle = false;
            self.progress_at = now;
            self.billed_until = self.billed_until.max(now);
        }
        let it = self.streams.entry(stream).or_default();
        let records = it.records(depth);
        if it.open == 0 {
            it.open_began = now;
        }
        it.open += 1;
        it.launches += 1;
        if records {
            it.events.push_back(Interval { launches: it.open, began: it.open_began });
            it.last = it.open;
            it.open = 0;
        }
        records
    }

    /// An event has been seen, or the stream is seen to be `empty`.
    pub fn ended(&mut self, now: u64, stream: usize, began: u64, at: u64, empty: bool) {
        let it = self.streams.get_mut(&stream).expect("it launched");
        if let Some(interval) = it.events.pop_front() {
            let time = at - interval.began.max(it.ended_at).min(at);
            // It ended because a launch was let go on.
            let soon = (at.saturating_sub(self.progress_at) / 8).max(MS);
            let unblocked = self.unblocked_at > 0 && at < self.unblocked_at + soon;
            if !unblocked {
                it.cost = time / interval.launches;
                self.longest[self.intervals % 8] = time.min(4_000 * MS);
                self.intervals += 1;
            }
        }
        if empty {
            it.events.clear();
            it.open = 0;
        }
        it.ended_at = at;
        let from = began.max(self.billed_until).min(at);
        let from = if self.billed_until > began { self.billed_until.min(at) } else { from };
        if self.has_bucket {
            self.bucket.debit(now, at - from);
        }
        self.billed_until = self.billed_until.max(at);
        self.idle = self.streams.values().all(|it| it.in_flight() == 0);
        self.progress_at = now;
        (self.rounds, self.admitted, self.unblocked_at) = (0, 0, 0);
    }
}
