//! The host threads and meters of the simulated processes.

use hami_share::Grant;
use hami_share::turns::State;

use super::engine::Kernel;
use super::lane::{Admission, Host};
use super::machine::{Event, GIVE_UP_NS, LATE_NS, Machine, SILENCE_NS};
use super::program::{Action, Launch};

impl Machine {
    pub(super) fn grant(&self, lane: usize) -> Grant {
        let lane = &self.lanes[lane];
        let grant = self.slices[lane.slice].grants[lane.row];
        let silent = self.turns.is_none() && self.now > self.pulse + SILENCE_NS;
        if silent || self.native { Grant { turn: grant.turn, ..Grant::default() } } else { grant }
    }

    pub(super) fn is_regulated(&self, lane: usize) -> bool {
        let slice = &self.slices[self.lanes[lane].slice];
        let own = slice.rows.iter().any(|row| (1..100).contains(&row.1.share));
        !self.native && (own || slice.regulated)
    }

    /// The host thread runs until it has to wait.
    pub(super) fn host(&mut self, lane: usize) {
        loop {
            let now = self.now;
            let is_regulated = self.is_regulated(lane);
            let depth = self.grant(lane).depth;
            let it = &mut self.lanes[lane];
            if let Some(Action::SleepUntil(time)) = it.action
                && time > now
            {
                return;
            }
            let action = it.action.take().unwrap_or_else(|| it.running.next(now));
            it.host = Host::Runs;
            match action {
                Action::SleepUntil(time) if time > now => {
                    it.host = Host::Sleeps;
                    it.action = Some(Action::SleepUntil(time));
                    self.push(time, Event::Host(lane));
                    return;
                }
                Action::SleepUntil(_) => {}
                Action::WaitForAll => {
                    if it.in_flight.iter().any(|batch| batch.kernels > 0) {
                        it.host = Host::WaitsForAll;
                        it.action = Some(Action::WaitForAll);
                        return;
                    }
                }
                Action::Launch(launches) => {
                    it.wanted.get_or_insert(now);
                    if it.is_full(is_regulated, depth) {
                        it.host = Host::Full;
                        it.action = Some(Action::Launch(launches));
                        return;
                    }
                    if !self.may_launch(lane, &launches) {
                        self.lanes[lane].host = Host::Waits;
                        self.lanes[lane].action = Some(Action::Launch(launches));
                        return;
                    }
                    self.launch(lane, &launches);
                }
            }
        }
    }

    fn may_launch(&mut self, lane: usize, launches: &[Launch]) -> bool {
        if !self.is_regulated(lane) {
            return true;
        }
        let grant = self.grant(lane);
        let regime = self.slices[self.lanes[lane].slice].rows[self.lanes[lane].row].1;
        let members = self.lanes.iter().filter(|other| {
            let same = other.slice == self.lanes[lane].slice && other.card == self.lanes[lane].card;
            same && !other.view.dead && other.view.report.state != State::Idle
        });
        let members = members.count() as u32;
        let now = self.now;
        let it = &mut self.lanes[lane];
        let predicted = launches.iter().map(|launch| launch.ns).sum();
        match it.admit(now, predicted, &grant, regime, members) {
            Admission::Go => true,
            Admission::Wait(until) => {
                let state = if it.in_flight.is_empty() { State::Waiting } else { State::Running };
                if it.report(state, &grant) {
                    self.wake(now);
                }
                // If the coordinator is silent, admission is tried again when its pulse is too old.
                let again = until.unwrap_or(now + SILENCE_NS);
                let again = again + LATE_NS / 2 + self.prng.below(LATE_NS);
                self.lanes[lane].retry_at = again;
                self.push(again, Event::Retry(lane));
                false
            }
        }
    }

    fn launch(&mut self, lane: usize, launches: &[Launch]) {
        let metered = self.is_regulated(lane);
        let grant = self.grant(lane);
        let it = &mut self.lanes[lane];
        it.launched.get_or_insert(self.now);
        it.launch(self.now, launches, metered);
        if metered {
            it.view.active_at = self.now;
            if it.report(State::Running, &grant) {
                self.wake(self.now);
            }
        }
        let card = self.lanes[lane].card;
        for launch in launches {
            let meets = launch.meets.map(|(meeting, members)| {
                self.sizes.insert(meeting, members);
                meeting
            });
            let kernel = Kernel { left: launch.ns, began: None, meets };
            let events = self.engines[card].submit(self.now, lane, kernel);
            self.take(card, events);
        }
        self.advance(card);
    }

    pub(super) fn meter(&mut self, lane: usize) {
        self.lanes[lane].meter(self.now);
        let it = &self.lanes[lane];
        if it.host == Host::Full || it.host == Host::Waits && !it.in_flight.is_empty() {
            self.host(lane);
        }
        if !self.is_regulated(lane) {
            return;
        }
        let grant = self.grant(lane);
        let it = &mut self.lanes[lane];
        if !it.in_flight.is_empty() {
            return;
        }
        if it.host == Host::Waits {
            if it.report(State::Waiting, &grant) {
                self.wake(self.now);
            }
            self.push(self.now, Event::Host(lane));
        } else {
            self.push(self.now + GIVE_UP_NS, Event::GiveUp(lane));
        }
    }

    pub(super) fn give_up(&mut self, lane: usize) {
        let grant = self.grant(lane);
        let it = &mut self.lanes[lane];
        let idle = it.in_flight.is_empty() && it.host != Host::Waits;
        if idle && it.view.report.state != State::Idle && it.report(State::Idle, &grant) {
            self.wake(self.now);
        }
    }
}
