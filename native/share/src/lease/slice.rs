//! A slice, its part of each card, and the processes there, as their files say.

use super::ledger::{Ledger, limit};
use super::{ProcessView, SliceCardView, State};
use crate::{Grant, Holder, Kind, Regime, timing};

/// How a card is shared with a slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sharing {
    /// By the driver; launches need no admission.
    #[default]
    Free,
    /// A slice with a share is present, but not active: the work in flight of slices without a share
    /// is limited, so that the other never finds a long queue before it.
    Shallow,
    /// A slice with a share is active: only the holder of the lease launches.
    Leased,
}

#[derive(Debug)]
pub(super) struct Slice {
    pub key: u64,
    /// The index of its party.
    pub party: usize,
    pub rows: Vec<Row>,
    /// The published word; `None` if it is unknown.
    pub regulated: Option<bool>,
}

impl Slice {
    pub fn new(key: u64) -> Self {
        Self { key, party: 0, rows: Vec::new(), regulated: None }
    }
}

#[derive(Debug)]
pub(super) struct Row {
    /// The index of the card among all cards.
    pub card: usize,
    pub regime: Regime,
    pub sharing: Sharing,
    /// The published grant, and when it was published.
    pub grant: Grant,
    granted_at: u64,
    /// The word of the last round of launches that went on without admission.
    pub unblock: u64,
    pub ledger: Ledger,
    /// Whether a slice of a higher priority is active on the card.
    pub is_outranked: bool,
    /// If the card is reserved for the slice, because its party holds the lease or its work goes on:
    /// its part of the bill, and the whole.
    pub reserved: Option<(u64, u64)>,
    /// Whether a launch waits, and whether work may be in flight.
    pub waits: bool,
    pub runs: bool,
    /// In the order of their slots.
    pub processes: Vec<Process>,
    /// The slots of the active ones.
    pub active: Vec<u16>,
}

impl Row {
    pub fn new(seen: &SliceCardView) -> Self {
        Self {
            card: 0,
            regime: seen.regime,
            sharing: Sharing::Free,
            grant: seen.published,
            granted_at: 0,
            unblock: seen.published.unblock,
            ledger: Ledger::new(),
            is_outranked: false,
            reserved: None,
            waits: false,
            runs: false,
            processes: Vec::new(),
            active: Vec::new(),
        }
    }

    /// Reads the slice's files. `governed`: whether grants counted since the last step.
    pub fn read(&mut self, now: u64, seen: &SliceCardView, governed: bool) {
        if (self.regime.share, self.regime.mode) != (seen.regime.share, seen.regime.mode) {
            self.ledger.reset_balance();
        }
        self.regime = seen.regime;
        let free = limit(self.regime).is_none() && !(governed && self.grant.kind != Kind::Own);
        let read = |seen: &ProcessView| {
            let known = self.processes.binary_search_by_key(&seen.slot, |known| known.last.slot);
            let known = known.ok().map(|at| self.processes[at]).filter(|it| it.last.id == seen.id);
            known.unwrap_or_else(|| Process::new(seen)).read(now, seen, free)
        };
        let mut processes: Vec<Process> = seen.processes.iter().map(read).collect();
        processes.sort_by_key(|process| process.last.slot);
        if self.reserved.is_some() {
            let must_have_answered = self.may_launch() && now >= self.answers_until();
            for process in &mut processes {
                let unanswered = process.waits() && process.last.report.grant != self.grant.number;
                process.is_silent |= if process.runs() {
                    now > process.last.active_at.saturating_add(timing::SILENT)
                } else {
                    must_have_answered && unanswered
                };
            }
        }
        self.waits = processes.iter().any(Process::waits);
        self.runs = processes.iter().any(Process::runs);
        let active = processes.iter().filter(|process| process.is_active(now, timing::ACTIVE));
        self.active = active.map(|process| process.last.slot).collect();
        self.processes = processes;
    }

    /// Until when its waiting processes have to answer the grant.
    pub fn answers_until(&self) -> u64 {
        self.granted_at.saturating_add(timing::ANSWER)
    }

    /// Whether it has a living process, active or not.
    pub fn is_present(&self) -> bool {
        self.processes.iter().any(|process| !process.last.dead)
    }

    /// Whether it has had more than its share. New processes have to wait, even if the others have
    /// exited.
    pub fn owes(&self) -> bool {
        self.ledger.owes(self.regime)
    }

    /// Whether it is the only active slice on the card, and needs no lease.
    pub fn is_alone(&self) -> bool {
        self.sharing == Sharing::Leased && self.grant.kind == Kind::Alone
    }

    /// Whether a process works, or waits.
    pub fn works(&self) -> bool {
        self.waits || self.runs
    }

    /// Whether a process works in several contexts, each of which the driver serves like a process.
    pub fn is_split(&self) -> bool {
        self.processes.iter().any(|process| process.takes_part() && process.last.report.is_split)
    }

    /// Whether it needs the card, and may have it.
    pub fn wants(&self) -> bool {
        self.works() && !self.owes()
    }

    /// Whether the published grant lets a process launch.
    pub fn may_launch(&self) -> bool {
        self.grant.kind != Kind::Lease || self.grant.holder != Holder::None
    }

    /// The grant to publish, if it differs from the published one. `next` has any number.
    pub fn next_grant(&mut self, now: u64, next: Grant) -> Option<Grant> {
        let before = self.grant;
        let own = next.kind == Kind::Own && before.kind == Kind::Own;
        if own || before == (Grant { number: before.number, ..next }) {
            return None;
        }
        self.grant = Grant { number: before.number.wrapping_add(1), ..next };
        self.granted_at = now;
        Some(self.grant)
    }
}

/// A process on a card.
#[derive(Clone, Copy, Debug)]
pub(super) struct Process {
    /// The state that it last reported.
    pub last: ProcessView,
    /// When it last waited or worked.
    active_at: Option<u64>,
    /// It did not respond. Another report or a heartbeat is a sign of life.
    is_silent: bool,
    /// Work that it launched without admission may still be queued.
    pub has_backlog: bool,
}

impl Process {
    fn new(seen: &ProcessView) -> Self {
        Self { last: *seen, active_at: None, is_silent: false, has_backlog: false }
    }

    /// `free`: whether it may have launched without admission.
    fn read(mut self, now: u64, seen: &ProcessView, free: bool) -> Self {
        let before = self.last;
        self.last = ProcessView { active_at: seen.active_at.min(now), ..*seen };
        let sign = |it: ProcessView| (it.report.grant, it.report.state, it.active_at);
        self.is_silent &= sign(before) == sign(self.last);
        if self.takes_part() {
            let heartbeat = (seen.active_at > 0).then_some(self.last.active_at);
            let busy = (self.waits() || self.runs()).then_some(now);
            self.active_at = self.active_at.max(heartbeat).max(busy);
        }
        let has_ended =
            before.report.state == State::Running && seen.report.state != State::Running;
        self.has_backlog = free || self.has_backlog && !has_ended;
        self
    }

    /// Whether it is neither dead nor silent.
    fn takes_part(&self) -> bool {
        !self.last.dead && !self.is_silent
    }

    fn is_active(&self, now: u64, time: u64) -> bool {
        self.takes_part() && self.active_at.is_some_and(|at| now - at < time)
    }

    /// Whether a launch waits.
    pub fn waits(&self) -> bool {
        self.takes_part() && self.last.report.waits()
    }

    /// Whether work may be in flight.
    pub fn runs(&self) -> bool {
        self.takes_part() && self.last.report.state == State::Running
    }
}
