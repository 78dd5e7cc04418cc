//! A process on a card: its last report, and whether others wait for its work.

use super::{ACTIVE_NS, BACKLOG_NS, DRAIN_NS, METERED_NS, ProcessView, SILENT_NS, State};

#[derive(Debug)]
pub(super) struct Process {
    /// Its last report.
    pub last: ProcessView,
    /// Its engine time, which orders the slice's processes. It is raised to that of the others when
    /// the process starts, so that the time before its start is no debt of theirs.
    pub served: u64,
    /// It waits or works.
    pub busy: bool,
    /// The current view has it.
    pub found: bool,
    last_active: Option<u64>,
    overdue: Overdue,
    skipped: Option<Skipped>,
    /// Since when work may be in flight of which nothing was reported.
    unreported_since: Option<u64>,
    /// Work that it launched without permission may still be queued: nothing was measured since.
    backlog: bool,
}

/// Whether a process has work without a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overdue {
    No,
    /// Others wait for the work to end, until `until` at most.
    WaitedFor {
        since: u64,
        until: u64,
    },
    /// Others do not wait for the work to end, because it may itself wait for a launch of its slice
    /// on another card. The process still counts as active: otherwise its slice would get turns on
    /// the other card alone, and all slices could end up waiting for a card that another one has.
    NotWaitedFor,
}

/// The circumstances of work without a turn, for which others wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    /// The process has a turn, or needs none.
    pub entitled: bool,
    /// Its slice gets several cards together.
    pub in_gang: bool,
    /// Waiting may be useless: the work may wait for a launch of its slice on another card.
    pub useless: bool,
    /// When the time ended in which it launched metered, without turns.
    pub metered_until: Option<u64>,
}

/// Why a process is skipped, with its report at that time.
#[derive(Debug)]
enum Skipped {
    /// It did not respond. Any sign of life ends this.
    Silent(ProcessView),
    /// It is alive, but its work does not end. Only another state ends this.
    Stuck(ProcessView),
}

impl Process {
    /// `metered`: its launches are metered.
    pub fn new(now: u64, seen: &ProcessView, metered: bool) -> Self {
        let mut process = Self {
            last: *seen,
            served: 0,
            busy: false,
            found: true,
            last_active: None,
            overdue: Overdue::No,
            skipped: None,
            unreported_since: None,
            backlog: !metered,
        };
        process.read(now, seen, metered);
        process
    }

    /// Whether the report in its slot is from it, and not from another process.
    pub fn is(&self, seen: &ProcessView) -> bool {
        seen.id == self.last.id && seen.used_ns >= self.last.used_ns
    }

    /// Reads its report. It returns the engine time since the last one.
    pub fn read(&mut self, now: u64, seen: &ProcessView, metered: bool) -> u64 {
        let growth = seen.used_ns - self.last.used_ns;
        self.found = true;
        self.last = ProcessView { active_at: seen.active_at.min(now), ..*seen };
        let back = match &self.skipped {
            None => false,
            Some(Skipped::Silent(then)) => {
                self.last.active_at != then.active_at || growth > 0 || self.has_changed(then)
            }
            Some(Skipped::Stuck(then)) => self.has_changed(then),
        };
        if back {
            self.skipped = None;
        }
        if self.takes_part() {
            let reported = (seen.active_at > 0).then_some(self.last.active_at);
            let seen_now = (seen.state != State::Idle).then_some(now);
            self.last_active = self.last_active.max(reported).max(seen_now);
        }
        self.backlog = (self.backlog && growth == 0) || !metered;
        let unreported = (seen.state == State::Running && !seen.dead).then_some(now);
        self.unreported_since = unreported.map(|now| match self.unreported_since {
            Some(since) if growth == 0 => since,
            _ => now,
        });
        growth
    }

    /// Another process has its slot, or claims so. The time for which others have waited counts on.
    pub fn replace(&mut self, now: u64, seen: &ProcessView, metered: bool) {
        let overdue = if seen.state == State::Running { self.overdue } else { Overdue::No };
        *self = Self { overdue, ..Self::new(now, seen, metered) };
    }

    /// If it has just died: the time for which it can have worked and that it will not report any
    /// more. Work goes on for at most as long after a heartbeat as a heartbeat may be old.
    pub fn unreported_at_death(&self, now: u64) -> u64 {
        let until = now.min(self.last.active_at.saturating_add(SILENT_NS));
        self.unreported_since.map_or(0, |since| until.saturating_sub(since))
    }

    /// The time for which it has worked without a report, if it will report it.
    pub fn unreported(&self, now: u64) -> u64 {
        let will = self.is_running() && !self.backlog && self.overdue != Overdue::NotWaitedFor;
        let since = self.unreported_since.filter(|_| will);
        since.map_or(0, |since| now - since)
    }

    fn has_changed(&self, then: &ProcessView) -> bool {
        (self.last.turn, self.last.state) != (then.turn, then.state)
    }

    /// Whether it is neither dead nor skipped.
    fn takes_part(&self) -> bool {
        !self.last.dead && self.skipped.is_none()
    }

    pub fn is_active(&self, now: u64) -> bool {
        self.takes_part() && self.last_active.is_some_and(|at| now - at < ACTIVE_NS)
    }

    /// When it stops being active without another report.
    pub fn inactive_at(&self) -> Option<u64> {
        self.last_active.filter(|_| self.takes_part()).map(|at| at + ACTIVE_NS)
    }

    pub fn is_waiting(&self) -> bool {
        self.takes_part() && self.last.state == State::Waiting
    }

    pub fn is_running(&self) -> bool {
        self.takes_part() && self.last.state == State::Running
    }

    /// Whether it works, perhaps on work that it launched without permission: that is never
    /// measured.
    pub fn runs_backlog(&self) -> bool {
        self.is_running() && self.backlog && self.overdue != Overdue::NotWaitedFor
    }

    /// Whether it works, and its meter checks the work.
    pub fn has_heartbeat(&self, now: u64) -> bool {
        self.is_running() && !self.is_silent(now)
    }

    /// Whether others wait for its work, which has no turn.
    pub fn is_overdue(&self) -> bool {
        matches!(self.overdue, Overdue::WaitedFor { .. })
    }

    /// Until when others wait for its work.
    pub fn waited_for_until(&self) -> Option<u64> {
        match self.overdue {
            Overdue::WaitedFor { until, .. } => Some(until),
            Overdue::No | Overdue::NotWaitedFor => None,
        }
    }

    /// Skips it until it shows a sign of life.
    pub fn skip_silent(&mut self) {
        self.skipped = Some(Skipped::Silent(self.last));
        self.overdue = Overdue::No;
    }

    /// Updates whether others wait for its work.
    pub fn wait_for(&mut self, now: u64, waiting: Waiting) {
        if !self.is_running() {
            self.overdue = Overdue::No;
            return;
        }
        let since = match self.overdue {
            Overdue::NotWaitedFor if self.is_silent(now) => return self.skip_silent(),
            Overdue::NotWaitedFor => return,
            _ if waiting.entitled => {
                self.overdue = Overdue::No;
                return;
            }
            Overdue::WaitedFor { since, .. } => since,
            Overdue::No => now,
        };
        let patience = if self.backlog {
            BACKLOG_NS
        } else if waiting.metered_until == Some(since) {
            METERED_NS
        } else {
            DRAIN_NS
        };
        let until = since + patience;
        self.overdue = Overdue::WaitedFor { since, until };
        if self.is_silent(now) {
            self.skip_silent();
        } else if waiting.useless || (waiting.in_gang && now > until) {
            self.overdue = Overdue::NotWaitedFor;
        } else if now > until {
            self.skipped = Some(Skipped::Stuck(self.last));
            self.overdue = Overdue::No;
        }
    }

    fn is_silent(&self, now: u64) -> bool {
        now - self.last.active_at > SILENT_NS
    }
}
