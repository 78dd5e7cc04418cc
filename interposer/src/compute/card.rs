//! One card's limiter in this process: who waits for what, and what is billed.
//!
//! A launch that wants to begin a batch comes by [`CardLimiter::pass`]: the [`super::verdict`] says
//! whether it may go, and while it may not it waits here. When the batch has been measured,
//! [`CardLimiter::bill`] bills it, or [`CardLimiter::ended`] where it cannot be. [`CardLimiter::look`] is
//! the meter's part: signs of life, and the ends of turns and of work. The [`super::state`] behind the
//! lock is what others are told. The arithmetic is `hami_share`'s.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use driver_sys::cuda::CUdevice;
use hami_account::ComputeState::{Idle, Runs, Wants};
use hami_limits::grants::Kind;
use hami_share::turns::SILENT_NS;

use super::outstanding::Queue;
use super::sleep::{Bell, now};
use super::state::{State, Took};
use super::verdict::Verdict;
use crate::cards;
use crate::settled::Settled;
use crate::slice::{Limited, Seat};

/// How long anybody waits before looking again whether all is as it was.
const LOOK_AGAIN_NS: u64 = 10_000_000;
/// How long a launch waits for what this process has in flight to end before a turn is asked for all
/// the same: that may be a kernel that waits for this very launch.
const PATIENCE_NS: u64 = 1_000_000_000;
/// How long a holder that launches nothing keeps its turn.
const TURN_LINGER_NS: u64 = 300_000;
/// How long a process without turns counts as running when it launches nothing.
const LINGER_NS: u64 = 2_000_000;
/// How long it does while its bucket is empty: mostly that is a few milliseconds, of which the
/// coordinator need not hear.
const BUCKET_LINGER_NS: u64 = 20_000_000;
/// How often a process says that it lives while it has work or waits. Who is not heard for
/// [`SILENT_NS`] is taken for one that was stopped.
const HEARTBEAT_NS: u64 = 1_000_000;
const _: () = assert!(10 * HEARTBEAT_NS < SILENT_NS);

/// How long launches are measured one by one where batches had too much idle time in them.
const ONE_BY_ONE_NS: u64 = 1_000_000_000;

/// A card that may have a share.
pub(super) struct CardLimiter {
    /// Outermost first; the first one's coordinator is heard.
    pub(super) seats: Vec<Seat>,
    state: Mutex<State>,
    /// Rung when something in flight has ended.
    changed: Bell,
    one_by_one_until: AtomicU64,
}

/// Whether a launch is metered.
pub(super) enum Passed {
    /// No share holds here now.
    Free,
    /// A batch may begin; it is counted as outstanding.
    Metered,
}

/// More devices than any driver shows to one process.
const MAX_DEVICES: usize = 64;
static LIMITERS: [Settled<CardLimiter>; MAX_DEVICES] = [const { Settled::new() }; MAX_DEVICES];

/// The limiter of a device; `None` where the driver does not know it.
pub(super) fn of_device(
    limited: &'static Limited,
    device: CUdevice,
) -> Option<&'static CardLimiter> {
    let cell = LIMITERS.get(usize::try_from(device).ok()?)?;
    if let Some(limiter) = cell.get() {
        return Some(limiter);
    }
    let card = cards::of_device(limited, device)?;
    Some(cell.get_or_decide(|| CardLimiter::new(limited.seats(card))))
}

/// All limiters that there are.
pub(super) fn all() -> impl Iterator<Item = &'static CardLimiter> {
    LIMITERS.iter().filter_map(Settled::get)
}

impl CardLimiter {
    fn new(seats: Vec<Seat>) -> Self {
        let state = State::new(&seats, now());
        Self {
            seats,
            state: Mutex::new(state),
            changed: Bell::new(),
            one_by_one_until: AtomicU64::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a batch may begin on a stream that is predicted to take this long.
    pub(super) fn pass(&self, queue: Queue, predicted: u64) -> Passed {
        let mut is_waiting = false;
        let mut turn_asked_at = None;
        loop {
            let heard = self.changed.heard();
            let at = now();
            let mut state = self.state();
            let verdict = self.verdict(&mut state, queue, at);
            let must_wait = matches!(verdict, Verdict::Empty { .. } | Verdict::Turn(_));
            if must_wait && !is_waiting {
                state.begin_waiting(at);
            } else if is_waiting && !must_wait {
                state.end_waiting(&self.seats, at);
            }
            is_waiting = must_wait;
            match verdict {
                Verdict::Free => return Passed::Free,
                Verdict::Go { turn } => {
                    if state.say(&self.seats, Runs, turn, at) && !self.is_still_granted() {
                        // Said too late: the coordinator may have seen nobody running, and given the
                        // card away. The next round finds out whose it is.
                        if state.outstanding.is_empty() {
                            state.say(&self.seats, Wants, turn, now());
                        }
                        continue;
                    }
                    state.begin(queue, predicted, at);
                    return Passed::Metered;
                }
                Verdict::Full => {
                    drop(state);
                    self.changed.wait_until(heard, at + LOOK_AGAIN_NS);
                }
                Verdict::Empty { until, turn } => {
                    if let Some(turn) = turn
                        && state.outstanding.is_empty()
                    {
                        state.say(&self.seats, Idle, turn, at);
                    }
                    drop(state);
                    super::meter::wake_by(at);
                    self.changed.wait_until(heard, until.min(at + LOOK_AGAIN_NS));
                }
                Verdict::Turn(turn) => {
                    let asked_at = *turn_asked_at.get_or_insert(at);
                    if state.outstanding.is_empty() || at >= asked_at + PATIENCE_NS {
                        state.say(&self.seats, Wants, turn, at);
                    }
                    drop(state);
                    super::meter::wake_by(at);
                    if let Some(seat) = self.seats.first() {
                        seat.wait_for_grant(turn, Duration::from_nanos(LOOK_AGAIN_NS));
                    }
                }
            }
        }
    }

    /// Whether a launch may still be made, asked after it was said that one will be: either the
    /// coordinator sees that before it gives the card to somebody else, or it is seen here.
    fn is_still_granted(&self) -> bool {
        fence(Ordering::SeqCst);
        let at = now();
        self.grant(at).is_none_or(|grant| self.is_granted(&grant, at))
    }

    /// A batch that was outstanding has more or less predicted time than was thought.
    pub(super) fn expect(&self, queue: Queue, before: u64, after: u64) {
        self.state().outstanding.change(queue, before, after);
    }

    /// A batch will never be measured: what is billed is what was predicted of it, or, where its context
    /// has ended, how long it was there if that is more.
    pub(super) fn ended(&self, queue: Queue, predicted: u64, billed: u64) {
        self.bill(queue, predicted, Took::Unmeasured(billed));
    }

    /// Whether each launch is to be a batch of its own now.
    pub(super) fn is_one_by_one(&self, at: u64) -> bool {
        at < self.one_by_one_until.load(Ordering::Relaxed)
    }

    /// A batch of several launches had idle time in it. Beside other streams nobody can tell whether
    /// their kernels ran in that or at the same time as its own, so launches are to be measured singly
    /// for a while.
    pub(super) fn note_idle(&self, at: u64) {
        if self.state().outstanding.streams() > 1 {
            self.one_by_one_until.store(at + ONE_BY_ONE_NS, Ordering::Relaxed);
        }
    }

    /// A batch has ended, and took so much.
    pub(super) fn bill(&self, queue: Queue, predicted: u64, took: Took) {
        let at = now();
        let mut state = self.state();
        let billed = state.end(queue, predicted, took, at);
        self.book(&mut state, billed, at);
        drop(state);
        self.changed.ring();
    }

    fn book(&self, state: &mut State, billed: u64, at: u64) {
        state.debit(self.rate(self.grant(at).as_ref(), at), billed, at);
        for words in self.seats.iter().filter_map(Seat::words) {
            words.used_ns.fetch_add(billed, Ordering::Relaxed);
            state.show_debt(words, at);
        }
    }

    /// What the meter does for the card each time it looks: a sign of life, the end of a turn, the end
    /// of work. Returns when it has to look again, and whether the batches that are open must be
    /// closed now.
    pub(super) fn look(&self, at: u64) -> Look {
        let mut state = self.state();
        if state.said.state == Idle && state.outstanding.is_empty() && state.waiting == 0 {
            return Look { again_at: u64::MAX, must_close: false };
        }
        self.show_life(&mut state, at);
        let grant = self.grant(at);
        let is_over = grant.is_some_and(|grant| !self.is_granted(&grant, at));
        let has_turn = grant.is_some_and(|grant| grant.kind == Kind::Turn);
        let turn = grant.map_or(state.said.turn, |grant| grant.turn);
        if state.outstanding.is_empty() && state.said.state == Runs {
            let linger = if has_turn { TURN_LINGER_NS } else { LINGER_NS };
            if is_over {
                let next = if state.waiting > 0 { Wants } else { Idle };
                state.say(&self.seats, next, turn, at);
            } else if (state.waiting == 0 || has_turn) && at >= state.idle_since + linger {
                // Whoever waits in its own turn waits for its bucket.
                state.say(&self.seats, Idle, turn, at);
            } else if at >= state.idle_since + BUCKET_LINGER_NS {
                // So does whoever waits without turns; if it died now, it would owe for no work.
                state.say(&self.seats, Wants, turn, at);
            }
        }
        if state.said.state == Wants && state.waiting == 0 {
            // Whoever waited was let through, because no share holds any more, or is gone.
            state.say(&self.seats, Idle, turn, at);
        }
        let until = grant.filter(|grant| has_turn && !is_over && grant.until > at);
        let again_at = until.map_or(u64::MAX, |grant| grant.until);
        let again_at = match state.said.state {
            Runs if state.outstanding.is_empty() => again_at.min(at + TURN_LINGER_NS),
            Idle => again_at,
            _ => again_at.min(at + HEARTBEAT_NS),
        };
        Look { again_at, must_close: is_over && !state.outstanding.is_empty() }
    }

    /// The process exits: bills what still runs, which has run so long so far, and says at once what
    /// else would be said after a while. What goes on after all is billed for the rest, and no more.
    pub(super) fn leave(&self, ran: Option<u64>, at: u64) {
        let mut state = self.state();
        let grant = self.grant(at);
        if let Some(ran) = ran {
            let billed = state.advance(ran, at);
            self.book(&mut state, billed, at);
        }
        if state.outstanding.is_empty() {
            let turn = grant.map_or(state.said.turn, |grant| grant.turn);
            state.say(&self.seats, Idle, turn, at);
            for words in self.seats.iter().filter_map(Seat::words) {
                words.metered_at.store(0, Ordering::Relaxed);
            }
        }
    }

    fn show_life(&self, state: &mut State, at: u64) {
        if let Some(words) = self.seats.first().and_then(Seat::words) {
            words.active_at.store(at, Ordering::Relaxed);
        }
        for words in self.seats.iter().filter_map(Seat::words) {
            words.metered_at.store(at, Ordering::Relaxed);
            state.show_debt(words, at);
        }
        state.bill_waiting(&self.seats, at);
    }
}

/// See [`CardLimiter::look`].
pub(super) struct Look {
    pub(super) again_at: u64,
    pub(super) must_close: bool,
}
