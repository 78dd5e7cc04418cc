//! The coordinator of one card: which slice holds the lease, and for how long.

use hami_share::{Mode, Priority, Regime};

use crate::{MS, Timing};

/// The report of a process to the coordinator, which does not trust it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// One of its launches waits.
    pub waits: bool,
    /// It has work in flight.
    pub runs: bool,
    /// Nothing of it ended for as long as it expected.
    pub stalled: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Permission {
    /// No slice with a share uses the card.
    #[default]
    Free,
    /// The slice has the card alone; a hard share is kept by its process.
    Alone,
    Held {
        until: u64,
    },
    None,
}

/// The permission of a slice to launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    pub permission: Permission,
    pub depth: u64,
    /// How often its waiting launches were let go on, and how many at the last time.
    pub unblocked: (u64, u64, bool),
}

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "what is seen of its processes")]
struct Slice {
    regime: Regime,
    /// Reserved time over weight.
    served: u64,
    /// Of a hard slice: its share of the time less what was reserved.
    balance: i64,
    cap: i64,
    weight: u64,
    processes: usize,
    waits: bool,
    runs: bool,
    stalled: bool,
    blocked: bool,
    active_at: Option<u64>,
    /// When it returned from a pause.
    returned_at: u64,
    /// When it last ended a lease because it had nothing to do.
    paused_at: Option<u64>,
    /// Since when its work has gone on without the lease.
    draining_since: Option<u64>,
    /// Others do not wait for its work any more.
    stuck: bool,
    waiting_since: u64,
    queued: bool,
    low_credit: i64,
    unblocked: (u64, u64, bool),
    unblock_rounds: u32,
    unblock_at: u64,
    reserved: bool,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    slice: usize,
    began: u64,
    until: u64,
}

#[derive(Debug)]
pub struct Leases {
    now: u64,
    timing: Timing,
    slices: Vec<Slice>,
    lease: Option<Lease>,
    floor: u64,
    wake_at: u64,
}

const NS: i64 = 100;

impl Leases {
    pub fn new(timing: Timing) -> Self {
        Self { now: 0, timing, slices: Vec::new(), lease: None, floor: 0, wake_at: 0 }
    }

    fn limit(regime: Regime) -> Option<u64> {
        (1..100).contains(&regime.share).then_some(u64::from(regime.share))
    }

    fn is_hard(regime: Regime) -> bool {
        regime.mode == Mode::Hard && Self::limit(regime).is_some()
    }

    pub fn step(&mut self, now: u64, view: &[(Regime, Vec<Seen>)]) -> (Vec<Grant>, u64) {
        let passed = now - self.now;
        self.now = now;
        self.wake_at = u64::MAX;
        self.bill(passed);
        self.read(view);
        let active: Vec<usize> =
            (0..self.slices.len()).filter(|s| self.is_active(&self.slices[*s])).collect();
        self.weigh(&active);
        self.enter(&active);
        let limited = active.iter().any(|s| Self::limit(self.slices[*s].regime).is_some());
        let grants = if !limited {
            self.lease = None;
            let present =
                self.slices.iter().any(|s| Self::limit(s.regime).is_some() && s.processes > 0);
            let permission = if present { Permission::Alone } else { Permission::Free };
            let grant = Grant { permission, depth: self.timing.depth, unblocked: (0, 0, false) };
            vec![grant; self.slices.len()]
        } else if active.len() == 1 && self.fits_alone(active[0]) {
            self.alone(active[0])
        } else {
            self.turns(&active)
        };
        for (it, grant) in self.slices.iter_mut().zip(&grants) {
            let held = matches!(grant.permission, Permission::Held { .. });
            let alone = grant.permission == Permission::Alone && it.runs;
            it.reserved = held || it.draining_since.is_some() || alone;
        }
        (grants, self.wake_at)
    }

    fn due(&mut self, at: u64) {
        if at > self.now {
            self.wake_at = self.wake_at.min(at);
        }
    }

    fn is_active(&self, it: &Slice) -> bool {
        it.waits || it.runs || it.active_at.is_some_and(|at| self.now - at < self.timing.active)
    }

    fn bill(&mut self, passed: u64) {
        let timing = &self.timing;
        for it in &mut self.slices {
            if it.reserved {
                it.served += passed * 100_000 / it.weight;
                it.balance = (it.balance - passed as i64 * NS).max(-60_000 * MS as i64 * NS);
                it.low_credit = (it.low_credit - passed as i64).max(-50 * MS as i64);
            }
            if let Some(share) = Self::limit(it.regime) {
                it.balance += passed as i64 * share as i64;
                let saved = timing.saved as i64 * NS;
                if it.waits && !it.reserved {
                    it.balance = it.balance.min(timing.claim as i64 * NS);
                    it.cap = it.balance.max(saved);
                } else {
                    if !it.waits && !it.runs && self.lease.is_none() {
                        it.cap = saved;
                    }
                    it.balance = it.balance.min(it.cap);
                }
            }
            if it.waits && !it.reserved {
                let floor = (passed * timing.low_floor / 100) as i64;
                it.low_credit = (it.low_credit + floor).min(50 * MS as i64);
            }
        }
    }

    fn read(&mut self, view: &[(Regime, Vec<Seen>)]) {
        let now = self.now;
        for (s, (regime, processes)) in view.iter().enumerate() {
            if s == self.slices.len() {
                self.slices.push(Slice::new(*regime));
            }
            let it = &mut self.slices[s];
            if it.regime != *regime {
                it.regime = *regime;
                (it.balance, it.cap) = (0, self.timing.saved as i64 * NS);
            }
            let was_busy = it.waits || it.runs;
            let waited = it.waits;
            it.processes = processes.len();
            it.waits = processes.iter().any(|p| p.waits);
            it.runs = processes.iter().any(|p| p.runs);
            it.stalled = it.runs && processes.iter().all(|p| !p.runs || p.stalled);
            it.blocked = processes.iter().any(|p| p.waits && !p.runs);
            if it.waits || it.runs {
                it.active_at = Some(now);
            }
            if !was_busy && (it.waits || it.runs) {
                it.returned_at = now;
            }
            if it.waits && !waited {
                it.waiting_since = now;
            }
            if !it.runs {
                it.stuck = false;
                it.draining_since = None;
            }
            if !it.stalled {
                it.unblock_rounds = 0;
            }
        }
    }

    fn weigh(&mut self, active: &[usize]) {
        let shares: u64 = active.iter().filter_map(|s| Self::limit(self.slices[*s].regime)).sum();
        let without =
            active.iter().filter(|s| Self::limit(self.slices[**s].regime).is_none()).count();
        let rest = (100_000u64.saturating_sub(shares * 1_000) / without.max(1) as u64).max(1_000);
        for s in active {
            let it = &mut self.slices[*s];
            it.weight = Self::limit(it.regime).map_or(rest, |share| share * 1_000);
        }
    }

    /// Slices that want the card again start with about what the least served one has had.
    fn enter(&mut self, active: &[usize]) {
        let wants = |it: &Slice| (it.waits || it.runs) && it.may_run();
        let least = active
            .iter()
            .map(|s| &self.slices[*s])
            .filter(|it| it.queued && wants(it))
            .map(|it| it.served)
            .min();
        if let Some(least) = least {
            self.floor = self.floor.max(least);
        }
        let (floor, saved) = (self.floor, self.timing.saved);
        for s in active {
            let it = &mut self.slices[*s];
            let wants = wants(it);
            if wants && !it.queued {
                let behind = if it.served == 0 { 0 } else { saved * 100_000 / it.weight };
                it.served = it.served.max(floor.saturating_sub(behind));
            }
            if wants {
                it.served = it.served.min(floor + 4_000 * MS * 100_000 / it.weight);
            }
            it.queued = wants;
        }
    }

    fn fits_alone(&self, s: usize) -> bool {
        let it = &self.slices[s];
        !Self::is_hard(it.regime) || it.processes == 1
    }

    fn alone(&mut self, s: usize) -> Vec<Grant> {
        self.lease = None;
        let others = self.slices.iter().enumerate().any(|(o, it)| o != s && it.processes > 0);
        let depth = if others { self.timing.depth } else { self.timing.alone_depth };
        self.slices[s].draining_since = None;
        let none = Grant { permission: Permission::None, depth, unblocked: (0, 0, false) };
        let mut grants = vec![none; self.slices.len()];
        grants[s].permission = Permission::Alone;
        grants
    }

    fn order(&self, s: usize) -> (i8, u64, u64, usize) {
        let it = &self.slices[s];
        let mut priority = -(it.regime.priority as i8);
        if it.low_credit >= 5 * MS as i64 {
            priority = -(Priority::High as i8);
        }
        (priority, it.served, it.waiting_since, s)
    }

    fn turns(&mut self, active: &[usize]) -> Vec<Grant> {
        let now = self.now;
        self.end_lease(active);
        self.give_up_on_stuck();
        let candidate = active
            .iter()
            .copied()
            .filter(|s| {
                let it = &self.slices[*s];
                it.waits
                    && !it.stuck
                    && it.may_run()
                    && self.lease.is_none_or(|lease| lease.slice != *s)
            })
            .min_by_key(|s| self.order(*s));
        if let Some(candidate) = candidate {
            self.cut(candidate);
            if self.lease.is_none() && self.is_free_for(candidate, active) {
                let length = self.length(active.len(), candidate);
                self.slices[candidate].draining_since = None;
                self.lease = Some(Lease { slice: candidate, began: now, until: now + length });
            }
        }
        for s in active {
            if self.slices[*s].waits && !self.slices[*s].may_run() {
                let it = &self.slices[*s];
                let share = Self::limit(it.regime).unwrap_or(100);
                self.due(now + it.balance.unsigned_abs() / share + 1);
            }
        }
        self.unblock(active);
        if let Some(lease) = self.lease {
            self.due(lease.until.saturating_sub(self.timing.ahead));
            self.due(lease.until);
        }
        self.due(now + 10 * MS);
        (0..self.slices.len())
            .map(|s| {
                let lease = self.lease.filter(|lease| lease.slice == s);
                let permission = match lease {
                    Some(lease) => Permission::Held { until: lease.until },
                    None => Permission::None,
                };
                let unblocked = self.slices[s].unblocked;
                Grant { permission, depth: self.depth(s, active), unblocked }
            })
            .collect()
    }

    fn length(&self, active: usize, s: usize) -> u64 {
        let timing = &self.timing;
        let mut length = if active <= 2 { timing.turn } else { timing.round / active as u64 };
        length = length.max(timing.shortest);
        let it = &self.slices[s];
        if Self::is_hard(it.regime) && active == 1 {
            // Alone: until its balance is used up.
            let share = Self::limit(it.regime).unwrap_or(100);
            length = length.min((it.balance.max(0) as u64 / (100 - share)).max(MS));
        }
        length
    }

    fn end_lease(&mut self, active: &[usize]) {
        let now = self.now;
        let Some(lease) = self.lease else { return };
        let it = &self.slices[lease.slice];
        let gives_up = !it.waits && !it.runs;
        let near = now + self.timing.ahead >= lease.until;
        if gives_up {
            self.slices[lease.slice].paused_at = Some(now);
            self.lease = None;
        } else if near {
            // The lease goes on if its holder is the next one too.
            let own = self.order(lease.slice);
            let best = active
                .iter()
                .filter(|s| **s != lease.slice)
                .filter(|s| self.slices[**s].waits && self.slices[**s].may_run())
                .all(|s| self.order(*s) > own);
            if best && it.may_run() && it.waits {
                let length = self.length(active.len(), lease.slice);
                self.lease = Some(Lease { until: now + length, ..lease });
            } else if now >= lease.until {
                self.drain();
            }
        }
    }

    /// The lease ends; the work in flight goes on.
    fn drain(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        let it = &mut self.slices[lease.slice];
        if it.runs {
            it.draining_since = Some(self.now);
        }
    }

    fn give_up_on_stuck(&mut self) {
        let now = self.now;
        for s in 0..self.slices.len() {
            let it = &mut self.slices[s];
            let held = self.lease.is_some_and(|lease| lease.slice == s);
            if it.runs && !held && it.draining_since.is_none() {
                it.draining_since = Some(now);
            }
            if let Some(since) = it.draining_since {
                it.stuck = now - since >= self.timing.drain;
                if !it.stuck {
                    self.due(since + self.timing.drain);
                }
            }
        }
    }

    /// A slice that returns ends the lease of one that has had more.
    fn cut(&mut self, candidate: usize) {
        let Some(lease) = self.lease else { return };
        let returned = self.slices[candidate].returned_at > lease.began;
        let (own, other) = (self.order(candidate), self.order(lease.slice));
        if returned && (own.0, own.1) < (other.0, other.1) {
            self.drain();
        }
    }

    fn is_free_for(&mut self, candidate: usize, active: &[usize]) -> bool {
        let now = self.now;
        let mut free = true;
        for s in active {
            let it = &self.slices[*s];
            let Some(since) = it.draining_since.filter(|_| *s != candidate && !it.stuck) else {
                continue;
            };
            let returned = self.slices[candidate].returned_at >= since.saturating_sub(MS)
                || self.slices[candidate].pauses(now, &self.timing);
            let soft = !Self::is_hard(it.regime) || self.timing.overlap_hard;
            if returned && soft && self.timing.overlap > 0 {
                if now - since < self.timing.overlap {
                    free = false;
                    self.due(since + self.timing.overlap);
                }
                continue;
            }
            free = false;
        }
        free
    }

    /// Lets waiting launches of a slice go on if all its work in flight is stalled.
    fn unblock(&mut self, active: &[usize]) {
        let now = self.now;
        for s in active {
            let holds = self.lease.is_some_and(|lease| lease.slice == *s);
            let wait = self.timing.stall;
            let it = &mut self.slices[*s];
            if holds || !it.stalled || !it.waits {
                continue;
            }
            let due = it.unblock_at + (wait << it.unblock_rounds);
            if it.unblock_at == 0 || now >= due {
                it.unblock_at = now;
                // First the launches of processes whose work is not stalled.
                let only_idle = it.blocked && it.unblock_rounds == 0;
                let count = 1 << it.unblock_rounds.min(20);
                it.unblocked = (it.unblocked.0 + 1, count, only_idle);
                it.unblock_rounds += 1;
            }
            let due = it.unblock_at + (wait << it.unblock_rounds);
            self.due(due);
        }
    }

    fn depth(&self, s: usize, active: &[usize]) -> u64 {
        let now = self.now;
        let pauses = |s: usize| self.slices[s].pauses(now, &self.timing);
        let beside = active.iter().any(|o| *o != s && pauses(*o));
        if beside && !pauses(s) { self.timing.shallow } else { self.timing.depth }
    }
}

impl Slice {
    fn new(regime: Regime) -> Self {
        Self {
            regime,
            served: 0,
            balance: 0,
            cap: 100 * MS as i64 * NS,
            weight: 100_000,
            processes: 0,
            waits: false,
            runs: false,
            stalled: false,
            blocked: false,
            active_at: None,
            returned_at: 0,
            paused_at: None,
            draining_since: None,
            stuck: false,
            waiting_since: 0,
            queued: false,
            low_credit: 0,
            unblocked: (0, 0, false),
            unblock_rounds: 0,
            unblock_at: 0,
            reserved: false,
        }
    }

    fn may_run(&self) -> bool {
        !Leases::is_hard(self.regime) || self.balance >= 0
    }

    fn pauses(&self, now: u64, timing: &Timing) -> bool {
        self.paused_at.is_some_and(|at| now - at < timing.pauses)
    }
}
