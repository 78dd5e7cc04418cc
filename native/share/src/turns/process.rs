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
    late: Late,
    passed: Option<Passed>,
    /// Since when work may be in flight of which nothing has been told.
    untold_since: Option<u64>,
    /// What it launched while nobody asked may still be queued: nothing was measured since.
    backlog: bool,
}

/// Whether its work goes on without a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Late {
    No,
    /// Others wait for it, but nobody longer than until then.
    WaitedFor {
        since: u64,
        until: u64,
    },
    /// Others do not wait until it has ended: it may itself wait for what its slice is to launch on
    /// another card. The process still counts: else its slice would get turns on the other card alone,
    /// and everybody could end up waiting for a card that another has.
    InVain,
}

/// How a process came to have work without a turn, for which others wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    /// It may have work.
    pub entitled: bool,
    /// Its slice needs several cards together.
    pub in_gang: bool,
    /// It may wait itself for what its slice is to launch on another card.
    pub in_vain: bool,
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
            late: Late::No,
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
        let late = if seen.state == State::Runs { self.late } else { Late::No };
        *self = Self { late, ..Self::new(now, seen, asks) };
    }

    /// The time in which it can have worked, if it has just died, and of which it will tell no more.
    /// Its work outlives it by no more than its heartbeat does; a stopped one has none.
    pub fn left_untold(&self, now: u64) -> u64 {
        let until = now.min(self.said.active_at.saturating_add(SILENT_NS));
        self.untold_since.map_or(0, |since| until.saturating_sub(since))
    }

    /// For how long it has worked and told nothing, if it will.
    pub fn untold(&self, now: u64) -> u64 {
        let will = self.runs() && !self.backlog && self.late != Late::InVain;
        let since = self.untold_since.filter(|_| will);
        since.map_or(0, |since| now - since)
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
        self.runs() && self.backlog && self.late != Late::InVain
    }

    /// It works, and its meter looks after the work.
    pub fn beats(&self, now: u64) -> bool {
        self.runs() && !self.is_silent(now)
    }

    /// Its work goes on without a turn.
    pub fn is_overdue(&self) -> bool {
        matches!(self.late, Late::WaitedFor { .. })
    }

    /// When nobody will wait any longer for its work.
    pub fn waited_for_until(&self) -> Option<u64> {
        match self.late {
            Late::WaitedFor { until, .. } => Some(until),
            Late::No | Late::InVain => None,
        }
    }

    /// Nobody waits for it until it moves.
    pub fn pass_silent(&mut self) {
        self.passed = Some(Passed::Silent(self.said));
        self.late = Late::No;
    }

    /// Its work goes on, or not, without a turn: waits with it, or gives up.
    pub fn wait_for(&mut self, now: u64, waiting: Waiting) {
        if !self.runs() {
            self.late = Late::No;
            return;
        }
        let since = match self.late {
            Late::InVain if self.is_silent(now) => return self.pass_silent(),
            Late::InVain => return,
            _ if waiting.entitled => {
                self.late = Late::No;
                return;
            }
            Late::WaitedFor { since, .. } => since,
            Late::No => now,
        };
        let patience = if self.backlog {
            BACKLOG_NS
        } else if waiting.metered_until == Some(since) {
            METERED_NS
        } else {
            DRAIN_NS
        };
        let until = since + patience;
        self.late = Late::WaitedFor { since, until };
        if self.is_silent(now) {
            self.pass_silent();
        } else if waiting.in_vain || (waiting.in_gang && now > until) {
            self.late = Late::InVain;
        } else if now > until {
            self.passed = Some(Passed::Stuck(self.said));
            self.late = Late::No;
        }
    }

    fn is_silent(&self, now: u64) -> bool {
        now - self.said.active_at > SILENT_NS
    }
}
