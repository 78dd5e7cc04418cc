//! The limiter of one card in this process: it delays launches, and bills them.
//!
//! A launch that needs a new batch calls [`CardLimiter::admit`], which waits until the verdict is
//! that the batch may begin. When the batch has been measured, [`CardLimiter::bill`] bills it;
//! [`CardLimiter::bill_unmeasured`] bills a batch that cannot be measured. The meter calls
//! [`CardLimiter::look`], which sends heartbeats and notices the end of turns and of work. The
//! arithmetic is in `hami_share`.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use driver_sys::cuda::CUdevice;
use hami_account::ComputeState::{Idle, Running, Waiting};
use hami_limits::grants::Kind;
use hami_share::limiter::BATCH_NS;
use hami_share::turns::SILENT_NS;
use vgpu_driver::guard::lock;
use vgpu_driver::racy_once::RacyOnce;
use vgpu_slice::{Limited, Seat, cards};

use super::seats::Seats;
use super::state::{EngineTime, State};
use super::verdict::{New, Verdict};
use crate::clock::{METER, QUIET_NS, Wake, now};
use crate::launch::Queue;

/// The longest wait before a launch checks again whether anything has changed.
const LOOK_AGAIN_NS: u64 = 10_000_000;
/// How long the holder of a turn keeps it without launching anything: longer than a program takes
/// from the end of a kernel that it has waited for to the next launch.
const TURN_LINGER_NS: u64 = 50_000;
/// How long a process without turns counts as running without launching anything.
const LINGER_NS: u64 = 2_000_000;
/// The same while its bucket is empty. That mostly lasts a few milliseconds, so the coordinator is
/// not told.
const BUCKET_LINGER_NS: u64 = 20_000_000;
/// How often a process sends a heartbeat while it has work or waits. The coordinator assumes after
/// [`SILENT_NS`] without one that the process was stopped.
const HEARTBEAT_NS: u64 = 1_000_000;
const _: () = assert!(5 * HEARTBEAT_NS < SILENT_NS);

/// How long launches are measured one by one after a batch with too much idle time in it.
const ONE_BY_ONE_NS: u64 = 1_000_000_000;

/// The limiter of a card that may have a share.
pub struct CardLimiter {
    seats: Seats,
    state: Mutex<State>,
    /// Woken when a batch in flight has ended.
    changed: Wake,
    one_by_one_until: AtomicU64,
    /// The engine time that a batch may take now.
    batch_ns: AtomicU64,
}

/// Whether an admitted launch is metered.
pub(crate) enum Admitted {
    /// No share binds this process now.
    Unmetered,
    /// A batch begins, and counts as outstanding. `is_stalled`: it begins because the work in
    /// flight makes no progress.
    Metered { is_stalled: bool },
}

/// More devices than any driver shows to one process.
const MAX_DEVICES: usize = 64;
static LIMITERS: [RacyOnce<CardLimiter>; MAX_DEVICES] = [const { RacyOnce::new() }; MAX_DEVICES];

/// The limiter of a device; `None` if the driver does not know the device.
pub(crate) fn of_device(
    limited: &'static Limited,
    device: CUdevice,
) -> Option<&'static CardLimiter> {
    let cell = LIMITERS.get(usize::try_from(device).ok()?)?;
    if let Some(limiter) = cell.get() {
        return Some(limiter);
    }
    let card = cards::of_device(limited, device)?;
    Some(cell.get_or_init(|| CardLimiter::new(Seats(limited.seats(card)))))
}

/// The limiters of all cards.
pub(crate) fn all() -> impl Iterator<Item = &'static CardLimiter> {
    LIMITERS.iter().filter_map(RacyOnce::get)
}

impl CardLimiter {
    fn new(seats: Seats) -> Self {
        let state = State::new(&seats, now());
        Self {
            seats,
            state: Mutex::new(state),
            changed: Wake::new(),
            one_by_one_until: AtomicU64::new(0),
            batch_ns: AtomicU64::new(BATCH_NS),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Waits until a batch may begin. `meter` does the meter's work if the meter has no thread, and
    /// returns when to call it again.
    pub(crate) fn admit(&self, new: &New, meter: impl Fn() -> u64) -> Admitted {
        let mut is_waiting = false;
        let mut needs_turn = false;
        let asked_at = now();
        loop {
            let meter_at = meter();
            let seen = self.changed.count();
            let at = now();
            let mut state = self.state();
            let verdict = Verdict::of(&self.seats, &mut state, new, (asked_at, at));
            let for_turn = matches!(verdict, Verdict::TooLong { .. } | Verdict::NotOurTurn { .. });
            if for_turn && !needs_turn {
                // The processes of a slice share the card in its turn.
                let users = u64::from(self.seats.members(at));
                state.need_turn(new.predicted.saturating_mul(users), at);
            } else if needs_turn && !for_turn {
                state.no_turn_needed();
            }
            needs_turn = for_turn;
            let must_wait = for_turn || matches!(verdict, Verdict::Empty { .. });
            if must_wait && !is_waiting {
                state.begin_waiting(at);
            } else if is_waiting && !must_wait {
                state.end_waiting(&self.seats, at);
            }
            is_waiting = must_wait;
            match verdict {
                Verdict::Unlimited => return Admitted::Unmetered,
                Verdict::Go { turn, depth, is_stalled } => {
                    if state.report(&self.seats, Running, turn, at) && !self.is_still_granted() {
                        // Reported too late: the coordinator may have seen no process running, and
                        // granted the card to another one. The next round finds out.
                        if state.outstanding.is_empty() {
                            state.report(&self.seats, Waiting, turn, now());
                        }
                        continue;
                    }
                    // Two batches are in flight: one that runs and one that waits.
                    self.batch_ns.store(BATCH_NS.min(depth / 2), Ordering::Relaxed);
                    state.begin(new, at);
                    return Admitted::Metered { is_stalled };
                }
                Verdict::Full { until } => {
                    drop(state);
                    self.changed.wait_until(seen, until.min(meter_at).min(at + LOOK_AGAIN_NS));
                }
                Verdict::Empty { until, turn } => {
                    if let Some(turn) = turn
                        && state.outstanding.is_empty()
                    {
                        state.report(&self.seats, Idle, turn, at);
                    }
                    drop(state);
                    METER.wake_by(at + QUIET_NS);
                    self.changed.wait_until(seen, until.min(meter_at).min(at + LOOK_AGAIN_NS));
                }
                Verdict::TooLong { turn, until } if !state.outstanding.is_empty() => {
                    // It may fit when the work in flight has ended.
                    state.report(&self.seats, Running, turn, at);
                    drop(state);
                    self.changed.wait_until(seen, until.min(meter_at).min(at + LOOK_AGAIN_NS));
                }
                Verdict::TooLong { turn, .. } | Verdict::NotOurTurn { turn } => {
                    let runs = !state.outstanding.is_empty();
                    let now_does = if runs { Running } else { Waiting };
                    state.report(&self.seats, now_does, turn, at);
                    drop(state);
                    METER.wake_by(at + QUIET_NS);
                    if let Some(seat) = self.seats.outermost() {
                        let wait = meter_at.saturating_sub(at).min(LOOK_AGAIN_NS);
                        seat.wait_for_grant(turn, Duration::from_nanos(wait));
                    }
                }
            }
        }
    }

    /// Whether the launch may still be made, checked after this process has reported that it runs.
    /// Either the coordinator sees the report before it grants the card to another process, or this
    /// check sees the new grant.
    fn is_still_granted(&self) -> bool {
        fence(Ordering::SeqCst);
        let at = now();
        self.seats.grant(at).is_none_or(|grant| self.seats.is_granted(&grant, at))
    }

    /// The launch that was admitted last on a stream has joined the batch before it.
    pub(crate) fn join_batches(&self, new: &New) {
        self.state().outstanding.join_batches(new.queue, new.predicted);
    }

    /// The prediction for an outstanding batch has changed.
    pub(crate) fn expect(&self, queue: Queue, before: u64, after: u64) {
        self.state().outstanding.change(queue, before, after);
    }

    /// Bills a batch that will never be measured: the predicted time or, if its context has ended,
    /// the time since it began, if that is longer.
    pub(crate) fn bill_unmeasured(&self, queue: Queue, predicted: u64, billed: u64) {
        self.bill(queue, predicted, EngineTime::Unmeasured(billed));
    }

    /// How many processes, this one included, may have used the card in the elapsed time of this
    /// process's work.
    pub(crate) fn possible_users(&self, at: u64) -> u32 {
        self.seats.possible_users(at)
    }

    /// How many processes of other slices may have used the card, as far as the coordinator knows.
    pub(crate) fn others(&self, at: u64) -> u32 {
        self.seats.others(at)
    }

    /// The engine time that a batch may take now.
    pub(crate) fn batch_ns(&self) -> u64 {
        self.batch_ns.load(Ordering::Relaxed)
    }

    /// Whether work that began at `began` and ends now may have waited for a later launch.
    pub(crate) fn may_have_waited(&self, began: u64, at: u64) -> bool {
        self.state().stall.may_have_waited(began, at)
    }

    /// Whether each launch must be a batch of its own now.
    pub(crate) fn is_one_by_one(&self, at: u64) -> bool {
        at < self.one_by_one_until.load(Ordering::Relaxed)
    }

    /// A batch of several launches had idle time in it. If other streams have work, it is unknown
    /// whether their kernels ran in that time or at the same time as the batch's own. So launches
    /// are measured one by one for a while.
    pub(crate) fn note_idle(&self, at: u64) {
        if self.state().outstanding.streams() > 1 {
            self.one_by_one_until.store(at + ONE_BY_ONE_NS, Ordering::Relaxed);
        }
    }

    /// How many streams of this process have batches.
    pub(crate) fn streams(&self) -> usize {
        self.state().outstanding.streams()
    }

    /// Bills a batch that has ended.
    pub(crate) fn bill(&self, queue: Queue, predicted: u64, time: EngineTime) {
        let at = now();
        let mut state = self.state();
        let billed = state.end(queue, predicted, time, at);
        self.debit(&mut state, billed, at);
        drop(state);
        self.changed.wake_all();
    }

    fn debit(&self, state: &mut State, billed: u64, at: u64) {
        state.debit(self.seats.rate(self.seats.grant(at).as_ref(), at), billed, at);
        for words in self.seats.words() {
            words.used_ns.fetch_add(billed, Ordering::Relaxed);
            state.report_debt(words, at);
        }
    }

    /// Called by the meter: sends a heartbeat, and notices the end of a turn or of the work.
    pub(crate) fn look(&self, at: u64) -> Look {
        let mut state = self.state();
        if state.reported.state == Idle && state.outstanding.is_empty() && state.waiting == 0 {
            return Look { again_at: u64::MAX, must_close: false };
        }
        self.send_heartbeat(&mut state, at);
        let grant = self.seats.grant(at);
        let is_over = grant.is_some_and(|grant| !self.seats.is_granted(&grant, at));
        let has_turn = grant.is_some_and(|grant| grant.kind == Kind::Turn);
        let turn = grant.map_or(state.reported.turn, |grant| grant.turn);
        if state.outstanding.is_empty() && state.reported.state == Running {
            let linger = if has_turn { TURN_LINGER_NS } else { LINGER_NS };
            if is_over || state.waits_for_turn() {
                let next = if state.waiting > 0 { Waiting } else { Idle };
                state.report(&self.seats, next, turn, at);
            } else if (state.waiting == 0 || has_turn) && at >= state.idle_since + linger {
                // A thread that waits in the process's own turn waits for the bucket.
                state.report(&self.seats, Idle, turn, at);
            } else if at >= state.idle_since + BUCKET_LINGER_NS {
                // A thread that waits without turns also waits for the bucket. If the process died
                // now, it would be billed for no work.
                state.report(&self.seats, Waiting, turn, at);
            }
        }
        if is_over && !state.outstanding.is_empty() {
            // Reports whether the work makes progress.
            state.report(&self.seats, Running, turn, at);
        }
        if state.reported.state == Waiting && state.waiting == 0 {
            // The threads that waited were admitted, because no share binds now, or have ended.
            state.report(&self.seats, Idle, turn, at);
        }
        let until = grant.filter(|grant| has_turn && !is_over && grant.until > at);
        let again_at = until.map_or(u64::MAX, |grant| grant.until);
        let again_at = match state.reported.state {
            Running if state.outstanding.is_empty() => again_at.min(at + TURN_LINGER_NS),
            Idle => again_at,
            _ => again_at.min(at + HEARTBEAT_NS),
        };
        Look { again_at, must_close: is_over && !state.outstanding.is_empty() }
    }

    /// Called when the process exits. Bills the work that still runs for the time `ran`, and makes
    /// at once the reports that would come later. If the work goes on, only the rest of it is
    /// billed.
    pub(crate) fn leave(&self, ran: Option<u64>, at: u64) {
        let mut state = self.state();
        let grant = self.seats.grant(at);
        if let Some(ran) = ran {
            let billed = state.advance(ran, at);
            self.debit(&mut state, billed, at);
        }
        if state.outstanding.is_empty() {
            let turn = grant.map_or(state.reported.turn, |grant| grant.turn);
            state.report(&self.seats, Idle, turn, at);
            for words in self.seats.words() {
                words.metered_at.store(0, Ordering::Relaxed);
            }
        }
    }

    fn send_heartbeat(&self, state: &mut State, at: u64) {
        if let Some(words) = self.seats.outermost().and_then(Seat::words) {
            words.active_at.store(at, Ordering::Relaxed);
        }
        for words in self.seats.words() {
            words.metered_at.store(at, Ordering::Relaxed);
            state.report_debt(words, at);
        }
        state.bill_waiting(&self.seats, at);
    }
}

/// The next work of the meter for a card.
pub(crate) struct Look {
    /// When to look again.
    pub(crate) again_at: u64,
    /// Whether open batches must be closed now.
    pub(crate) must_close: bool,
}
