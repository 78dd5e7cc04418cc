//! What passes between the processes and the coordinator: reports, wake-ups and grants.

use hami_share::Regime;

use super::{Event, Host, Lie, Machine};
use crate::leases::{Permission, Seen};
use crate::{MS, US};

/// The time until a process or the coordinator runs after it was woken.
const WAKE_NS: u64 = 60 * US;

impl Machine {
    fn seen(&self, p: usize) -> Seen {
        let it = &self.processes[p];
        let waits = it.threads.iter().any(|thread| thread.host == Host::Waits);
        let seen = Seen { waits, runs: !it.pace.is_idle(), stalled: it.pace.is_stalled() };
        match it.lie {
            Lie::None => seen,
            Lie::Runs => Seen { runs: true, ..seen },
            Lie::Waits => Seen { waits: true, ..seen },
            Lie::RunsAndWaits => Seen { runs: true, waits: true, stalled: true },
            Lie::Stalled => Seen { runs: true, stalled: true, ..seen },
            Lie::Toggles => {
                let on = (self.now / (3 * MS)).is_multiple_of(2);
                Seen { runs: on, waits: !on, stalled: false }
            }
        }
    }

    pub(super) fn report(&mut self, p: usize) {
        if self.native {
            return;
        }
        let seen = self.seen(p);
        let before = self.processes[p].reported;
        if (seen.waits, seen.runs, seen.stalled) == (before.waits, before.runs, before.stalled) {
            return;
        }
        self.processes[p].reported = seen;
        let slice = self.processes[p].slice;
        let held =
            matches!(self.grants[slice].permission, Permission::Held { until } if self.now < until);
        let alone = self.grants[slice].permission == Permission::Alone;
        let news = if held { !seen.runs && !seen.waits } else { true };
        if news && !(alone && before.runs && !seen.runs) {
            self.wake(self.now);
        }
    }

    pub(super) fn wake(&mut self, at: u64) {
        if self.native {
            return;
        }
        let late = at + WAKE_NS / 2 + self.prng.below(WAKE_NS);
        if late < self.coordinate_at {
            self.coordinate_at = late;
            self.push(late, Event::Coordinate);
        }
    }

    pub(super) fn coordinate(&mut self) {
        self.coordinate_at = u64::MAX;
        let mut view: Vec<(Regime, Vec<Seen>)> =
            self.regimes.iter().map(|regime| (*regime, Vec::new())).collect();
        for p in 0..self.processes.len() {
            if self.starts[p] <= self.now {
                let seen = self.seen(p);
                view[self.processes[p].slice].1.push(seen);
            }
        }
        let (grants, wake_at) = self.leases.step(self.now, &view);
        for (s, grant) in grants.into_iter().enumerate() {
            if self.grants[s] == grant {
                continue;
            }
            self.grants[s] = grant;
            for p in 0..self.processes.len() {
                if self.processes[p].slice != s {
                    continue;
                }
                for t in 0..self.processes[p].threads.len() {
                    if self.processes[p].threads[t].host == Host::Waits {
                        let at = self.late(WAKE_NS);
                        self.push(at, Event::Host(p, t));
                    }
                }
            }
        }
        let at = wake_at.min(self.now + 100 * MS);
        let late = at.max(self.now + US) + self.prng.below(20 * US);
        if late < self.coordinate_at {
            self.coordinate_at = late;
            self.push(late, Event::Coordinate);
        }
    }
}
