//! One card's limiter in this process: whether a batch of launches may begin, and what it is billed.
//!
//! Two ways of holding a share, and the coordinator says which:
//!
//! - alone on the card, or where no coordinator is to be heard, the process's *own bucket* decides:
//!   credit by the clock, debit by measured engine time, debt carried;
//! - in company GPU time is granted in *turns*: only who has the turn launches, so that elapsed time
//!   is its own time.
//!
//! Little is in flight at any time, two short batches on a stream, so that a turn ends when it ends.
//! The arithmetic is `hami_share`'s; here is who waits for what, and what the others are told.

use std::sync::atomic::{Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use driver_sys::cuda::CUdevice;
use hami_account::ComputeState::{self, Idle, Runs, Wants};
use hami_limits::Mode;
use hami_limits::grants::{Grant, Holder, Kind};
use hami_share::limiter::{Bucket, fits};

use super::outstanding::{Outstanding, Queue};
use super::sleep::{Bell, now};
use crate::cards;
use crate::settled::Settled;
use crate::slice::{Limited, Seat};

/// Predicted engine time that may be in flight on a stream beyond its first two batches, and on all
/// streams beyond the first on each.
const IN_FLIGHT_NS: u64 = 4_000_000;
const IN_FLIGHT_ALL_NS: u64 = 16_000_000;
const IN_FLIGHT_STREAMS: usize = 16;
/// How long anybody waits before looking again whether all is as it was.
const LOOK_AGAIN_NS: u64 = 10_000_000;
/// After a turn, how long a slice with work on another card may still launch here: a collective that
/// has begun there must find its partner.
const PARTNER_NS: u64 = 5_000_000;
/// How long a launch waits for what this process has in flight to end before a turn is asked for all
/// the same: that may be a kernel that waits for this very launch.
const PATIENCE_NS: u64 = 1_000_000_000;
/// How long a holder that launches nothing keeps its turn.
const TURN_LINGER_NS: u64 = 300_000;
/// How long a process without turns counts as running when it launches nothing.
const LINGER_NS: u64 = 2_000_000;

/// A card that may have a share.
pub(super) struct CardLimiter {
    /// Outermost first; the first one's coordinator is heard.
    seats: Vec<Seat>,
    state: Mutex<State>,
    /// Rung when something in flight has ended.
    changed: Bell,
}

struct State {
    bucket: Bucket,
    /// Batches that are open or in flight, and since when what is has been running.
    outstanding: Outstanding,
    unbilled_since: Option<u64>,
    stand: (ComputeState, u32),
    /// Since when nothing has been in flight.
    idle_since: u64,
    /// Threads at the gate, and since when there have been any.
    waiting: u32,
    waiting_since: u64,
}

/// What the gate says.
enum Verdict {
    Free,
    Go {
        turn: u32,
    },
    /// Enough is in flight.
    Full,
    /// The bucket is empty until then; `turn` where others could have the card meanwhile.
    Empty {
        until: u64,
        turn: Option<u32>,
    },
    /// It is somebody else's turn.
    Turn(u32),
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
        let state = State {
            bucket: Bucket::new(now()),
            outstanding: Outstanding::default(),
            unbilled_since: None,
            stand: (Idle, 0),
            idle_since: 0,
            waiting: 0,
            waiting_since: 0,
        };
        Self { seats, state: Mutex::new(state), changed: Bell::new() }
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
                self.end_waiting(&mut state, at);
            }
            is_waiting = must_wait;
            match verdict {
                Verdict::Free => return Passed::Free,
                Verdict::Go { turn } => {
                    if self.say(&mut state, Runs, turn, at) && !self.is_still_granted() {
                        // Said too late: the coordinator may have seen nobody running, and given the
                        // card away. The next round finds out whose it is.
                        self.take_back(&mut state, turn);
                        continue;
                    }
                    if state.outstanding.is_empty() {
                        state.set_unbilled(at, Some(at));
                    }
                    state.outstanding.add(queue, predicted);
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
                        self.say(&mut state, Idle, turn, at);
                    }
                    drop(state);
                    super::meter::wake_by(at);
                    self.changed.wait_until(heard, until.min(at + LOOK_AGAIN_NS));
                }
                Verdict::Turn(turn) => {
                    let asked_at = *turn_asked_at.get_or_insert(at);
                    if state.outstanding.is_empty() || at >= asked_at + PATIENCE_NS {
                        self.say(&mut state, Wants, turn, at);
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

    fn verdict(&self, state: &mut State, queue: Queue, at: u64) -> Verdict {
        let grant = self.grant(at);
        if grant.is_none() && !self.has_share() {
            return Verdict::Free;
        }
        if let Some(grant) = grant
            && !self.is_granted(&grant, at)
        {
            return Verdict::Turn(grant.turn);
        }
        let turn = grant.map_or(state.stand.1, |grant| grant.turn);
        let (batches, ns) = state.outstanding.on(queue);
        let is_long = batches >= 2 && ns >= IN_FLIGHT_NS;
        let is_crowded = state.outstanding.total() >= IN_FLIGHT_ALL_NS
            && (batches >= 1 || state.outstanding.streams() >= IN_FLIGHT_STREAMS);
        let turn_ends = grant.filter(|grant| grant.kind == Kind::Turn).map(|grant| grant.until);
        let is_too_late = batches >= 1 && turn_ends.is_some_and(|until| !fits(at, ns, until));
        if is_long || is_crowded || is_too_late {
            return Verdict::Full;
        }
        if let Some(rate) = self.rate(grant.as_ref(), at) {
            state.bucket.set_rate(at, rate);
            let balance = state.bucket.balance(at);
            // What has been in flight for longer than was thought is not cheaper for that. A stream
            // answers for itself alone: its kernels may be waited for by those of another.
            let elapsed = state.unbilled_since.map_or(0, |since| at.saturating_sub(since));
            let is_overdue = batches >= 1 && elapsed > state.outstanding.total();
            let in_flight = if is_overdue { ns.max(elapsed) } else { ns };
            let missing = in_flight.cast_signed() + 1 - balance;
            if let Ok(missing @ 1..) = u64::try_from(missing) {
                let until = at + missing.saturating_mul(1_000_000) / u64::from(rate.max(1));
                return Verdict::Empty { until, turn: turn_ends.map(|_| turn) };
            }
        }
        Verdict::Go { turn }
    }

    fn grant(&self, at: u64) -> Option<Grant> {
        self.seats.first()?.grant(at)
    }

    fn is_granted(&self, grant: &Grant, at: u64) -> bool {
        let Some(seat) = self.seats.first() else { return true };
        let is_ours = match grant.holder {
            Holder::Everyone => true,
            Holder::Slot(slot) => seat.slot() == Some(slot),
            Holder::Nobody => false,
        };
        let is_now = grant.kind == Kind::Alone
            || at < grant.until
            || grant.holder == Holder::Everyone
                && at < grant.until + PARTNER_NS
                && seat.runs_elsewhere(at);
        is_ours && is_now
    }

    fn has_share(&self) -> bool {
        self.seats.iter().any(|seat| seat.share().or(seat.said_share()).is_some())
    }

    /// The rate of this process's own bucket in millionths of the card's time; `None`: it does not
    /// bind now.
    ///
    /// The coordinator holds the outermost slice to its page in turns, and lends soft ones the time
    /// that is over; everything else is the bucket's. Where nobody coordinates, the processes of a
    /// slice divide its share between them.
    fn rate(&self, grant: Option<&Grant>, at: u64) -> Option<u32> {
        let of_seat = |(place, seat): (usize, &Seat)| {
            let coordinated = grant.filter(|_| place == 0);
            let has_turn = coordinated.is_some_and(|grant| grant.kind == Kind::Turn);
            let binds = |mode: Mode| mode == Mode::Hard || grant.is_none();
            let page = seat.share().filter(|(_, mode)| binds(*mode) && !has_turn);
            let said = seat.said_share().filter(|(_, mode)| binds(*mode));
            let lowest = [page, said].into_iter().flatten().map(|(share, _)| share).min()?;
            let sharing = if coordinated.is_some() { 1 } else { seat.active(at) };
            Some((lowest * 10_000 / sharing).max(1))
        };
        self.seats.iter().enumerate().filter_map(of_seat).min()
    }

    /// How many processes, this one included, the elapsed time of this process's work may be that of.
    pub(super) fn hidden_company(&self, at: u64) -> u32 {
        let is_hidden = self.grant(at).is_none();
        let members = self.seats.iter().map(|seat| seat.active(at)).max();
        members.filter(|_| is_hidden).unwrap_or(1)
    }

    /// A batch that was outstanding has more or less predicted time than was thought.
    pub(super) fn expect(&self, queue: Queue, before: u64, after: u64) {
        self.state().outstanding.change(queue, before, after);
    }

    /// A batch has ended, or will never be measured: what it is billed.
    pub(super) fn ended(&self, queue: Queue, predicted: u64, billed: u64) {
        let at = now();
        let mut state = self.state();
        state.outstanding.end(queue, predicted);
        if state.outstanding.is_empty() {
            state.idle_since = at;
        }
        // Time that is lent, or granted in turns, is nothing that the bucket has to get back.
        if let Some(rate) = self.rate(self.grant(at).as_ref(), at) {
            state.bucket.set_rate(at, rate);
            state.bucket.debit(at, billed);
        } else {
            state.bucket.set_rate(at, 0);
        }
        // What is still in flight has had the card since this has ended.
        let since = (!state.outstanding.is_empty()).then_some(at);
        state.set_unbilled(at, since);
        let debt = state.bucket.balance(at).min(0).unsigned_abs();
        for words in self.seats.iter().filter_map(Seat::words) {
            words.used_ns.fetch_add(billed, Ordering::Relaxed);
            words.debt_ns.store(debt, Ordering::Relaxed);
        }
        drop(state);
        self.changed.ring();
    }

    /// What the meter does for the card each time it looks: a sign of life, the end of a turn, the end
    /// of work. Returns when it has to look again, and whether the batches that are open must be
    /// closed now.
    pub(super) fn look(&self, at: u64) -> Look {
        let mut state = self.state();
        if state.stand.0 == Idle && state.outstanding.is_empty() && state.waiting == 0 {
            return Look { again_at: u64::MAX, must_close: false };
        }
        if let Some(words) = self.seats.first().and_then(Seat::words) {
            words.active_at.store(at, Ordering::Relaxed);
        }
        for words in self.seats.iter().filter_map(Seat::words) {
            words.metered_at.store(at, Ordering::Relaxed);
            let debt = state.bucket.balance(at).min(0).unsigned_abs();
            words.debt_ns.store(debt, Ordering::Relaxed);
        }
        if state.waiting > 0 {
            self.bill_waiting(&mut state, at);
        }
        let grant = self.grant(at);
        let is_over = grant.is_some_and(|grant| !self.is_granted(&grant, at));
        let has_turn = grant.is_some_and(|grant| grant.kind == Kind::Turn);
        let turn = grant.map_or(state.stand.1, |grant| grant.turn);
        if state.outstanding.is_empty() && state.stand.0 == Runs {
            let linger = if has_turn { TURN_LINGER_NS } else { LINGER_NS };
            if is_over {
                let stand = if state.waiting > 0 { Wants } else { Idle };
                self.say(&mut state, stand, turn, at);
            } else if (state.waiting == 0 || has_turn) && at >= state.idle_since + linger {
                // Whoever waits in its own turn waits for its bucket.
                self.say(&mut state, Idle, turn, at);
            }
        }
        if state.stand.0 == Wants && state.waiting == 0 {
            // Whoever waited was let through, because no share holds any more, or is gone.
            self.say(&mut state, Idle, turn, at);
        }
        let until = grant.filter(|grant| has_turn && !is_over && grant.until > at);
        let again_at = until.map_or(u64::MAX, |grant| grant.until);
        let again_at = match state.stand.0 {
            Runs if state.outstanding.is_empty() => again_at.min(at + TURN_LINGER_NS),
            Idle => again_at,
            _ => again_at.min(at + 1_000_000),
        };
        Look { again_at, must_close: is_over && !state.outstanding.is_empty() }
    }

    /// Writes down what this process does here, and tells who has to know. Whether that is news.
    fn say(&self, state: &mut State, stand: ComputeState, turn: u32, at: u64) -> bool {
        if state.stand == (stand, turn) {
            return false;
        }
        let before = state.stand;
        state.stand = (stand, turn);
        if let Some((seat, words)) = self.seats.first().and_then(|seat| Some((seat, seat.words()?)))
        {
            words.active_at.store(at, Ordering::Relaxed);
            words.say(turn, stand);
            if (stand, before.0) != (Runs, Runs) {
                seat.ring();
            }
        }
        true
    }

    /// Whether a launch may still be made, asked after it was said that one will be: either the
    /// coordinator sees that before it gives the card to somebody else, or it is seen here.
    fn is_still_granted(&self) -> bool {
        fence(Ordering::SeqCst);
        let at = now();
        self.grant(at).is_none_or(|grant| self.is_granted(&grant, at))
    }

    /// Nothing will be launched after all.
    fn take_back(&self, state: &mut State, turn: u32) {
        if state.outstanding.is_empty() {
            self.say(state, Wants, turn, now());
        }
    }

    fn end_waiting(&self, state: &mut State, at: u64) {
        self.bill_waiting(state, at);
        state.waiting = state.waiting.saturating_sub(1);
    }

    /// Adds up the time in which there was somebody at the gate.
    fn bill_waiting(&self, state: &mut State, at: u64) {
        let waited = at.saturating_sub(state.waiting_since);
        state.waiting_since = at;
        for words in self.seats.iter().filter_map(Seat::words) {
            words.throttled_ns.fetch_add(waited, Ordering::Relaxed);
        }
    }
}

impl State {
    fn set_unbilled(&mut self, at: u64, since: Option<u64>) {
        self.unbilled_since = since;
        self.bucket.set_unbilled(at, since);
    }

    fn begin_waiting(&mut self, at: u64) {
        if self.waiting == 0 {
            self.waiting_since = at;
        }
        self.waiting += 1;
    }
}

/// See [`CardLimiter::look`].
pub(super) struct Look {
    pub(super) again_at: u64,
    pub(super) must_close: bool,
}
