//! The library in one process: it admits launches, and records events behind them.

use std::collections::BTreeMap;

use hami_share::own::{Own, OwnLease};
use hami_share::pace::{Costs, Progress, StreamPace};
use hami_share::{Grant, Holder, Kind, Mode, Regime, timing};

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
        Kind::Lease => Permission::Held { until: grant.until },
    }
}

/// A stream: when the first launch of each interval was made, and when its last work ended.
#[derive(Debug, Default)]
struct Stream {
    pace: StreamPace<u64>,
    open_at: u64,
    ended_at: u64,
}

#[derive(Debug)]
pub struct Pace {
    streams: BTreeMap<usize, Stream>,
    own: OwnLease,
    has_bucket: bool,
    progress: Progress,
    costs: Costs,
    /// Until when its engine time is billed.
    billed_until: u64,
    idle: bool,
    /// How many other processes have the lease too.
    others: u32,
    permitted: bool,
}

impl Pace {
    pub fn new() -> Self {
        Self {
            streams: BTreeMap::new(),
            own: OwnLease::new(0),
            has_bucket: false,
            progress: Progress::default(),
            costs: Costs::default(),
            billed_until: 0,
            idle: true,
            others: 0,
            permitted: true,
        }
    }

    pub fn is_idle(&self) -> bool {
        self.idle
    }

    fn expected(&self) -> u64 {
        self.streams.values().map(|it| it.pace.expected_ns()).max().unwrap_or(0)
    }

    /// When its work counts as stalled if nothing ends until then.
    pub fn stalls_at(&self) -> u64 {
        if self.idle { u64::MAX } else { self.progress.stalls_at(self.expected()) }
    }

    pub fn stalled(&mut self, now: u64) {
        self.progress.stalled(now, self.permitted);
    }

    pub fn is_stalled(&self) -> bool {
        self.progress.is_stalled()
    }

    pub fn unblock(&mut self, now: u64, launches: u64) {
        self.progress.unblock(now, launches);
    }

    /// Whether a launch of a function is made now; if not, when to ask again without a change.
    pub fn may_launch(
        &mut self,
        now: u64,
        (stream, function): (usize, usize),
        (permission, grant): (Permission, &Grant),
    ) -> Result<(), Option<u64>> {
        let (depth, shares) = (grant.depth, grant.others > 0);
        self.others = grant.others;
        // The coordinator's ledger keeps a share that no bucket keeps.
        let share = if let Permission::Alone(share) = permission { share } else { None };
        self.has_bucket = share.is_some();
        self.own.bucket.set_rate(now, share.unwrap_or(0) * 10_000);
        let (permitted, depth, again) = match (permission, share) {
            (Permission::Free, _) => return Ok(()),
            (Permission::Held { until }, _) => (now < until, depth, None),
            (Permission::None, _) => (false, depth, None),
            (Permission::Alone(_), None) => (true, depth, None),
            (Permission::Alone(_), Some(share)) => {
                let running = (!self.idle).then_some(self.billed_until);
                match self.own.ask(now, share * 10_000, running, depth) {
                    Own::Held(depth) => (true, depth, None),
                    Own::Empty(until) => (false, depth, Some(until)),
                }
            }
        };
        self.permitted = permission != Permission::None;
        let on = self.streams.get(&stream);
        if permitted
            && !on.is_some_and(|it| {
                it.pace.is_full(self.costs.get(&function).copied(), depth, shares)
            })
        {
            return Ok(());
        }
        let waits = on.map(|it| it.pace.waits(function, &self.costs));
        if self.progress.admits(now, waits.unwrap_or_default()) {
            if let Some((1.., false)) = waits {
                self.costs.insert(function, timing::LEAST_COST);
            }
            return Ok(());
        }
        Err(if permitted { None } else { again })
    }

    /// A launch is made. True if an event is recorded behind it.
    pub fn launched(&mut self, now: u64, (stream, function): (usize, usize), depth: u64) -> bool {
        if self.idle {
            self.idle = false;
            self.progress.begin(now);
            self.billed_until = self.billed_until.max(now);
        }
        let it = self.streams.entry(stream).or_default();
        if it.pace.open() == 0 {
            it.open_at = now;
        }
        let records = it.pace.launched(function, self.costs.get(&function).copied(), depth);
        if records {
            it.pace.close(it.open_at);
        }
        records
    }

    /// An event has been seen, or the stream is seen to be `empty`.
    pub fn ended(&mut self, now: u64, stream: usize, began: u64, at: u64, empty: bool) {
        let it = self.streams.get_mut(&stream).expect("it launched");
        let launched = it.pace.oldest().copied().unwrap_or(began);
        let took = at - launched.max(it.ended_at).min(at);
        let waited = self.progress.ended(now, took);
        if it.pace.oldest().is_some() {
            it.pace.ended(Some(took / (1 + u64::from(self.others))), waited, &mut self.costs);
        }
        while empty && !it.pace.is_idle() {
            it.pace.ended(None, false, &mut self.costs);
        }
        it.ended_at = at;
        let from = began.max(self.billed_until).min(at);
        if self.has_bucket {
            self.own.bucket.debit(now, at - from);
        }
        self.billed_until = self.billed_until.max(at);
        self.idle = self.streams.values().all(|it| it.pace.is_idle());
    }
}
