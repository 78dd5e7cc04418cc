//! One process on one card, as the coordinator sees it.

use super::{ACTIVE_NS, BACKLOG_NS, DRAIN_NS, METERED_NS, ProcessView, SILENT_NS, State};

#[derive(Debug)]
pub(super) struct Process {
    /// What it said last.
    pub said: ProcessView,
    /// Its engine time, for its place among the slice's processes: raised to the others' when it
    /// comes, so that the time before it came is nobody's debt.
    pub served: u64,
    /// It wants or does something.
    pub busy: bool,
    /// The last look found it.
    pub heard: bool,
    last_active: Option<u64>,
    /// Its work goes on without a turn.
    overdue: Option<Overdue>,
    passed: Option<Passed>,
    /// Since when work may be in flight of which nothing has been told.
    untold_since: Option<u64>,
    /// What it launched while nobody asked may still be queued: nothing was measured since.
    backlog: bool,
}

#[derive(Clone, Copy, Debug)]
struct Overdue {
    since: u64,
    /// Nobody waits for it longer.
    until: u64,
}

/// How a process came to have work without a turn, for which others wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    /// It may have work.
    pub entitled: bool,
    /// It has been decided that waiting is of no use.
    pub stuck: bool,
    /// When it last launched as it liked.
    pub metered_until: Option<u64>,
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
    /// `asks`: its launches are metered.
    pub fn new(now: u64, seen: &ProcessView, asks: bool) -> Self {
        let mut process = Self {
            said: *seen,
            served: 0,
            busy: false,
            heard: true,
            last_active: None,
            overdue: None,
            passed: None,
            untold_since: None,
            backlog: !asks,
        };
        process.hear(now, seen, asks);
        process
    }

    /// Whether what is seen in its slot is it, and no other.
    pub fn is(&self, seen: &ProcessView) -> bool {
        seen.id == self.said.id && seen.used_ns >= self.said.used_ns
    }

    /// Takes in what it says: how much engine time that is since it said something last.
    pub fn hear(&mut self, now: u64, seen: &ProcessView, asks: bool) -> u64 {
        let growth = seen.used_ns - self.said.used_ns;
        self.heard = true;
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
        self.backlog = (self.backlog && growth == 0) || !asks;
        let untold = (seen.state == State::Runs && !seen.dead).then_some(now);
        self.untold_since = untold.map(|now| match self.untold_since {
            Some(since) if growth == 0 => since,
            _ => now,
        });
        growth
    }

    /// Another process is in its slot, or one that says so; others have waited all the same.
    pub fn succeed(&mut self, now: u64, seen: &ProcessView, asks: bool) {
        let overdue = self.overdue.filter(|_| seen.state == State::Runs);
        *self = Self { overdue, ..Self::new(now, seen, asks) };
    }

    /// The time in which it can have worked, if it has just died, and of which it will tell no more.
    /// Its work outlives it by no more than its heartbeat does; a stopped one has none.
    pub fn left_untold(&self, now: u64) -> u64 {
        let until = now.min(self.said.active_at.saturating_add(SILENT_NS));
        self.untold_since.map_or(0, |since| until.saturating_sub(since))
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

    /// It works, perhaps on what it launched while nobody asked: that is never measured.
    pub fn runs_backlog(&self) -> bool {
        self.runs() && self.backlog
    }

    /// It works, and its meter looks after the work.
    pub fn beats(&self, now: u64) -> bool {
        self.runs() && now - self.said.active_at <= SILENT_NS
    }

    /// Its work goes on without a turn.
    pub fn is_overdue(&self) -> bool {
        self.overdue.is_some()
    }

    /// When nobody will wait any longer for its work.
    pub fn waited_for_until(&self) -> Option<u64> {
        self.overdue.map(|overdue| overdue.until)
    }

    /// Nobody waits for it until it moves.
    pub fn pass_silent(&mut self) {
        self.passed = Some(Passed::Silent(self.said));
        self.overdue = None;
    }

    /// Its work goes on, or not, without a turn: waits with it, or gives up.
    pub fn wait_for(&mut self, now: u64, waiting: Waiting) {
        if waiting.entitled || !self.runs() {
            self.overdue = None;
            return;
        }
        let since = self.overdue.map_or(now, |overdue| overdue.since);
        let patience = if self.backlog {
            BACKLOG_NS
        } else if waiting.metered_until == Some(since) {
            METERED_NS
        } else {
            DRAIN_NS
        };
        let until = since + patience;
        self.overdue = Some(Overdue { since, until });
        if now - self.said.active_at > SILENT_NS {
            self.pass_silent();
        } else if waiting.stuck || now > until {
            self.passed = Some(Passed::Stuck(self.said));
            self.overdue = None;
        }
    }
}
