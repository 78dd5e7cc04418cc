//! A batch that may still grow.

use hami_share::limiter::window;
use vgpu_driver::context;

use super::contents::Contents;
use super::flight::{self, End, Flight, poll_after};
use crate::budget::Estimate;
use crate::capture::{self, Capturing};
use crate::clock::{QUIET_NS, now};
use crate::contexts;
use crate::events::{self, Event, Reached};
use crate::launch::{Queue, Stream};
use crate::limiter::card::CardLimiter;
use crate::limiter::verdict::New;

/// A batch that may still grow.
#[allow(clippy::struct_excessive_bools)] // independent facts
pub(super) struct Batch {
    pub(super) limiter: &'static CardLimiter,
    pub(super) stream: Stream,
    queue: Queue,
    start: Event,
    /// A time just before its first event was recorded.
    pub(super) opened_at: u64,
    pub(super) contents: Contents,
    /// The prediction that the limiter has for it.
    expected: u64,
    /// Whether the thread's budget is for launches of this batch.
    pub(super) has_budget: bool,
    /// Whether the launch that is being made is its last.
    pub(super) is_closing: bool,
    /// Whether it gets no more launches.
    pub(super) is_sealed: bool,
    /// Whether it began in a stall, with a launch of unknown cost.
    pub(super) is_stalled: bool,
    /// How long the driver's call for its last launch took.
    pub(super) in_call: u64,
    seen: Seen,
    /// How many launches it had when the program last waited for all of them, and when that was.
    ended: Option<(u32, Ended)>,
}

/// A time at which work had ended: the program called the driver to wait for it, and continued.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) called_at: u64,
    pub(crate) at: u64,
}

/// The state of the batch when the meter last looked.
#[derive(Clone, Copy)]
struct Seen {
    launches: u32,
    /// When it first saw that many.
    at: u64,
    /// Until when the card is known to have worked on them.
    busy_until: u64,
    /// When to ask the driver next whether they are done.
    ask_at: u64,
}

impl Batch {
    /// A batch behind an event that was recorded after `opened_at`.
    pub(super) fn open(
        limiter: &'static CardLimiter,
        stream: Stream,
        start: Event,
        opened_at: u64,
        contents: Contents,
        expected: u64,
    ) -> Self {
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
            is_sealed: false,
            is_stalled: false,
            in_call: 0,
            seen: Seen { launches: 0, at: opened_at, busy_until: opened_at, ask_at: 0 },
            ended: None,
        }
    }

    /// The program has waited for its launches, which include those that `used` the budget.
    pub(super) fn note_end(&mut self, ended: Ended, used: Estimate) {
        self.ended = Some((self.contents.launches + used.launches(), ended));
    }

    /// Its end and window, if the program has launched nothing since it waited.
    fn known_end(&self) -> Option<(End, u64)> {
        let (_, ended) = self.ended.filter(|(launches, _)| *launches == self.contents.launches)?;
        Some((End::Seen(ended.at), ended.called_at.saturating_sub(self.opened_at)))
    }

    /// Adds the launches that used the budget, which is no longer for this batch.
    pub(super) fn add_used(&mut self, used: Estimate) {
        self.has_budget = false;
        self.contents.add_used(used);
    }

    /// Adds a launch in a stall.
    pub(super) fn add_stalled(&mut self, new: &New) {
        self.contents.add(new.kind, 0);
        self.is_sealed = false;
    }

    /// How long the batch is predicted to take.
    fn prediction(&self) -> u64 {
        if self.contents.is_known { self.contents.predicted } else { self.expected }
    }

    /// Records the second event behind it, unless it is known to have ended. The launching thread
    /// calls this, beside work of its own. The batch's context must be current.
    pub(super) fn close(self) {
        if let Some((end, window)) = self.known_end() {
            return self.end(end, window);
        }
        let stream = self.stream;
        let end = match capture::state_of(stream.handle) {
            Capturing::No => events::take(stream.context),
            Capturing::Yes | Capturing::CannotTell => None,
        };
        let end = end.filter(|end| end.record(stream.handle));
        let window = window(now().saturating_sub(self.opened_at), self.in_call);
        self.end(end.map_or(End::Predicted, End::Event), window);
    }

    /// Hands it over to be billed.
    pub(super) fn end(self, end: End, window: u64) {
        self.limiter.expect(self.queue, self.expected, self.prediction());
        flight::hand_over(self.flight(end, window));
    }

    /// The batch as if it ended now, to bill work that still runs.
    pub(super) fn so_far(&self) -> Flight {
        self.flight(End::Predicted, self.seen.at.saturating_sub(self.opened_at))
    }

    fn flight(&self, end: End, window: u64) -> Flight {
        Flight {
            limiter: self.limiter,
            queue: self.queue,
            context: self.stream.context,
            start: self.start,
            end,
            age: contexts::age(),
            launches: self.contents.launches,
            key: self.contents.key,
            predicted: self.contents.is_known.then_some(self.contents.predicted),
            expected: self.prediction(),
            window,
            opened_at: self.opened_at,
            closed_at: now(),
            runs_since: self.opened_at,
            next_poll: 0,
        }
    }

    /// The meter looks at its launches, which include those that `used` the budget. Returns whether
    /// they have stopped.
    pub(super) fn has_stopped(&mut self, at: u64, used: Estimate) -> bool {
        let launches = self.contents.launches + used.launches();
        if self.seen.launches != launches {
            self.seen = Seen { launches, at, busy_until: at, ask_at: 0 };
        }
        at >= self.seen.at + QUIET_NS
    }

    /// Called by the meter. Returns the end and window of the batch if it is done, and otherwise
    /// when to look again. At the process's exit (`is_last`) it looks before it should be done.
    ///
    /// No event is recorded here. In the default stream it would be a barrier, and the meter has no
    /// handle for another thread's own stream.
    pub(super) fn look(&mut self, at: u64, is_last: bool) -> Result<(End, u64), u64> {
        if !self.is_sealed {
            return Err(self.seen.at + QUIET_NS);
        }
        if let Some(known) = self.known_end() {
            return Ok(known);
        }
        let due = self.opened_at + self.contents.predicted;
        let ask_at = due.max(self.seen.ask_at);
        if at < ask_at && !is_last {
            return Err(ask_at);
        }
        let end = match self.is_done() {
            Reached::Yes => End::Seen(at),
            Reached::NotYet => {
                self.seen.busy_until = at;
                self.seen.ask_at = poll_after(at, at.saturating_sub(due));
                return Err(self.seen.ask_at);
            }
            Reached::Lost => End::Predicted,
        };
        // The last launch was made at some time before `seen.at`, and the card finished at some
        // time after `seen.busy_until`. The card may have been idle in both intervals.
        let window = self.seen.at - self.opened_at + (at - self.seen.busy_until);
        Ok((end, window))
    }

    /// Whether the card has finished all work in the stream.
    fn is_done(&self) -> Reached {
        if self.stream.is_threads_own() || capture::any() {
            return Reached::Lost;
        }
        let done =
            context::with_current(self.stream.context, || events::is_done(self.stream.handle));
        match done.unwrap_or(Reached::Lost) {
            // The default stream may be waiting for blocking streams.
            Reached::NotYet if self.stream.is_legacy() && self.limiter.streams() > 1 => {
                Reached::Lost
            }
            done => done,
        }
    }

    /// Its context has ended, so it will never be measured.
    pub(super) fn forget(&self) {
        // The driver has waited for the work in it.
        let elapsed = now().saturating_sub(self.opened_at);
        self.limiter.bill_unmeasured(
            self.queue,
            self.expected,
            self.contents.predicted.max(elapsed),
        );
    }
}
