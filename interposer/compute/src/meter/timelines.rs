//! When batches were on the card: one timeline for each context, measured between events.
//!
//! The card's clock cannot be read, but the time between two events of a context can. So each
//! context has an event from which others are measured, its *epoch*. A newer event replaces it now
//! and then.

use hami_share::limiter::Busy;

use crate::batch::flight::Flight;
use crate::contexts::{Ends, Life};
use crate::events::{self, Event};

/// An older epoch is replaced, because the driver returns the time since as a float of
/// milliseconds.
const EPOCH_NS: i64 = 500_000_000;
/// The time of the first epoch: batches may have begun before it.
const FIRST_EPOCH_NS: i64 = 10_000_000_000;

/// The timelines of all contexts. A process has one or two.
#[derive(Default)]
pub(super) struct Timelines {
    timelines: Vec<Timeline>,
}

struct Timeline {
    context: usize,
    age: u64,
    epoch: Event,
    /// The time of the epoch.
    epoch_at: i64,
    busy: Busy,
}

/// The time of one batch on the card.
pub(super) struct Span {
    /// From its first event to its second, and from its first event to its first launch.
    pub(super) elapsed: u64,
    pub(super) gap: u64,
    /// How long the card was busy in it.
    pub(super) busy: u64,
    /// How long ago the oldest batch began that is not measured yet.
    pub(super) oldest_ago: u64,
}

impl Timelines {
    /// How much of a batch's time no other batch of its context had; `None` if that is unknown.
    pub(super) fn newly_covered(&mut self, flight: &Flight, span: &Span) -> Option<u64> {
        let known = self.timelines.iter().position(|line| line.context == flight.context);
        let index = known.unwrap_or_else(|| {
            self.timelines.push(Timeline {
                context: flight.context,
                age: flight.age,
                epoch: flight.start,
                epoch_at: FIRST_EPOCH_NS,
                busy: Busy::new(),
            });
            self.timelines.len() - 1
        });
        self.timelines.get_mut(index)?.newly_covered(flight, span)
    }

    /// Whether others are still measured from an event.
    pub(super) fn has_epoch(&self, event: Event) -> bool {
        self.timelines.iter().any(|line| line.epoch == event)
    }

    /// Forgets contexts that have ended.
    pub(super) fn forget_ended(&mut self, ends: &Ends) {
        self.timelines.retain(|line| ends.life(line.context, line.age) != Life::Ended);
    }
}

impl Timeline {
    fn newly_covered(&mut self, flight: &Flight, span: &Span) -> Option<u64> {
        let start = if self.epoch == flight.start {
            self.epoch_at
        } else {
            self.epoch_at + flight.start.since(self.epoch)?
        };
        let end = start + span.elapsed.cast_signed();
        let from = u64::try_from(start).ok()?;
        let until = u64::try_from(end).ok()?;
        let oldest = until.saturating_sub(span.oldest_ago);
        let covered = self.busy.add_partly(from + span.gap, until, span.busy, oldest);
        if end - self.epoch_at > EPOCH_NS {
            let before = std::mem::replace(&mut self.epoch, flight.end);
            self.epoch_at = end;
            // The batch's own events are released once, after it is measured.
            if before != flight.start {
                events::release(self.context, before);
            }
        }
        Some(covered)
    }
}
