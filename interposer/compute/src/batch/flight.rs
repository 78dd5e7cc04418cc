//! A batch in flight: when it should have ended, how much of its time the card worked, and which
//! cost follows from that.

use std::sync::Mutex;

use hami_share::limiter::{bill, idle};
use vgpu_driver::guard::lock;

use crate::budget::costs;
use crate::clock::{METER, QUIET_NS};
use crate::events::Event;
use crate::launch::Queue;
use crate::limiter::card::CardLimiter;

/// The shortest and the longest time between two polls of an event.
pub(crate) const SHORTEST_POLL_NS: u64 = 20_000;
pub(crate) const LONGEST_POLL_NS: u64 = 500_000;

/// A batch that waits to be measured.
pub(crate) struct Flight {
    pub(crate) limiter: &'static CardLimiter,
    pub(crate) queue: Queue,
    pub(crate) context: usize,
    pub(crate) start: Event,
    pub(crate) end: Event,
    /// The age of contexts when it was closed.
    pub(crate) age: u64,
    pub(crate) launches: u32,
    pub(crate) key: Option<u64>,
    pub(crate) predicted: Option<u64>,
    pub(crate) expected: u64,
    /// The host time in which its launches were made.
    pub(crate) window: u64,
    /// The idle time between its first event and its only launch.
    pub(crate) gap: u64,
    /// Set if its second event is right behind its only launch: how much more idle time there may
    /// be.
    pub(crate) sample: Option<u64>,
    pub(crate) closed_at: u64,
}

impl Flight {
    /// When its first event was recorded.
    pub(crate) fn opened_at(&self) -> u64 {
        self.closed_at.saturating_sub(self.window)
    }

    /// How long the card worked for it, of the time between its events.
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

    /// When to poll its second event: when it should have ended, and then often at first.
    pub(crate) fn poll_at(&self, at: u64) -> u64 {
        let flying = at.saturating_sub(self.closed_at);
        let (soonest, latest) = (SHORTEST_POLL_NS, LONGEST_POLL_NS);
        if flying < self.expected {
            let left = self.expected - flying;
            return at + left.clamp(soonest, latest);
        }
        at + (flying / 64).clamp(soonest, latest)
    }

    /// Learns the cost of its kernel, if all launches were of one kernel and the time between the
    /// events had almost no idle time. A single launch alone does not prove that: the meter closes
    /// a batch long after its last launch.
    pub(crate) fn learn(&self, span: u64) {
        let (Some(key), 1..) = (self.key, self.launches) else { return };
        if let Some(doubt) = self.sample {
            // Clamp the known cost to [span − doubt, span]. A known cost outside of this range is
            // wrong, which weighs more than one launch that happens to differ.
            let known = costs::cost_of(key);
            let each = known.map_or(span, |known| known.clamp(span.saturating_sub(doubt), span));
            costs::learn(key, each, if known.is_none_or(|known| known == each) { 1 } else { 8 });
            return;
        }
        let idle = self
            .predicted
            .map_or(self.window, |predicted| idle(self.window, predicted, self.launches));
        if idle <= span / 50 {
            costs::learn(key, span / u64::from(self.launches), self.launches);
        }
    }
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
