//! A batch that may still grow.

use std::sync::atomic::{AtomicU64, Ordering};

use super::contents::Contents;
use super::flight::{self, Flight};
use crate::budget::Estimate;
use crate::capture::{self, Capturing};
use crate::clock::now;
use crate::contexts;
use crate::events::{self, Event, Reached};
use crate::launch::{Queue, Stream};
use crate::limiter::card::CardLimiter;

/// A batch that may still grow.
pub(super) struct Batch {
    pub(super) limiter: &'static CardLimiter,
    pub(super) stream: Stream,
    queue: Queue,
    start: Event,
    pub(super) opened_at: u64,
    pub(super) contents: Contents,
    /// The prediction that the limiter has for it.
    expected: u64,
    /// The thread's budget is for launches of this batch.
    pub(super) has_budget: bool,
    /// The launch that is being made is its last.
    pub(super) is_closing: bool,
    /// When the driver had taken its only launch.
    pub(super) launched_at: Option<u64>,
    /// How many launches the meter has seen, and when that last changed.
    pub(super) seen: (u32, u64),
}

/// About the shortest time from a first event to its launch.
static SHORTEST_GAP: AtomicU64 = AtomicU64::new(u64::MAX);

impl Batch {
    /// A batch behind an event that was just recorded.
    pub(super) fn open(
        limiter: &'static CardLimiter,
        stream: Stream,
        start: Event,
        contents: Contents,
        expected: u64,
    ) -> Self {
        let opened_at = now();
        Self {
            limiter,
            stream,
            queue: stream.queue(),
            start,
            opened_at,
            contents,
            expected,
            has_budget: false,
            is_closing: false,
            launched_at: None,
            seen: (0, opened_at),
        }
    }

    /// Adds the launches that used the budget, which is no longer for this batch.
    pub(super) fn add_used(&mut self, used: Estimate) {
        self.has_budget = false;
        self.contents.add_used(used);
    }

    /// How long the batch is predicted to take.
    fn prediction(&self) -> u64 {
        if self.contents.is_known { self.contents.predicted } else { self.expected }
    }

    /// Records the second event behind it. The batch's context must be current.
    pub(super) fn close(self) {
        let stream = self.stream;
        let end = match capture::state_of(stream) {
            Capturing::No => events::take(stream.context),
            Capturing::Yes | Capturing::CannotTell => None,
        };
        let end = end.filter(|end| end.record(stream.handle, stream.is_threads_own));
        let Some(end) = end else {
            events::release(stream.context, self.start);
            self.limiter.bill_unmeasured(self.queue, self.expected, self.prediction());
            return;
        };
        let closed_at = now();
        let (gap, doubt) = self.idle_before(closed_at);
        let expected = self.prediction();
        self.limiter.expect(self.queue, self.expected, expected);
        flight::hand_over(Flight {
            limiter: self.limiter,
            queue: self.queue,
            context: stream.context,
            start: self.start,
            end,
            age: contexts::age(),
            launches: self.contents.launches,
            key: self.contents.key,
            predicted: self.contents.is_known.then_some(self.contents.predicted),
            expected,
            window: closed_at.saturating_sub(self.opened_at),
            gap,
            sample: self.launched_at.and(Some(doubt)),
            closed_at,
        });
    }

    /// Its context has ended, so it will never be measured.
    pub(super) fn forget(&self) {
        // The driver has waited for what was in it.
        let elapsed = now().saturating_sub(self.opened_at);
        self.limiter.bill_unmeasured(
            self.queue,
            self.expected,
            self.contents.predicted.max(elapsed),
        );
    }

    /// How long the card was idle between the first event and a single launch, and how much more
    /// idle time there may be around the launch. Called after the second event is recorded, because
    /// this takes time as well.
    ///
    /// On an idle stream the card reaches the first event before the kernel is there. The clock
    /// does not show when the kernel came: the thread may have been interrupted while the kernel
    /// was already running. So the gap is assumed to be as long as the shortest ones.
    fn idle_before(&self, closed_at: u64) -> (u64, u64) {
        let Some(launched_at) = self.launched_at else { return (0, 0) };
        if self.start.reached() != Reached::Yes {
            return (0, 0);
        }
        let gap = launched_at.saturating_sub(self.opened_at);
        let known = SHORTEST_GAP.load(Ordering::Relaxed);
        SHORTEST_GAP.store(gap.min(known.saturating_add(known / 64 + 1)), Ordering::Relaxed);
        // The first gap is longer than others, and it is not known by how much.
        let shortest = if known == u64::MAX { 0 } else { gap.min(known) };
        (shortest, closed_at.saturating_sub(self.opened_at + shortest))
    }
}
