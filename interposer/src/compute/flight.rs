//! A batch in flight: when it should have ended, what of its time it worked, and what that teaches.

use hami_share::limiter::{bill, idle};

use super::batch;
use super::card::CardLimiter;
use super::events::Event;
use super::outstanding::Queue;

/// The shortest and longest time between two looks at an event.
pub(super) const SHORTEST_POLL_NS: u64 = 20_000;
pub(super) const LONGEST_POLL_NS: u64 = 500_000;

/// A batch that waits to be measured.
pub(super) struct Flight {
    pub(super) limiter: &'static CardLimiter,
    pub(super) queue: Queue,
    pub(super) context: usize,
    pub(super) start: Event,
    pub(super) end: Event,
    /// Since when its context's handle means this context.
    pub(super) born: u64,
    pub(super) launches: u32,
    pub(super) key: Option<u64>,
    pub(super) predicted: Option<u64>,
    pub(super) expected: u64,
    /// Host time over which its launches were made.
    pub(super) window: u64,
    /// Idle time between its first event and its only launch.
    pub(super) gap: u64,
    /// Its second event is right behind its only launch; what else may still be idle time in it.
    pub(super) sample: Option<u64>,
    pub(super) closed_at: u64,
}

impl Flight {
    /// When its first event was put in its stream.
    pub(super) fn opened_at(&self) -> u64 {
        self.closed_at.saturating_sub(self.window)
    }

    /// How much of its time on the card it is believed to have worked there.
    pub(super) fn believed(&self, span: u64, at: u64) -> u64 {
        let company = self.limiter.hidden_company(at);
        if company > 1 {
            // Others' turns may be in the elapsed time, so what was learned without them is believed,
            // as far as there are enough others to explain it.
            let least = span / u64::from(company);
            return self.predicted.map_or(span, |predicted| predicted.clamp(least, span));
        }
        bill(span, self.window, self.predicted, self.launches)
    }

    /// When to look whether it has ended: when it should have, and then often at first.
    pub(super) fn poll_at(&self, at: u64) -> u64 {
        let flying = at.saturating_sub(self.closed_at);
        let (soonest, latest) = (SHORTEST_POLL_NS, LONGEST_POLL_NS);
        if flying < self.expected {
            // A batch ahead of it may have to end first; it was predicted as well.
            let left = self.expected - flying;
            return at + left.clamp(soonest, latest);
        }
        at + (flying / 64).clamp(soonest, latest)
    }

    /// Remembers what its kernel took, where it was one and nearly nothing else was in the time. That
    /// there was one launch is not enough: the meter closes a batch long after its last one.
    pub(super) fn learn(&self, span: u64) {
        let (Some(key), 1..) = (self.key, self.launches) else { return };
        if let Some(doubt) = self.sample {
            // Between what it took at least and at most, what is known is as good as anything; beyond
            // them it is wrong, and that weighs more than one launch that happens to differ.
            let known = batch::cost_of(key);
            let each = known.map_or(span, |known| known.clamp(span.saturating_sub(doubt), span));
            batch::learn(key, each, if known.is_none_or(|known| known == each) { 1 } else { 8 });
            return;
        }
        let idle = self
            .predicted
            .map_or(self.window, |predicted| idle(self.window, predicted, self.launches));
        if idle <= span / 50 {
            batch::learn(key, span / u64::from(self.launches), self.launches);
        }
    }
}
