//! The times at which work was on the card: one timeline for each context, measured between events.
//!
//! The card's clock cannot be read, but the time between two events of a context can. So each
//! context has an event from which others are measured, its *epoch*. A newer event replaces it now
//! and then, because the driver returns the time since as a float of milliseconds.

use crate::contexts::{Ends, Life};
use crate::events::{self, Event, Reached};
use crate::streams::Due;

/// An older epoch is replaced.
const EPOCH_NS: i64 = 500_000_000;

/// The timelines of all contexts. A process has one or two.
#[derive(Default)]
pub(crate) struct Timelines(Vec<Timeline>);

struct Timeline {
    context: usize,
    age: u64,
    epoch: Event,
    /// The time of the epoch.
    epoch_at: i64,
    /// All time before is billed.
    billed_until: i64,
}

/// The time of an interval on the card.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) took: u64,
    /// The part that no interval before it has covered, and that of streams which still run.
    pub(crate) new: u64,
    pub(crate) end: i64,
}

impl Timelines {
    /// The time of work that has ended; `None` if the driver cannot tell. `longest`: the most that
    /// it can have taken, and its length if no event is behind it. `others`: the oldest work of
    /// other streams in flight.
    pub(crate) fn span(
        &mut self,
        due: &Due,
        longest: u64,
        others: impl FnOnce() -> Vec<Due>,
    ) -> Option<Span> {
        let any = due.start.or(due.end);
        let known = self.0.iter().position(|line| line.context == due.stream.context);
        let index = known.unwrap_or(self.0.len());
        if known.is_none() {
            self.0.push(Timeline {
                context: due.stream.context,
                age: due.age,
                epoch: any?,
                epoch_at: 0,
                billed_until: i64::MIN,
            });
        }
        self.0.get_mut(index)?.span(due, longest, others)
    }

    /// Keeps the events of an interval for later ones, unless others are measured from them.
    pub(crate) fn release(&self, due: &Due) {
        for event in [due.start, due.end].into_iter().flatten() {
            if self.0.iter().all(|line| line.epoch != event) {
                events::release(due.stream.context, event);
            }
        }
    }

    /// Forgets contexts that have ended.
    pub(crate) fn forget_ended(&mut self, ends: &Ends) {
        self.0.retain(|line| ends.life(line.context, line.age) != Life::Ended);
    }
}

impl Timeline {
    fn at(&self, event: Event) -> Option<i64> {
        Some(self.epoch_at + if event == self.epoch { 0 } else { event.since(self.epoch)? })
    }

    /// When work began that may still run; `None` if it has not begun.
    fn began(&self, due: &Due) -> Option<i64> {
        match due.start {
            Some(start) if start.reached() == Reached::Yes => self.at(start),
            Some(_) => None,
            None => due.follows,
        }
    }

    fn span(&mut self, due: &Due, longest: u64, others: impl FnOnce() -> Vec<Due>) -> Option<Span> {
        let begin = match due.start {
            Some(start) => Some(self.at(start)?),
            None => due.follows,
        };
        let (begin, end) = match (begin, due.end) {
            (Some(begin), Some(end)) => (begin, self.at(end)?),
            (Some(begin), None) => (begin, begin.saturating_add_unsigned(longest)),
            (None, Some(end)) => {
                let end = self.at(end)?;
                (end.saturating_sub_unsigned(longest), end)
            }
            (None, None) => return None,
        };
        // Before it, the card may have worked for streams whose work has not been billed yet.
        let first = if begin > self.billed_until {
            others().iter().filter_map(|other| self.began(other)).fold(begin, i64::min)
        } else {
            begin
        };
        let new = end.saturating_sub(first.max(self.billed_until)).max(0).unsigned_abs();
        self.billed_until = self.billed_until.max(end);
        if let Some(event) = due.end.filter(|_| end - self.epoch_at > EPOCH_NS) {
            let before = std::mem::replace(&mut self.epoch, event);
            self.epoch_at = end;
            // The interval's own events are released when it has been measured.
            if Some(before) != due.start {
                events::release(self.context, before);
            }
        }
        Some(Span { took: end.saturating_sub(begin).max(0).unsigned_abs(), new, end })
    }
}
