//! The reports, wake-ups and grants between the processes and the coordinator.

use hami_share::lease::{ProcessView, Report, SliceCardView, SliceView, State, View};
use hami_share::{Holder, Kind};

use super::{Event, Host, Lie, Machine, WAKE_NS};
use crate::{MS, US};

/// The time until the coordinator notices a death.
const DEATH_NS: u64 = 10 * MS;

impl Machine {
    fn seen(&self, p: usize) -> Report {
        let it = &self.processes[p];
        let waits = it.threads.iter().any(|thread| thread.host == Host::Waits);
        let honest = (waits, !it.pace.is_idle(), it.pace.is_stalled());
        let (waits, runs, is_stalled) = match it.lie {
            Lie::None => honest,
            Lie::Runs => (waits, true, honest.2),
            Lie::Waits => (true, honest.1, honest.2),
            Lie::RunsAndWaits => (true, true, true),
            Lie::Stalled => (waits, true, true),
            Lie::Toggles => {
                let on = (self.now / (3 * MS)).is_multiple_of(2);
                (!on, on, false)
            }
        };
        let state = match (waits, runs) {
            (_, true) => State::Running,
            (true, false) => State::Waiting,
            (false, false) => State::Idle,
        };
        // Those that report falsely also claim that they have seen each grant.
        let number = if it.lie == Lie::None { it.seen_number } else { self.grant(p).number };
        Report {
            grant: number,
            state,
            is_stalled,
            needs_ns: u64::from(waits && runs),
            ..Report::default()
        }
    }

    pub(super) fn report(&mut self, p: usize) {
        if self.native {
            return;
        }
        let seen = self.seen(p);
        let before = self.processes[p].reported;
        let facts = |it: Report| (it.waits(), it.state == State::Running, it.is_stalled);
        if facts(seen) == facts(before) {
            return;
        }
        self.processes[p].reported = seen;
        let grant = self.grant(p);
        let held =
            grant.kind == Kind::Lease && grant.holder == Holder::All && self.now < grant.until;
        let runs = seen.state == State::Running;
        let begins = grant.others > 0 && before.state == State::Idle;
        let news = if held { begins || !runs && !seen.waits() } else { true };
        let alone = grant.kind == Kind::Alone;
        if news && !(alone && before.state == State::Running && !runs) {
            self.wake(self.now);
        }
    }

    pub(super) fn wake(&mut self, at: u64) {
        if self.native {
            return;
        }
        let late = at + WAKE_NS / 2 + self.prng.below(WAKE_NS);
        self.coordinate_by(late);
    }

    fn coordinate_by(&mut self, at: u64) {
        let at = at.max(self.coordinator_starts);
        if at < self.coordinate_at {
            self.coordinate_at = at;
            self.push(at, Event::Coordinate);
        }
    }

    fn view(&mut self) -> View {
        let mut view = View::default();
        for (key, slice) in self.slices.iter().enumerate() {
            let row = |(card, regime, grant): &_| SliceCardView {
                card: *card as u64,
                regime: *regime,
                published: *grant,
                processes: Vec::new(),
            };
            let rows = slice.rows.iter().map(row).collect();
            view.slices.push(SliceView { key: key as u64, gang: slice.gang, rows });
        }
        for p in 0..self.processes.len() {
            if self.starts[p] > self.now {
                continue;
            }
            let stopped = self.processes[p].stopped;
            let report = if stopped { self.processes[p].reported } else { self.seen(p) };
            let it = &mut self.processes[p];
            if report.state == State::Running && !stopped {
                it.heartbeat = self.now;
            }
            it.reported.grant = report.grant;
            let process = ProcessView {
                slot: p as u16,
                id: p as u64,
                report,
                active_at: it.heartbeat,
                dead: it.killed_at.is_some_and(|at| self.now >= at + DEATH_NS),
            };
            view.slices[it.slice].rows[it.row].processes.push(process);
        }
        view
    }

    pub(super) fn coordinate(&mut self) {
        self.coordinate_at = u64::MAX;
        self.pulse = self.now;
        loop {
            let view = self.view();
            let decision = self.leases.step(self.now, &view);
            for update in decision.grants {
                let slice = update.slice as usize;
                self.slices[slice].rows[update.row].2 = update.grant;
                self.wake_waiting(|it| it.slice == slice && it.row == update.row);
            }
            if decision.wake_at == Some(self.now) {
                continue;
            }
            // The coordinator ticks more often while launches need admission.
            let tick = if decision.wake_at.is_some() { 10 * MS } else { 100 * MS };
            let at = decision.wake_at.unwrap_or(u64::MAX).min(self.now + tick);
            let late = at.max(self.now + US) + self.prng.below(20 * US);
            self.coordinate_at = late;
            self.push(late, Event::Coordinate);
            return;
        }
    }
}
