//! A process on a card: its last report, and whether others wait for its work.

use super::{ACTIVE_NS, BACKLOG_NS, DRAIN_NS, METERED_NS, ProcessView, Report, SILENT_NS, State};

#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // independent facts
pub(super) struct Process {
    /// The state that the process last reported.
    pub last: ProcessView,
    /// Whether the current view has it.
    pub found: bool,
    pub last_active: Option<u64>,
    /// Since when its work has gone on without a turn.
    overdue_since: Option<u64>,
    /// The time that was reserved for it alone, which orders the slice's processes. It is raised to
    /// that of the others when the process starts.
    pub served: u64,
    /// Whether it waited or worked at the last step.
    pub was_busy: bool,
    /// Whether its work began in a turn, or needed none.
    was_entitled: bool,
    /// Whether its work began in a turn.
    pub had_turn: bool,
    /// Its report when it did not respond; `None` while it responds. Another report or a heartbeat
    /// clears this.
    silent: Option<ProcessView>,
    /// Its report when others stopped waiting for its work, because the work did not end. Progress
    /// clears this. The work may wait for another launch of the process.
    stuck: Option<Report>,
    stuck_since: u64,
    /// The part of the card's time that such work has had. It is billed when the work has ended.
    pub owed: u64,
    /// Whether work that it launched without permission may still be queued.
    backlog: bool,
}

impl Process {
    /// `metered`: whether its launches are metered.
    pub fn new(now: u64, seen: &ProcessView, metered: bool) -> Self {
        let mut process = Self {
            last: *seen,
            found: true,
            last_active: None,
            overdue_since: None,
            served: 0,
            was_busy: false,
            was_entitled: metered,
            had_turn: false,
            silent: None,
            stuck: None,
            stuck_since: 0,
            owed: 0,
            backlog: !metered,
        };
        process.read(now, seen, metered);
        process
    }

    /// Reads its report.
    pub fn read(&mut self, now: u64, seen: &ProcessView, metered: bool) {
        self.found = true;
        if seen.id != self.last.id {
            // Another process has its slot, or claims to. The time for which others have already
            // waited still counts.
            let (overdue_since, was_entitled) = (self.overdue_since, self.was_entitled);
            *self = Self { overdue_since, was_entitled, ..Self::new(now, seen, metered) };
            return;
        }
        let before = self.last;
        self.last = ProcessView { active_at: seen.active_at.min(now), ..*seen };
        let (report, active_at) = (self.last.report, self.last.active_at);
        self.silent = self.silent.filter(|then| {
            let same = (report.turn, report.state) == (then.report.turn, then.report.state);
            same && active_at == then.active_at
        });
        self.stuck = self.stuck.filter(|then| {
            // A queue of any length makes progress all the time.
            let goes_on = self.backlog || report.is_stalled || !then.is_stalled;
            report.state == then.state && goes_on
        });
        if !report.is_stalled {
            self.stuck_since = now;
        }
        if self.takes_part() {
            let reported = (seen.active_at > 0).then_some(self.last.active_at);
            let seen_now = (seen.report.state != State::Idle).then_some(now);
            self.last_active = self.last_active.max(reported).max(seen_now);
        }
        let has_ended =
            before.report.state == State::Running && seen.report.state != State::Running;
        self.backlog = (self.backlog && !has_ended) || !metered;
    }

    /// Whether it is neither dead nor silent.
    fn takes_part(&self) -> bool {
        !self.last.dead && self.silent.is_none()
    }

    pub fn is_active(&self, now: u64) -> bool {
        let is_done = self.stuck.is_some() && !self.waits();
        self.takes_part() && !is_done && self.last_active.is_some_and(|at| now - at < ACTIVE_NS)
    }

    /// When it stops being active without another report.
    pub fn inactive_at(&self) -> Option<u64> {
        self.last_active.filter(|_| self.takes_part()).map(|at| at + ACTIVE_NS)
    }

    /// Whether a launch waits for a turn.
    pub fn waits(&self) -> bool {
        self.takes_part() && self.last.report.waits()
    }

    /// Whether others do not wait for its work any more.
    pub fn is_stuck(&self) -> bool {
        self.takes_part() && self.stuck.is_some()
    }

    /// Since when others have not waited for its work, if it makes no progress and a launch waits.
    pub fn stuck_since(&self) -> Option<u64> {
        (self.is_stuck() && self.is_stalled() && self.waits()).then_some(self.stuck_since)
    }

    /// Takes the time of ended work for which others did not wait. A queue from before there were
    /// turns is not billed.
    pub fn take_owed(&mut self) -> u64 {
        if self.stuck.is_some() {
            return 0;
        }
        let owed = std::mem::take(&mut self.owed);
        if self.backlog { 0 } else { owed }
    }

    /// How long its next launch takes, if it waits. A launch behind work that makes no progress
    /// needs no time in a turn: the process makes it as soon as it has one.
    pub fn needs(&self) -> u64 {
        if self.waits() && !self.is_stuck() { self.last.report.needs_ns } else { 0 }
    }

    /// Whether it may have work in flight.
    pub fn works(&self) -> bool {
        self.takes_part() && self.last.report.state == State::Running
    }

    /// Whether it may have work in flight for which others wait.
    pub fn is_running(&self) -> bool {
        self.works() && self.stuck.is_none()
    }

    /// Whether its work has made no progress for longer than it expected.
    pub fn is_stalled(&self) -> bool {
        self.last.report.is_stalled
    }

    /// Whether others wait for its work, which has no turn.
    pub fn is_overdue(&self) -> bool {
        self.overdue_since.is_some()
    }

    /// Skips it until it shows a sign of life.
    pub fn skip_silent(&mut self) {
        self.silent = Some(self.last);
        self.overdue_since = None;
    }

    /// Whether it works, but did not send a heartbeat for too long.
    pub fn is_silent(&self, now: u64) -> bool {
        self.is_running() && now > self.silent_at()
    }

    /// When it counts as silent without another heartbeat.
    pub fn silent_at(&self) -> u64 {
        self.last.active_at + SILENT_NS
    }

    /// Until when others wait for its work.
    pub fn waited_for_until(&self, metered_until: Option<u64>) -> Option<u64> {
        let since = self.overdue_since?;
        let patience = if self.backlog || !self.was_entitled {
            BACKLOG_NS
        } else if metered_until == Some(since) {
            METERED_NS
        } else {
            DRAIN_NS
        };
        Some(since + patience)
    }

    /// Its work needs no turn now.
    pub fn needs_no_turn(&mut self) {
        (self.overdue_since, self.was_entitled, self.had_turn) = (None, true, false);
    }

    /// Updates whether others wait for its work. `metered_until`: when the time ended in which it
    /// launched metered, without turns.
    pub fn wait_for(&mut self, now: u64, entitled: Entitled, metered_until: Option<u64>) {
        if entitled == Entitled::Yes || !self.is_running() {
            self.overdue_since = None;
            self.was_entitled = entitled == Entitled::Yes;
            self.had_turn = self.was_entitled;
            return;
        }
        if entitled == Entitled::No {
            self.overdue_since.get_or_insert(now);
        }
        if self.overdue_since.is_none() {
            return;
        }
        if self.is_silent(now) {
            self.skip_silent();
        } else if self.waited_for_until(metered_until).is_some_and(|until| now > until) {
            (self.stuck, self.stuck_since) = (Some(self.last.report), now);
            self.overdue_since = None;
        }
    }
}

/// Whether the work of a process may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entitled {
    /// It has a turn, or needs none.
    Yes,
    /// It has a turn so that its work can end.
    ToEnd,
    No,
}
