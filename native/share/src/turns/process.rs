//! One process on one card, as the coordinator sees it.

use super::{ACTIVE_NS, DRAIN_NS, ProcessView, SILENT_NS, State};

#[derive(Debug)]
pub(super) struct Process {
    /// What it said last.
    pub said: ProcessView,
    /// Its engine time, for its place among the slice's processes: raised to the others' when it
    /// comes, so that the time before it came is nobody's debt.
    pub served: u64,
    /// It wants or does something.
    pub busy: bool,
    heard_at: u64,
    last_active: Option<u64>,
    /// Since when its work goes on without a turn.
    pub overdue_since: Option<u64>,
    passed: Option<Passed>,
}

/// Why nobody waits for a process any more, and what it said then.
#[derive(Debug)]
enum Passed {
    /// It did not answer; any sign of life brings it back.
    Silent(ProcessView),
    /// It lives, but its work does not end; only another state brings it back.
    Stuck(ProcessView),
}

impl Process {
    pub fn new(now: u64, seen: &ProcessView) -> Self {
        let mut process = Self {
            said: *seen,
            served: 0,
            busy: false,
            heard_at: now,
            last_active: None,
            overdue_since: None,
            passed: None,
        };
        process.hear(now, seen);
        process
    }

    /// Takes in what it says.
    pub fn hear(&mut self, now: u64, seen: &ProcessView) {
        if seen.used_ns < self.said.used_ns {
            // Another process in the same slot, or one that says so: others have waited all the same.
            let since = self.overdue_since.filter(|_| seen.state == State::Runs);
            *self = Self { overdue_since: since, ..Self::new(now, seen) };
            return;
        }
        let growth = seen.used_ns - self.said.used_ns;
        self.heard_at = now;
        self.said = ProcessView { active_at: seen.active_at.min(now), ..*seen };
        let back = match &self.passed {
            None => false,
            Some(Passed::Silent(then)) => {
                self.said.active_at != then.active_at || growth > 0 || self.has_moved(then)
            }
            Some(Passed::Stuck(then)) => self.has_moved(then),
        };
        if back {
            self.passed = None;
        }
        if self.lives() {
            let told = (seen.active_at > 0).then_some(self.said.active_at);
            let seen_now = (seen.state != State::Idle).then_some(now);
            self.last_active = self.last_active.max(told).max(seen_now);
        }
        self.served = self.served.saturating_add(growth);
    }

    /// The last look found it.
    pub fn heard_at(&self, now: u64) -> bool {
        self.heard_at == now
    }

    fn has_moved(&self, then: &ProcessView) -> bool {
        (self.said.turn, self.said.state) != (then.turn, then.state)
    }

    /// Neither dead nor passed over.
    fn lives(&self) -> bool {
        !self.said.dead && self.passed.is_none()
    }

    pub fn is_active(&self, now: u64) -> bool {
        self.lives() && self.last_active.is_some_and(|at| now - at < ACTIVE_NS)
    }

    /// When it stops being active if nothing more is heard of it.
    pub fn inactive_at(&self) -> Option<u64> {
        self.last_active.filter(|_| self.lives()).map(|at| at + ACTIVE_NS)
    }

    pub fn wants(&self) -> bool {
        self.lives() && self.said.state == State::Wants
    }

    pub fn runs(&self) -> bool {
        self.lives() && self.said.state == State::Runs
    }

    /// It works, and its meter looks after the work.
    pub fn beats(&self, now: u64) -> bool {
        self.runs() && now - self.said.active_at <= SILENT_NS
    }

    /// Nobody waits for it until it moves.
    pub fn pass_silent(&mut self) {
        self.passed = Some(Passed::Silent(self.said));
        self.overdue_since = None;
    }

    /// Its work goes on, or not, without a turn: waits with it, or gives up. `stuck` where it has been
    /// decided that waiting is of no use.
    pub fn wait_for(&mut self, now: u64, entitled: bool, stuck: bool) {
        if entitled || !self.runs() {
            self.overdue_since = None;
            return;
        }
        let since = *self.overdue_since.get_or_insert(now);
        if now - self.said.active_at > SILENT_NS {
            self.pass_silent();
        } else if stuck || now - since > DRAIN_NS {
            self.passed = Some(Passed::Stuck(self.said));
            self.overdue_since = None;
        }
    }
}
