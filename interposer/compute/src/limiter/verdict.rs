//! Whether a batch of launches may begin on a card now.
//!
//! A share is enforced in one of two ways, and the coordinator selects which:
//!
//! - If the process is alone on the card, or no coordinator runs, the process's *own bucket*
//!   decides: credit by the clock, debit by measured engine time, debt carried over.
//! - Otherwise GPU time is granted in *turns*. Only the holder of the turn launches, so that
//!   elapsed time is its own time.
//!
//! At any time little is in flight, two short batches per stream, so that work ends soon after the
//! turn.

use hami_limits::grants::Kind;
use hami_share::limiter::{BATCH_NS, WHOLE_PPM, fits};

use super::seats::Seats;
use super::state::State;
use crate::launch::Queue;

/// A stream with two batches gets a third one only while the two are predicted to take less than
/// this: two full batches, one that runs and one that waits.
const IN_FLIGHT_NS: u64 = 2 * BATCH_NS;
/// A stream with one batch gets no second one while the batches of all streams are predicted to
/// take this long. It is less than a turn, so that work that outlasts a turn is shorter than the
/// turn.
const IN_FLIGHT_ALL_NS: u64 = 8 * BATCH_NS;
/// This many streams may have one batch in any case, because their kernels may wait for each other.
const IN_FLIGHT_STREAMS: usize = 16;

/// The decision about a launch that needs a new batch. `turn` is the number of the grant that was
/// seen.
pub(super) enum Verdict {
    /// No share binds this process now.
    Unlimited,
    /// The batch may begin.
    Go { turn: u32 },
    /// Enough is in flight.
    Full,
    /// The bucket is empty until then. `turn` is set if others could use the card meanwhile.
    Empty { until: u64, turn: Option<u32> },
    /// It is the turn of another process.
    NotOurTurn { turn: u32 },
}

impl Verdict {
    /// Decides for a new batch on a stream.
    pub(super) fn of(seats: &Seats, state: &mut State, queue: Queue, at: u64) -> Self {
        let grant = seats.grant(at);
        if grant.is_some() {
            state.leave_debts_to_the_coordinator();
        }
        if grant.is_none() && !seats.has_share() {
            return Self::Unlimited;
        }
        if let Some(grant) = grant
            && !seats.is_granted(&grant, at)
        {
            return Self::NotOurTurn { turn: grant.turn };
        }
        let turn = grant.map_or(state.reported.turn, |grant| grant.turn);
        let turn_ends = grant.filter(|grant| grant.kind == Kind::Turn).map(|grant| grant.until);
        if is_full(state, queue, turn_ends, at) {
            return Self::Full;
        }
        if let Some(rate) = seats.rate(grant.as_ref(), at) {
            state.set_rate(Some(rate), at);
            if let Ok(missing @ 1..) = u64::try_from(missing(state, queue, at)) {
                let until =
                    at + missing.saturating_mul(u64::from(WHOLE_PPM)) / u64::from(rate.max(1));
                return Self::Empty { until, turn: turn_ends.map(|_| turn) };
            }
        }
        Self::Go { turn }
    }
}

/// Whether enough is in flight: on the stream, on the card, or for the rest of the turn.
fn is_full(state: &State, queue: Queue, turn_ends: Option<u64>, at: u64) -> bool {
    let (batches, ns) = state.outstanding.on(queue);
    let is_long = batches >= 2 && ns >= IN_FLIGHT_NS;
    let is_crowded = state.outstanding.total() >= IN_FLIGHT_ALL_NS
        && (batches >= 1 || state.outstanding.streams() >= IN_FLIGHT_STREAMS);
    let is_too_late = batches >= 1 && turn_ends.is_some_and(|until| !fits(at, ns, until));
    is_long || is_crowded || is_too_late
}

/// The nanoseconds that the bucket lacks for one more launch, besides what the stream has in
/// flight.
fn missing(state: &State, queue: Queue, at: u64) -> i64 {
    let (batches, ns) = state.outstanding.on(queue);
    // Work that takes longer than predicted costs what it has taken so far. A stream is charged for
    // its own work only, because kernels of another stream may wait for its kernels.
    let elapsed = state.unbilled_since.map_or(0, |since| at.saturating_sub(since));
    let is_overdue = batches >= 1 && elapsed > state.outstanding.total();
    let in_flight = if is_overdue { ns.max(elapsed) } else { ns };
    in_flight.cast_signed() + 1 - state.bucket.balance(at)
}
