//! What the gate says: whether a batch of launches may begin on a card now.
//!
//! Two ways of holding a share, and the coordinator says which:
//!
//! - alone on the card, or where no coordinator is to be heard, the process's *own bucket* decides:
//!   credit by the clock, debit by measured engine time, debt carried;
//! - in company GPU time is granted in *turns*: only who has the turn launches, so that elapsed time
//!   is its own time.
//!
//! Little is in flight at any time, two short batches on a stream, so that a turn ends when it ends.

use hami_limits::Mode;
use hami_limits::grants::{Grant, Holder, Kind};
use hami_share::limiter::{BATCH_NS, WHOLE_PPM, fits};

use super::card::CardLimiter;
use super::outstanding::Queue;
use super::state::State;
use crate::slice::Seat;

/// A third batch goes behind two on a stream only while these are predicted to take less: as much as
/// two full ones, one that runs and one behind it.
const IN_FLIGHT_NS: u64 = 2 * BATCH_NS;
/// A stream that has a batch gets no second while those of all streams are predicted to take so long:
/// less than a turn, so that what outlasts one is shorter than it.
const IN_FLIGHT_ALL_NS: u64 = 8 * BATCH_NS;
/// So many streams may have a first one in any case, because kernels on them may wait for each other.
const IN_FLIGHT_STREAMS: usize = 16;
/// After a turn, how long a slice with work on another card may still launch here: a collective that
/// has begun there must find its partner.
const PARTNER_NS: u64 = 5_000_000;

/// See the module.
pub(super) enum Verdict {
    /// No share holds here now.
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

impl CardLimiter {
    pub(super) fn verdict(&self, state: &mut State, queue: Queue, at: u64) -> Verdict {
        let grant = self.grant(at);
        if grant.is_some() {
            state.leave_debts_to_the_coordinator();
        }
        if grant.is_none() && !self.has_share() {
            return Verdict::Free;
        }
        if let Some(grant) = grant
            && !self.is_granted(&grant, at)
        {
            return Verdict::Turn(grant.turn);
        }
        let turn = grant.map_or(state.said.turn, |grant| grant.turn);
        let turn_ends = grant.filter(|grant| grant.kind == Kind::Turn).map(|grant| grant.until);
        if is_full(state, queue, turn_ends, at) {
            return Verdict::Full;
        }
        if let Some(rate) = self.rate(grant.as_ref(), at) {
            state.set_rate(Some(rate), at);
            if let Ok(missing @ 1..) = u64::try_from(missing(state, queue, at)) {
                let until =
                    at + missing.saturating_mul(u64::from(WHOLE_PPM)) / u64::from(rate.max(1));
                return Verdict::Empty { until, turn: turn_ends.map(|_| turn) };
            }
        }
        Verdict::Go { turn }
    }

    pub(super) fn grant(&self, at: u64) -> Option<Grant> {
        self.seats.first()?.grant(at)
    }

    /// Whether a grant lets this process launch.
    pub(super) fn is_granted(&self, grant: &Grant, at: u64) -> bool {
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
    pub(super) fn rate(&self, grant: Option<&Grant>, at: u64) -> Option<u32> {
        let of_seat = |(place, seat): (usize, &Seat)| {
            let coordinated = grant.filter(|_| place == 0);
            let has_turn = coordinated.is_some_and(|grant| grant.kind == Kind::Turn);
            let binds = |mode: Mode| mode == Mode::Hard || grant.is_none();
            let page = seat.share().filter(|(_, mode)| binds(*mode) && !has_turn);
            let said = seat.said_share().filter(|(_, mode)| binds(*mode));
            let lowest = [page, said].into_iter().flatten().map(|(share, _)| share).min()?;
            let sharing = if coordinated.is_some_and(is_exclusive) { 1 } else { seat.active(at) };
            Some((lowest * 10_000 / sharing).max(1))
        };
        self.seats.iter().enumerate().filter_map(of_seat).min()
    }

    /// How many processes, this one included, the elapsed time of this process's work may be that of.
    pub(super) fn hidden_company(&self, at: u64) -> u32 {
        let is_hidden = !self.grant(at).as_ref().is_some_and(is_exclusive);
        let members = self.seats.iter().map(|seat| seat.active(at)).max();
        members.filter(|_| is_hidden).unwrap_or(1)
    }
}

/// Whether a grant keeps others from the card, so that elapsed time is one's own.
fn is_exclusive(grant: &Grant) -> bool {
    grant.kind == Kind::Turn || grant.holder != Holder::Everyone
}

/// Whether enough is in flight, on the stream, on the card, or for the rest of the turn.
fn is_full(state: &State, queue: Queue, turn_ends: Option<u64>, at: u64) -> bool {
    let (batches, ns) = state.outstanding.on(queue);
    let is_long = batches >= 2 && ns >= IN_FLIGHT_NS;
    let is_crowded = state.outstanding.total() >= IN_FLIGHT_ALL_NS
        && (batches >= 1 || state.outstanding.streams() >= IN_FLIGHT_STREAMS);
    let is_too_late = batches >= 1 && turn_ends.is_some_and(|until| !fits(at, ns, until));
    is_long || is_crowded || is_too_late
}

/// What the bucket lacks for one launch more, beyond what the stream has in flight; in ns.
fn missing(state: &State, queue: Queue, at: u64) -> i64 {
    let (batches, ns) = state.outstanding.on(queue);
    // What has been in flight for longer than was thought is not cheaper for that. A stream answers
    // for itself alone: its kernels may be waited for by those of another.
    let elapsed = state.unbilled_since.map_or(0, |since| at.saturating_sub(since));
    let is_overdue = batches >= 1 && elapsed > state.outstanding.total();
    let in_flight = if is_overdue { ns.max(elapsed) } else { ns };
    in_flight.cast_signed() + 1 - state.bucket.balance(at)
}
