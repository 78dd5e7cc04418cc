//! Batches: the launches of one thread on one stream between two events of ours.
//!
//! A batch is closed right behind its last launch, before anything else can come into the stream. One
//! that is not used up, because the program does something else, is closed by the meter a little
//! later. Either way it is then in flight, until the second event is reached.
//!
//! Here is the batch itself; its sums are in [`contents`], a thread's open batches in [`thread`], what launches
//! cost in [`learned`] and, as a thread and its ticket see it, in [`kinds`].

mod contents;
mod kinds;
mod learned;
mod thread;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use self::contents::Contents;
pub(crate) use self::kinds::{HASH, HASH_SHIFT, Kind, Line};
#[cfg(test)]
pub(super) use self::kinds::{Kinds, line_of};
pub(super) use self::learned::{cost_of, expectation, learn};
pub(super) use self::thread::{Thread, threads, with_mine};
use super::capture::{self, Capturing};
use super::card::CardLimiter;
use super::events::{self, Event, Reached};
use super::flight::Flight;
use super::outstanding::Queue;
use super::sleep::now;
use super::ticket::{self, Price};

/// The stream of a batch: in a context, as the program names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stream {
    pub(super) context: usize,
    pub(super) handle: usize,
    pub(super) is_threads_own: bool,
}

impl Stream {
    /// A number that no other stream has, for the calling thread.
    pub(super) fn queue(self) -> Queue {
        let thread =
            if self.is_threads_own { std::ptr::from_ref(ticket::mine()) as u64 } else { 0 };
        let place = (self.context as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        place ^ (self.handle as u64).wrapping_mul(0xff51_afd7_ed55_8ccd) ^ thread
    }
}

/// What a launch that has passed does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// Nothing.
    Launch,
    /// It comes back afterwards: a batch is to be closed.
    LaunchAndClose,
    /// There is no room in the batch that is open, or none is open.
    AskForBatch,
}

/// A batch that may still grow.
struct Batch {
    limiter: &'static CardLimiter,
    stream: Stream,
    queue: Queue,
    start: Event,
    opened_at: u64,
    contents: Contents,
    /// What the limiter was told to expect.
    expected: u64,
    /// The ticket stands for launches of this batch.
    has_ticket: bool,
    /// The launch that is being made is its last.
    is_closing: bool,
    /// When the driver had taken its only launch.
    launched_at: Option<u64>,
    /// How many launches the meter has seen, and when that last changed.
    seen: (u32, u64),
}

/// About the shortest time that a launch has taken from our first event on.
static SHORTEST_GAP: AtomicU64 = AtomicU64::new(u64::MAX);

impl Batch {
    /// One that begins behind an event that was just recorded.
    fn open(
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
            has_ticket: false,
            is_closing: false,
            launched_at: None,
            seen: (0, opened_at),
        }
    }

    /// Adds what was launched on the ticket, which no longer stands for it.
    fn add_used(&mut self, used: Price) {
        self.has_ticket = false;
        self.contents.add_used(used);
    }

    /// What the limiter is to expect of it.
    fn expectation(&self) -> u64 {
        if self.contents.is_known { self.contents.predicted } else { self.expected }
    }

    /// Puts the second event behind it, in its context.
    fn close(self) {
        let stream = self.stream;
        let end = match capture::state_of(stream) {
            Capturing::No => events::take(stream.context),
            Capturing::Yes | Capturing::CannotTell => None,
        };
        let end = end.filter(|end| end.record(stream.handle, stream.is_threads_own));
        let Some(end) = end else {
            events::give_back(stream.context, self.start);
            self.limiter.ended(self.queue, self.expected, self.expectation());
            return;
        };
        let closed_at = now();
        let (gap, doubt) = self.idle_before(closed_at);
        let expected = self.expectation();
        self.limiter.expect(self.queue, self.expected, expected);
        super::meter::take_off(Flight {
            limiter: self.limiter,
            queue: self.queue,
            context: stream.context,
            start: self.start,
            end,
            born: super::contexts::age(),
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

    /// Its context has ended: it will never be measured.
    fn forget(&self) {
        // The driver has waited for what was in it.
        let elapsed = now().saturating_sub(self.opened_at);
        self.limiter.ended(self.queue, self.expected, self.contents.predicted.max(elapsed));
    }

    /// How long the card had reached the first event of a single launch and had nothing to do yet, and
    /// how much more idle time there may be around the launch. Asked when the second event is in
    /// place, because asking takes time as well.
    ///
    /// On an idle stream the first event is reached before its kernel is there. When that came, the
    /// clock cannot tell: the thread may have been interrupted when the kernel was running already. So
    /// it is as long as such gaps are when nothing comes between.
    fn idle_before(&self, closed_at: u64) -> (u64, u64) {
        let Some(launched_at) = self.launched_at else { return (0, 0) };
        if self.start.reached() != Reached::Yes {
            return (0, 0);
        }
        let gap = launched_at.saturating_sub(self.opened_at);
        let known = SHORTEST_GAP.load(Ordering::Relaxed);
        SHORTEST_GAP.store(gap.min(known.saturating_add(known / 64 + 1)), Ordering::Relaxed);
        // The first is not like others, and nothing is there to tell by how much.
        let shortest = if known == u64::MAX { 0 } else { gap.min(known) };
        (shortest, closed_at.saturating_sub(self.opened_at + shortest))
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
