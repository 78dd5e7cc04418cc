//! The times at which batches were on the card: one timeline for each context, measured between
//! events.
//!
//! The card's clock cannot be read, but the time between two events of a context can. So each
//! context has an event from which others are measured, its *epoch*. A newer event replaces it now
//! and then.
//!
//! If a batch has no second event, its end is a time of the host's clock. So a timeline also
//! estimates how far the host's clock is ahead of its own. No event is reached before the host
//! records it, so each event gives a lower bound. In an idle stream an event is reached at once,
//! and then the bound is exact.

use hami_share::limiter::Busy;

use crate::batch::flight::{End, Flight};
use crate::contexts::{Ends, Life};
use crate::events::{self, Event};

/// An older epoch is replaced, because the driver returns the time since as a float of
/// milliseconds.
const EPOCH_NS: i64 = 500_000_000;
/// The time of the first epoch: batches may have begun before it.
const FIRST_EPOCH_NS: i64 = 10_000_000_000;

/// The clocks of host and card drift apart by at most one nanosecond in this many. So the known
/// bound of their difference is lowered by that much as time passes.
const DRIFT: i64 = 10_000;

/// The timelines of all contexts. A process has one or two.
#[derive(Default)]
pub(super) struct Timelines {
    timelines: Vec<Timeline>,
}

pub(super) struct Timeline {
    context: usize,
    age: u64,
    epoch: Event,
    /// The time of the epoch.
    epoch_at: i64,
    /// A lower bound of how far the host's clock is ahead.
    host_ahead: i64,
    busy: Busy,
}

impl Timelines {
    /// The timeline of a batch.
    pub(super) fn of(&mut self, flight: &Flight) -> &mut Timeline {
        let known = self.timelines.iter().position(|line| line.context == flight.context);
        let index = known.unwrap_or(self.timelines.len());
        if known.is_none() {
            self.timelines.push(Timeline {
                context: flight.context,
                age: flight.age,
                epoch: flight.start,
                epoch_at: FIRST_EPOCH_NS,
                host_ahead: i64::MIN,
                busy: Busy::new(),
            });
        }
        #[allow(clippy::indexing_slicing)] // found, or just pushed
        &mut self.timelines[index]
    }

    /// Whether other events are still measured from an event.
    pub(super) fn has_epoch(&self, event: Event) -> bool {
        self.timelines.iter().any(|line| line.epoch == event)
    }

    /// Forgets contexts that have ended.
    pub(super) fn forget_ended(&mut self, ends: &Ends) {
        self.timelines.retain(|line| ends.life(line.context, line.age) != Life::Ended);
    }
}

impl Timeline {
    /// The start and the end of a batch on the card; `None` if the driver cannot tell.
    pub(super) fn span(&mut self, flight: &Flight) -> Option<(u64, u64)> {
        let from = self.epoch_at
            + if self.epoch == flight.start { 0 } else { flight.start.since(self.epoch)? };
        self.host_ahead = self.host_ahead.max(flight.opened_at.cast_signed() - from);
        let until = match flight.end {
            End::Event(end) => from + end.since(flight.start)?,
            End::Seen(at) => at.cast_signed() - self.host_ahead,
            End::Predicted => from.saturating_add_unsigned(flight.expected),
        };
        let from = u64::try_from(from).ok()?;
        Some((from, u64::try_from(until).ok()?.max(from)))
    }

    /// The earliest end of a batch, by the host's clock.
    pub(super) fn ends_at(&mut self, flight: &Flight) -> Option<u64> {
        let (_, until) = self.span(flight)?;
        Some(until.saturating_add_signed(self.host_ahead))
    }

    /// The part of a batch's `busy` time that no other batch of its context has covered.
    /// `oldest_ago`: how long ago the oldest batch that is not measured yet began.
    pub(super) fn cover(
        &mut self,
        flight: &Flight,
        (from, until): (u64, u64),
        busy: u64,
        oldest_ago: u64,
    ) -> u64 {
        let covered = self.busy.add_partly(from, until, busy, until.saturating_sub(oldest_ago));
        let (newest, at) = match flight.end {
            End::Event(end) => (end, until.cast_signed()),
            End::Seen(_) | End::Predicted => (flight.start, from.cast_signed()),
        };
        if at - self.epoch_at > EPOCH_NS {
            let before = std::mem::replace(&mut self.epoch, newest);
            self.host_ahead -= (at - self.epoch_at) / DRIFT;
            self.epoch_at = at;
            // The batch's own events are released once, after it is measured.
            if before != flight.start {
                events::release(self.context, before);
            }
        }
        covered
    }
}
