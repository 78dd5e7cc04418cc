//! A slice, and its part of a card: its processes, how it shares the card, and its ledger.

use super::ledger::{Ledger, Unused, limit};
use super::process::Process;
use super::{SliceCardView, SliceView};
use crate::{Grant, Holder, Kind, Priority, Regime};

/// How a card is shared between the slices that are present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sharing {
    /// By the driver; launches need no permission.
    #[default]
    Unregulated,
    /// A slice with a share is present, but not active. Slices without a share launch as they like,
    /// but metered, so that little of their work is queued when it becomes active.
    Metered,
    /// A slice with a share is active: only the holder of the turn launches.
    Turns,
}

#[derive(Debug)]
pub(super) struct Slice {
    pub key: u64,
    pub gang: Option<u128>,
    pub rows: Vec<SliceCard>,
    /// The published word; `None` if it is unknown.
    pub regulated: Option<bool>,
    seen: u64,
}

impl Slice {
    pub fn new(key: u64) -> Self {
        Self { key, gang: None, rows: Vec::new(), regulated: None, seen: 0 }
    }

    pub fn update(&mut self, now: u64, view: &SliceView) {
        self.seen = now;
        self.gang = view.gang;
        self.rows.truncate(view.rows.len());
        for (i, seen) in view.rows.iter().enumerate() {
            if i == self.rows.len() {
                self.rows.push(SliceCard::new(seen));
            }
            self.rows[i].update(now, seen);
        }
    }

    pub fn seen_at(&self, now: u64) -> bool {
        self.seen == now
    }
}

#[derive(Debug)]
pub(super) struct SliceCard {
    /// The index of the card among all cards.
    pub card: usize,
    pub regime: Regime,
    pub sharing: Sharing,
    /// When the time ended in which it launched metered, without turns.
    pub metered_until: Option<u64>,
    /// The published grant.
    pub grant: Grant,
    pub ledger: Ledger,
    /// The queue that it is in, if it needs the card and its balance allows it.
    pub queue: Option<Priority>,
    /// Whether it has become active and had no turn yet.
    pub newcomer: bool,
    pub last_served: u64,
    /// The number of its turn's grant; of the first one if the turn was prolonged.
    pub first_turn: u32,
    /// Whether the card is reserved for its party since the last step, by a turn or because its
    /// work goes on.
    pub is_reserved: bool,
    /// When it began to wait for the card.
    pub asked_at: Option<u64>,
    was_active: bool,
    /// The least time of its busy processes.
    least_served: u64,
    /// In the order of their slots.
    pub processes: Vec<Process>,
}

impl SliceCard {
    fn new(seen: &SliceCardView) -> Self {
        Self {
            card: 0,
            regime: seen.regime,
            sharing: Sharing::Unregulated,
            metered_until: None,
            grant: seen.published,
            ledger: Ledger::new(),
            queue: None,
            newcomer: false,
            last_served: 0,
            first_turn: seen.published.turn,
            is_reserved: false,
            asked_at: None,
            was_active: false,
            least_served: 0,
            processes: Vec::new(),
        }
    }

    /// Reads the slice's files.
    fn update(&mut self, now: u64, seen: &SliceCardView) {
        if (self.regime.share, self.regime.mode) != (seen.regime.share, seen.regime.mode) {
            self.ledger.reset_balance();
        }
        self.regime = seen.regime;
        self.read_processes(now, seen);
        let active = self.is_active(now);
        self.newcomer = active && (self.newcomer || !self.was_active);
        self.was_active = active;
        self.asked_at = self.waits().then(|| self.asked_at.unwrap_or(now));
    }

    fn read_processes(&mut self, now: u64, seen: &SliceCardView) {
        let metered = self.sharing != Sharing::Unregulated || limit(self.regime).is_some();
        self.processes.iter_mut().for_each(|process| process.found = false);
        for process in &seen.processes {
            let known = self.processes.binary_search_by_key(&process.slot, |known| known.last.slot);
            match known {
                Ok(at) => self.processes[at].read(now, process, metered),
                Err(at) => self.processes.insert(at, Process::new(now, process, metered)),
            }
        }
        self.processes.retain(|process| process.found);
        let owed = self.processes.iter_mut().map(Process::take_owed).sum();
        self.ledger.bill(owed);
        self.order_processes();
    }

    /// A process that starts, or returns, begins with the time of the least served one.
    fn order_processes(&mut self) {
        let busy = self.processes.iter().filter(|process| process.was_busy);
        self.least_served = busy.map(|it| it.served).min().unwrap_or(0).max(self.least_served);
        for process in &mut self.processes {
            let is_busy = process.waits() || process.is_running();
            if is_busy && !process.was_busy {
                process.served = process.served.max(self.least_served);
            }
            process.was_busy = is_busy;
        }
    }

    /// The process that is next in its slice: of those that wait, or work in this turn, the least
    /// served one.
    pub fn next_process(&self, has_turn: impl Fn(u16) -> bool, expected: u64) -> Option<u16> {
        let wants = |process: &&Process| {
            let wants = process.waits() && !process.is_stuck();
            wants || process.is_running() && has_turn(process.last.slot)
        };
        let next = self.processes.iter().filter(wants).min_by_key(|process| {
            process.served + if has_turn(process.last.slot) { expected } else { 0 }
        });
        next.map(|process| process.last.slot)
    }

    pub fn credit(&mut self, now: u64, passed: u64, turn: Option<Kind>) {
        let unused = match turn {
            // Its process's own bucket gets the credit, and pays for its work.
            Some(Kind::Alone) => return,
            _ if self.sharing != Sharing::Turns || !self.is_active(now) => Unused::Capped,
            None if self.queue.is_some() && self.waits() => Unused::Accumulates,
            _ => Unused::Stays,
        };
        self.ledger.credit(self.regime, passed, unused);
    }

    /// Whether it has a living process, active or not.
    pub fn is_present(&self) -> bool {
        self.processes.iter().any(|process| !process.last.dead)
    }

    /// Whether it has had more than its share. New processes have to wait, even if the others have
    /// exited.
    pub fn owes(&self) -> bool {
        !self.ledger.may_run(self.regime, 0)
    }

    pub fn is_active(&self, now: u64) -> bool {
        self.active(now).next().is_some()
    }

    /// Whether one of its processes was active in the last `time` ns.
    pub fn was_active_within(&self, time: u64, now: u64) -> bool {
        let mut last = self.processes.iter().filter_map(|process| process.last_active);
        last.any(|at| now - at < time)
    }

    pub fn active(&self, now: u64) -> impl Iterator<Item = u16> {
        let active = self.processes.iter().filter(move |process| process.is_active(now));
        active.map(|process| process.last.slot)
    }

    /// The active process, if there is only one.
    pub fn only_active(&self, now: u64) -> Option<u16> {
        let mut active = self.active(now);
        active.next().filter(|_| active.next().is_none())
    }

    /// Whether a launch of any process waits for the card.
    pub fn waits(&self) -> bool {
        self.processes.iter().any(Process::waits)
    }

    /// Whether a launch of a process waits whose work makes progress.
    pub fn wants(&self) -> bool {
        self.processes.iter().any(|process| process.waits() && !process.is_stuck())
    }

    /// Whether a process works on the card.
    pub fn is_running(&self) -> bool {
        self.processes.iter().any(Process::is_running)
    }

    /// Whether others wait for work that has no turn.
    pub fn is_overdue(&self) -> bool {
        self.processes.iter().any(Process::is_overdue)
    }

    /// The time of the longest launch that waits.
    pub fn needs(&self) -> u64 {
        self.processes.iter().map(Process::needs).max().unwrap_or(0)
    }

    /// How many of its processes have work in flight or, with `metered`, are active.
    pub fn at_work(&self, now: u64, metered: bool) -> u64 {
        let counts = |process: &&Process| {
            if metered { process.is_active(now) } else { process.works() }
        };
        self.processes.iter().filter(counts).count() as u64
    }

    /// The grant to publish, if it differs from the published one. `next` has any turn number.
    pub fn next_grant(&mut self, next: Grant) -> Option<Grant> {
        let before = self.grant;
        let own = next.kind == Kind::Own && before.kind == Kind::Own;
        if own || before == (Grant { turn: before.turn, ..next }) {
            return None;
        }
        self.grant = Grant { turn: before.turn.wrapping_add(1), ..next };
        Some(self.grant)
    }

    /// Whether the published grant lets a process launch.
    pub fn may_launch(&self) -> bool {
        match self.grant.kind {
            Kind::Own | Kind::Alone => true,
            Kind::Turn => self.grant.holder != Holder::None,
        }
    }
}
