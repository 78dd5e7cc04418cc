//! A batch in flight: its expected end, the part of its time in which the card worked, and the cost
//! of its kernel that follows from that.

use std::sync::Mutex;

use hami_share::limiter::{bill, idle};
use vgpu_driver::guard::lock;

use crate::budget::costs;
use crate::clock::{METER, QUIET_NS};
use crate::events::{Event, Reached};
use crate::launch::Queue;
use crate::limiter::card::CardLimiter;

/// The shortest and the longest time between two polls of an event that should have been reached.
pub(crate) const SHORTEST_POLL_NS: u64 = 20_000;
pub(crate) const LONGEST_POLL_NS: u64 = 1_000_000;

/// The end of a batch.
#[derive(Clone, Copy)]
pub(crate) enum End {
    /// An event behind its last launch.
    Event(Event),
    /// The card had finished it by this time of the host's clock.
    Seen(u64),
    /// It is unknown. The batch is billed as predicted.
    Predicted,
}

/// A batch that waits to be measured.
#[derive(Clone, Copy)]
pub(crate) struct Flight {
    pub(crate) limiter: &'static CardLimiter,
    pub(crate) queue: Queue,
    pub(crate) context: usize,
    pub(crate) start: Event,
    pub(crate) end: End,
    /// The age of contexts when it was closed.
    pub(crate) age: u64,
    pub(crate) launches: u32,
    pub(crate) key: Option<u64>,
    pub(crate) predicted: Option<u64>,
    pub(crate) expected: u64,
    /// The host time in which its launches were made.
    pub(crate) window: u64,
    /// A time just before its first event was recorded.
    pub(crate) opened_at: u64,
    /// When it was handed over to the meter.
    pub(crate) closed_at: u64,
    /// The earliest time at which it can have begun to run: when it was opened, or when the batch
    /// before it on its stream was billed.
    pub(crate) runs_since: u64,
    /// When to poll it next, if it is the oldest one of its stream.
    pub(crate) next_poll: u64,
}

impl Flight {
    /// The part of the time between its events in which the card worked for it.
    pub(crate) fn busy_time(&self, span: u64, at: u64) -> u64 {
        let users = self.limiter.possible_users(at);
        if users > 1 {
            // The elapsed time may contain other processes' work. So the prediction decides, as far
            // as that many processes can explain the difference.
            let least = span / u64::from(users);
            return self.predicted.map_or(span, |predicted| predicted.clamp(least, span));
        }
        bill(span, self.window, self.predicted, self.launches)
    }

    /// Learns the cost of its kernel while this many processes use the card: on average, each has
    /// its part of the elapsed time.
    pub(crate) fn learn_shared(&self, span: u64, users: u32) {
        if let Some(key) = self.key {
            costs::learn(key, span / u64::from(self.launches) / u64::from(users), self.launches);
        }
    }

    /// When to poll its second event, if it was not reached at `at`: when it should have ended, and
    /// then often at first.
    pub(crate) fn poll_at(&self, at: u64) -> u64 {
        let flying = at.saturating_sub(self.runs_since);
        if flying < self.expected {
            let left = self.expected - flying;
            return at + left.clamp(SHORTEST_POLL_NS, LONGEST_POLL_NS / 2);
        }
        poll_after(at, flying - self.expected)
    }

    /// Whether the card has finished it.
    pub(crate) fn reached(&self) -> Reached {
        match self.end {
            End::Event(end) => end.reached(),
            End::Seen(_) => Reached::Yes,
            End::Predicted => self.start.reached(),
        }
    }

    /// Its events.
    pub(crate) fn events(&self) -> impl Iterator<Item = Event> {
        let end = match self.end {
            End::Event(end) => Some(end),
            End::Seen(_) | End::Predicted => None,
        };
        [self.start].into_iter().chain(end)
    }

    /// Learns the cost of its kernel, if all launches were of one kernel and the time between the
    /// events had almost no idle time. A single launch has bounds in any case: it took at most the
    /// span, and at least the span less the idle time. Returns whether the span shows if the
    /// predictions were right.
    pub(crate) fn learn(&self, span: u64) -> bool {
        let idle = match self.end {
            End::Predicted => return false,
            _ => self
                .predicted
                .map_or(self.window, |predicted| idle(self.window, predicted, self.launches)),
        };
        let is_dense = idle <= span / 50;
        let Some(key) = self.key else { return is_dense };
        if self.launches == 1 {
            let known = costs::cost_of(key);
            let each = known.map_or(span, |known| known.clamp(span.saturating_sub(idle), span));
            // A known cost outside of the bounds is wrong, which weighs more than one launch that
            // happens to differ.
            costs::learn(key, each, if known.is_none_or(|known| known == each) { 1 } else { 8 });
        } else if is_dense {
            costs::learn(key, span / u64::from(self.launches), self.launches);
        }
        is_dense || self.launches == 1 && matches!(self.end, End::Event(_))
    }
}

/// When to poll again for something that has been due for the time `overdue`: often at first.
pub(super) fn poll_after(at: u64, overdue: u64) -> u64 {
    at + (overdue / 64).clamp(SHORTEST_POLL_NS, LONGEST_POLL_NS)
}

/// The batches that the meter has not taken yet.
static INBOX: Mutex<Vec<Flight>> = Mutex::new(Vec::new());

/// Hands a batch over to the meter, which bills it when it has ended.
pub(super) fn hand_over(flight: Flight) {
    let soon = flight.closed_at + QUIET_NS;
    lock(&INBOX).push(flight);
    METER.wake_by(soon);
}

/// Takes all batches that were handed over.
pub(crate) fn take_all(into: &mut Vec<Flight>) {
    into.append(&mut lock(&INBOX));
}

/// Whether there is no batch to take.
pub(crate) fn is_inbox_empty() -> bool {
    lock(&INBOX).is_empty()
}
