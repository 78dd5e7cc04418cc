//! The simulated coordinator: it wakes up, reads the processes, and publishes the decisions of
//! `Turns`.

use hami_share::turns::{SliceCardView, SliceView, State, View};

use super::lane::Host;
use super::machine::{Event, LATE_NS, Machine};
use super::{MS, US};

impl Machine {
    pub(super) fn wake(&mut self, at: u64) {
        let late = at + LATE_NS / 2 + self.prng.below(LATE_NS);
        self.coordinate_by(late);
    }

    fn coordinate_by(&mut self, time: u64) {
        if self.turns.is_some() && !self.native && time < self.coordinate_at {
            self.coordinate_at = time;
            self.push(time, Event::Coordinate);
        }
    }

    pub(super) fn coordinate(&mut self) {
        if self.coordinate_at != self.now {
            return;
        }
        self.coordinate_at = u64::MAX;
        let view = self.view();
        let Some(turns) = &mut self.turns else { return };
        let decision = turns.step(self.now, &view);
        self.pulse = self.now;
        for (slice, regulated) in decision.regulated {
            self.slices[slice as usize].regulated = regulated;
        }
        for publish in decision.grants {
            let slice = publish.slice as usize;
            self.slices[slice].grants[publish.row] = publish.grant;
            for lane in 0..self.lanes.len() {
                let it = &self.lanes[lane];
                if it.slice == slice && it.row == publish.row && it.host == Host::Waits {
                    let late = self.late();
                    self.push(late, Event::Host(lane));
                }
            }
        }
        let wake_at = decision.wake_at.unwrap_or(u64::MAX).min(self.now + 10 * MS);
        // Without sleeping, the next step is as late as a step takes.
        let late =
            if wake_at <= self.now { 5 * US } else { LATE_NS / 2 + self.prng.below(LATE_NS) };
        self.coordinate_by(wake_at + late);
    }

    fn view(&self) -> View {
        let slices = self.slices.iter().enumerate().map(|(key, slice)| {
            let rows = slice.rows.iter().enumerate().map(|(r, (card, regime))| {
                let lanes = self
                    .lanes
                    .iter()
                    .filter(|lane| lane.slice == key && lane.row == r && lane.started);
                let processes = lanes.map(|lane| {
                    let mut view = lane.view;
                    if view.report.state == State::Running && !lane.stopped && !view.dead {
                        view.active_at = self.now;
                        view.report.is_stalled = self.now >= lane.progressed_at + lane.patience();
                    }
                    view
                });
                SliceCardView {
                    card: *card as u64,
                    regime: *regime,
                    published: slice.grants[r],
                    processes: processes.collect(),
                }
            });
            SliceView { key: key as u64, gang: slice.gang, rows: rows.collect() }
        });
        View { slices: slices.collect() }
    }
}
