//! One process on one card: its host thread with the admission of launches, and its meter.

use std::collections::VecDeque;

use hami_share::limiter::{Bucket, Busy, fits};
use hami_share::turns::{ProcessView, State};
use hami_share::{Grant, Holder, Kind, Mode, Regime};

use super::MS;
use super::program::{Action, Launch, Running};

/// The interposer's: launches in flight at most.
const IN_FLIGHT: usize = 2;

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
            bucket: Bucket::new(0),
            busy: Busy::new(),
        }
    }

    /// `members`: how many processes of the slice are active on the card.
    pub fn admit(&mut self, now: u64, grant: &Grant, regime: Regime, members: u32) -> Admission {
        let mine = match grant.holder {
            Holder::All => true,
            Holder::Slot(slot) => slot == self.view.slot,
            Holder::None => false,
        };
        let limited = (1..100).contains(&regime.share);
        let rate = match grant.kind {
            Kind::Turn if mine && fits(now, self.in_flight_ns(), grant.until) => {
                return Admission::Go;
            }
            Kind::Turn => return Admission::Wait(None),
            Kind::Alone if !mine => return Admission::Wait(None),
            Kind::Alone if !limited || regime.mode == Mode::Soft => return Admission::Go,
            Kind::Alone => regime.share * 10_000,
            Kind::Own if !limited => return Admission::Go,
            Kind::Own => regime.share * 10_000 / members.max(1),
        };
        self.bucket.set_rate(now, rate);
        if self.bucket.balance(now) > 0 {
            Admission::Go
        } else {
            Admission::Wait(self.bucket.positive_at(now))
        }
    }

    /// Writes the state. True if the coordinator must be woken.
    pub fn report(&mut self, state: State, grant: &Grant) -> bool {
        let before = (self.view.state, self.view.turn);
        self.view.state = state;
        self.view.turn = grant.turn;
        let quiet = before.0 == State::Running && state == State::Idle && grant.kind != Kind::Turn;
        before != (state, grant.turn) && !quiet
    }

    pub fn launch(&mut self, now: u64, launches: &[Launch], metered: bool) {
        let kernels = launches.len();
        if self.in_flight.is_empty() {
            self.bucket.set_unbilled(now, Some(now));
        }
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
            if batch.metered {
                let open = self.in_flight.front().map_or(u64::MAX, |batch| batch.began);
                let used = self.busy.add(batch.began, batch.ended, open);
                self.view.used_ns += used;
                self.bucket.debit(now, used);
            }
        }
        self.bucket.set_unbilled(now, (!self.in_flight.is_empty()).then_some(now));
    }

    /// Whether enough work is in flight.
    pub fn is_full(&self, is_regulated: bool) -> bool {
        if is_regulated {
            self.in_flight.len() >= IN_FLIGHT
        } else {
            self.in_flight_ns() >= QUEUE_NS
        }
    }

    fn in_flight_ns(&self) -> u64 {
        self.in_flight.iter().map(|batch| batch.predicted).sum()
    }

    pub fn debt(&self, now: u64) -> i64 {
        -self.bucket.balance(now).min(0)
    }
}
