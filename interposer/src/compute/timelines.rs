//! When batches were on the card: one line of time for each context, measured between our events.
//!
//! The card's clock cannot be read, but the time between two events of a context can. So each context
//! has an event that others are measured from, its *epoch*, and a newer one now and then.

use hami_share::limiter::Busy;

use super::contexts::{Ends, Life};
use super::events::{self, Event};
use super::flight::Flight;

/// An epoch older than this is replaced, because a float counts the milliseconds since.
const EPOCH_NS: i64 = 500_000_000;
/// Where a line begins: batches may have begun before the one that is its first epoch.
const FIRST_EPOCH_NS: i64 = 10_000_000_000;

/// All of them; a process has one or two contexts.
#[derive(Default)]
pub(super) struct Timelines {
    lines: Vec<Line>,
}

struct Line {
    context: usize,
    born: u64,
    epoch: Event,
    /// When the epoch was.
    epoch_at: i64,
    busy: Busy,
}

/// What a batch had of the card's time.
pub(super) struct Span {
    /// From its first event to its last, and how long after the first its first launch came.
    pub(super) elapsed: u64,
    pub(super) gap: u64,
    /// How much of it the card was busy.
    pub(super) busy: u64,
    /// How long ago the oldest batch was begun that is still to be measured.
    pub(super) oldest_ago: u64,
}

impl Timelines {
    /// How much of a batch's time no other batch of its context had; `None` where that cannot be told.
    pub(super) fn newly_covered(&mut self, flight: &Flight, span: &Span) -> Option<u64> {
        let place = self.lines.iter().position(|line| line.context == flight.context);
        let place = place.unwrap_or_else(|| {
            self.lines.push(Line {
                context: flight.context,
                born: flight.born,
                epoch: flight.start,
                epoch_at: FIRST_EPOCH_NS,
                busy: Busy::new(),
            });
            self.lines.len() - 1
        });
        self.lines.get_mut(place)?.newly_covered(flight, span)
    }

    /// Whether an event is still needed, to measure others from.
    pub(super) fn has_epoch(&self, event: Event) -> bool {
        self.lines.iter().any(|line| line.epoch == event)
    }

    /// Forgets contexts that have ended.
    pub(super) fn forget_ended(&mut self, ends: &Ends) {
        self.lines.retain(|line| ends.life(line.context, line.born) != Life::Ended);
    }
}

impl Line {
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
            // Its own events are kept, once, when all is measured.
            if before != flight.start {
                events::give_back(self.context, before);
            }
        }
        Some(covered)
    }
}
