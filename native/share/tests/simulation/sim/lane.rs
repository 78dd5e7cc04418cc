//! One process on one card: its host thread with the admission of launches, and its meter.

use std::collections::VecDeque;

use hami_share::limiter::{Bucket, Busy, fits};
use hami_share::turns::{DEPTH_NS, ProcessView, Report, State};
use hami_share::{Grant, Holder, Kind, Mode, Regime};

use super::program::{Action, Launch, Running};
use super::{MS, US};

/// The interposer's: how long after its turn a process waits for the coordinator.
const LATE_NS: u64 = 500 * US;

/// A program that needs no permission launches until this much is queued.
const QUEUE_NS: u64 = 500 * MS;

#[derive(Debug)]
pub struct Batch {
    pub kernels: usize,
    predicted: u64,
    began: u64,
    ended: u64,
    metered: bool,
}

/// The state of the host thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    Runs,
    Waits,
    Full,
    WaitsForAll,
    Sleeps,
}

#[derive(Debug)]
pub struct Lane {
    pub slice: usize,
    pub row: usize,
    pub card: usize,
    pub running: Running,
    pub host: Host,
    pub action: Option<Action>,
    pub in_flight: VecDeque<Batch>,
    pub view: ProcessView,
    pub started: bool,
    pub stopped: bool,
    /// When admission is tried again after it waited for the bucket, or for a silent coordinator.
    pub retry_at: u64,
    /// When it requested its first launch, and when it launched.
    pub wanted: Option<u64>,
    pub launched: Option<u64>,
    /// The time of the launch that waits for a turn, or 0.
    pub needs_ns: u64,
    /// When a batch last ended, or began on an idle card.
    pub progressed_at: u64,
    bucket: Bucket,
    busy: Busy,
}

/// Whether a launch is admitted.
pub enum Admission {
    Go,
    /// Not before this time, or before the grant changes.
    Wait(Option<u64>),
}

impl Lane {
    pub fn new(slice: usize, row: usize, card: usize, slot: u16, running: Running) -> Self {
        Self {
            slice,
            row,
            card,
            running,
            host: Host::Sleeps,
            action: None,
            in_flight: VecDeque::new(),
            view: ProcessView { slot, ..ProcessView::default() },
            started: false,
            stopped: false,
            retry_at: 0,
            wanted: None,
            launched: None,
            needs_ns: 0,
            progressed_at: 0,
            bucket: Bucket::new(0),
            busy: Busy::new(),
        }
    }

    /// Whether a batch of this length may begin. `members`: how many processes of the slice are
    /// active on the card.
    pub fn admit(
        &mut self,
        now: u64,
        predicted: u64,
        grant: &Grant,
        regime: Regime,
        members: u32,
    ) -> Admission {
        self.needs_ns = 0;
        let mine = match grant.holder {
            Holder::All => true,
            Holder::Slot(slot) => slot == self.view.slot,
            Holder::None => false,
        };
        let limited = (1..100).contains(&regime.share);
        let rate = match grant.kind {
            Kind::Turn if mine && fits(now, self.in_flight_ns(), predicted, grant.until) => {
                return Admission::Go;
            }
            // The coordinator is late.
            Kind::Turn if mine && now >= grant.until + LATE_NS && self.in_flight.is_empty() => {
                return Admission::Go;
            }
            Kind::Turn => {
                self.needs_ns = predicted;
                if mine && self.in_flight.is_empty() {
                    return Admission::Wait(Some(grant.until.max(now) + LATE_NS));
                }
                return Admission::Wait(None);
            }
            Kind::Alone if !mine => return Admission::Wait(None),
            Kind::Alone if !limited || regime.mode == Mode::Soft => return Admission::Go,
            Kind::Alone => regime.share * 10_000,
            Kind::Own if !limited => return Admission::Go,
            Kind::Own => regime.share * 10_000 / members.max(1),
        };
        self.bucket.set_rate(now, rate);
        if self.bucket.balance(now) > self.in_flight_ns() as i64 {
            Admission::Go
        } else {
            Admission::Wait(self.bucket.positive_at(now))
        }
    }

    /// Writes the state. True if the coordinator must be woken.
    pub fn report(&mut self, state: State, grant: &Grant) -> bool {
        let before = self.view.report;
        let report = Report { turn: grant.turn, state, is_stalled: false, needs_ns: self.needs_ns };
        self.view.report = report;
        let quiet =
            before.state == State::Running && state == State::Idle && grant.kind != Kind::Turn;
        before != report && !quiet
    }

    pub fn launch(&mut self, now: u64, launches: &[Launch], metered: bool) {
        let kernels = launches.len();
        if self.in_flight.is_empty() {
            self.bucket.set_unbilled(now, Some(now));
            self.progressed_at = now;
        }
        self.needs_ns = 0;
        let predicted = launches.iter().map(|launch| launch.ns).sum();
        self.in_flight.push_back(Batch { kernels, predicted, began: u64::MAX, ended: 0, metered });
    }

    /// A kernel of its oldest unfinished batch has ended.
    pub fn kernel_ended(&mut self, began: u64, ended: u64) -> bool {
        let batch = self.in_flight.iter_mut().find(|batch| batch.kernels > 0);
        let batch = batch.expect("a kernel of some batch");
        batch.kernels -= 1;
        batch.began = batch.began.min(began);
        batch.ended = ended;
        batch.kernels == 0
    }

    /// The meter bills the batches that have ended.
    pub fn meter(&mut self, now: u64) {
        self.view.active_at = now;
        while self.in_flight.front().is_some_and(|batch| batch.kernels == 0)
            && let Some(batch) = self.in_flight.pop_front()
        {
            self.progressed_at = now;
            if batch.metered {
                let open = self.in_flight.front().map_or(u64::MAX, |batch| batch.began);
                let used = self.busy.add(batch.began, batch.ended, open);
                self.bucket.debit(now, used);
            }
        }
        self.bucket.set_unbilled(now, (!self.in_flight.is_empty()).then_some(now));
    }

    /// Whether enough work is in flight.
    pub fn is_full(&self, is_regulated: bool, depth: u64) -> bool {
        if is_regulated {
            let depth = if depth == 0 { DEPTH_NS } else { depth };
            self.in_flight.len() >= 2 && self.in_flight_ns() >= depth
        } else {
            self.in_flight_ns() >= QUEUE_NS
        }
    }

    /// How long the process expects to see no progress.
    pub fn patience(&self) -> u64 {
        self.in_flight.front().map_or(0, |batch| batch.predicted).max(10 * MS)
    }

    fn in_flight_ns(&self) -> u64 {
        self.in_flight.iter().map(|batch| batch.predicted).sum()
    }

    pub fn debt(&self, now: u64) -> i64 {
        -self.bucket.balance(now).min(0)
    }
}
