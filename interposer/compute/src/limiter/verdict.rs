//! Whether a batch of launches may begin on a card now.
//!
//! A share is enforced in one of two ways, and the coordinator selects which:
//!
//! - If the process is alone on the card, or no coordinator runs, the process's *own bucket*
//!   decides: credit by the clock, debit by measured engine time, debt carried over.
//! - Otherwise the card is reserved in *turns*. In a turn, a launch begins only if it ends before
//!   the turn does.
//!
//! The grant also says how much work may be in flight.
//!
//! # Progress
//!
//! A kernel may wait for a later launch: of the same thread, on another stream, or of another
//! process. So no launch waits while work of its own process is in flight and makes no progress
//! (`Stall`). The time is still billed: the process waits later, when its work has ended.

use hami_limits::grants::{Grant, Kind};
use hami_share::limiter::{WHOLE_PPM, fits};
use hami_share::turns::DEPTH_NS;

use super::seats::Seats;
use super::state::State;
use crate::launch::Queue;

/// All streams together may have this many times the work of one stream in flight, because they may
/// run at the same time.
const STREAMS_DEPTH: u64 = 4;
/// This many streams may have one batch in any case, because their kernels may wait for each other.
/// A launch on a further stream waits until the work is stalled.
const IN_FLIGHT_STREAMS: usize = 16;

/// The meter notices the end of a batch within this time. A launch that finds a stall waits for
/// this time, because the stall may be over.
pub(super) const NOTICED_NS: u64 = 2_000_000;

/// A process with work on several streams, whose bucket is empty, pauses until its credit lasts for
/// this time, but no longer than [`PAUSE_NS`]. So its kernels overlap, as without a share, and do
/// not run one by one as credit comes.
const BURST_NS: u64 = 20_000_000;
const PAUSE_NS: u64 = 30_000_000;

/// The decision about a launch that needs a new batch. `turn` is the number of the grant on which
/// it is based.
pub(super) enum Verdict {
    /// No share binds this process now.
    Unlimited,
    /// The batch may begin. `depth`: the most engine time that may be in flight. `is_stalled`: it
    /// begins because the work in flight makes no progress.
    Go { turn: u32, depth: u64, is_stalled: bool },
    /// Enough is in flight. The launch may begin at this time if nothing has ended by then.
    Full { until: u64 },
    /// The bucket is empty until then. `turn` is set if others could use the card meanwhile.
    Empty { until: u64, turn: Option<u32> },
    /// The launch takes longer than the rest of the turn. It may begin at `until` if nothing has
    /// ended by then.
    TooLong { turn: u32, until: u64 },
    /// It is the turn of another slice.
    NotOurTurn { turn: u32 },
}

/// A batch that is to begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct New {
    pub(crate) queue: Queue,
    /// The time that its first launch is predicted to take.
    pub(crate) predicted: u64,
    /// The kind of its first launch, by its key.
    pub(crate) kind: u64,
}

impl Verdict {
    /// Decides for a new batch on a stream. `asked_at`: since when its first launch has waited.
    pub(super) fn of(
        seats: &Seats,
        state: &mut State,
        new: &New,
        (asked_at, at): (u64, u64),
    ) -> Self {
        let New { queue, predicted, kind } = *new;
        let grant = seats.grant(at);
        if grant.is_none() && !seats.has_share() {
            return Self::Unlimited;
        }
        let rate = seats.rate(grant.as_ref(), at);
        if rate.is_none() {
            // The bucket gets no credit while the process waits for a turn.
            state.set_rate(None, at);
        }
        if let Some(grant) = grant
            && !seats.is_granted(&grant, at)
        {
            return Self::NotOurTurn { turn: grant.turn };
        }
        let turn = grant.map_or(state.reported.turn, |grant| grant.turn);
        let depth = grant.map(|grant| grant.depth).filter(|depth| *depth > 0).unwrap_or(DEPTH_NS);
        let go = |is_stalled: bool| Self::Go { turn, depth, is_stalled };
        let granted_turn = grant.filter(|grant| grant.kind == Kind::Turn);
        if granted_turn.is_some() {
            state.leave_debts_to_the_coordinator();
        }
        let users = seats.possible_users(at);
        state.waits_for_own_kind = state.outstanding.runs(queue, kind);
        let stalled_at = state.stall.ends_at(&state.outstanding, state.waits_for_own_kind, users);
        let noticed = if state.stall.goes_on() { 0 } else { NOTICED_NS };
        let stalled_at = stalled_at.max(asked_at + noticed);
        if at >= stalled_at {
            state.stall.let_through(at);
            return go(true);
        }
        if is_full(state, queue, depth) {
            return Self::Full { until: stalled_at };
        }
        if let Some(grant) = granted_turn
            && !is_in_time(&grant, state, queue, predicted, users, at)
        {
            return Self::TooLong { turn, until: stalled_at };
        }
        if let Some(rate) = rate {
            state.set_rate(Some(rate), at);
            let missing = missing(state, queue, rate, at);
            state.is_saving |= missing >= 0 && state.outstanding.streams() > 1;
            let resumes_at = if state.is_saving { credit_of_burst(rate) } else { 1 };
            let missing = missing + resumes_at;
            if let Ok(missing @ 1..) = u64::try_from(missing) {
                let until =
                    at + missing.saturating_mul(u64::from(WHOLE_PPM)) / u64::from(rate.max(1));
                return Self::Empty {
                    until: until.min(stalled_at),
                    turn: granted_turn.map(|_| turn),
                };
            }
            state.is_saving = false;
        }
        go(false)
    }
}

/// Whether enough is in flight, on the stream or on the card.
fn is_full(state: &State, queue: Queue, depth: u64) -> bool {
    let (batches, ns) = state.outstanding.on(queue);
    let is_long = batches >= 2 && (ns >= depth || state.outstanding.is_unknown(queue));
    let is_crowded = state.outstanding.total() >= STREAMS_DEPTH * depth
        && (batches >= 1 || state.outstanding.streams() >= IN_FLIGHT_STREAMS);
    is_long || is_crowded
}

/// Whether a launch ends before the turn does. The processes of a slice share the card in its turn.
/// After the end of a turn that was not revoked, the coordinator is late: then little may be in
/// flight.
fn is_in_time(
    grant: &Grant,
    state: &State,
    queue: Queue,
    predicted: u64,
    users: u32,
    at: u64,
) -> bool {
    if at >= grant.until {
        return state.outstanding.is_empty();
    }
    let (_, ns) = state.outstanding.on(queue);
    let all = |ns: u64| ns.saturating_mul(users.into());
    // A launch that ends before the work of another stream does not keep the card longer.
    let since = state.unbilled_since.unwrap_or(at);
    let until = grant.until.max(since + all(state.outstanding.longest()));
    fits(at, all(ns), all(predicted), until)
}

/// The credit with which a process continues after a pause.
fn credit_of_burst(rate_ppm: u32) -> i64 {
    part(BURST_NS, WHOLE_PPM - rate_ppm).min(part(PAUSE_NS, rate_ppm)).cast_signed()
}

fn part(ns: u64, ppm: u32) -> u64 {
    ns.saturating_mul(ppm.into()) / u64::from(WHOLE_PPM)
}

/// The nanoseconds that the bucket lacks for the work that the stream has in flight. If other
/// streams work too, the credit of the time in which it runs counts: so all of them have as much in
/// flight as their kernels need to overlap.
fn missing(state: &State, queue: Queue, rate_ppm: u32, at: u64) -> i64 {
    let (batches, ns) = state.outstanding.on(queue);
    // Work that takes longer than predicted costs the time that it has taken so far. A stream is
    // charged for its own work only, because kernels of another stream may wait for its kernels.
    let elapsed = state.unbilled_since.map_or(0, |since| at.saturating_sub(since));
    let is_overdue = batches >= 1 && elapsed > state.outstanding.total();
    let in_flight = if is_overdue { ns.max(elapsed) } else { ns };
    let earned = if state.outstanding.streams() > 1 { part(in_flight, rate_ppm) } else { 0 };
    (in_flight - earned).cast_signed() - state.bucket.balance(at)
}
