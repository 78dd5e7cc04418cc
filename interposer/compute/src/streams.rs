//! The streams of this process on a card, with the events behind their launches.

use hami_share::pace::StreamPace;
use hami_share::timing;

use crate::contexts;
use crate::events::Event;
use crate::launch::{Queue, Stream};

/// The events of an interval. `start` is recorded on an idle stream, or behind other work than
/// launches. Without it, the interval begins where the one before it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks {
    pub(crate) start: Option<Event>,
    pub(crate) end: Event,
}

/// A stream.
pub(crate) struct OnStream {
    pub(crate) stream: Stream,
    pub(crate) queue: Queue,
    /// [`contexts::age`] when it was first seen.
    pub(crate) age: u64,
    pub(crate) pace: StreamPace<Marks>,
    /// The start of what is open.
    pub(crate) start: Option<Event>,
    /// Whether the next launch needs a start event, because other work is before it.
    pub(crate) is_broken: bool,
    /// Whether a launch is being made that an event follows.
    pub(crate) is_recording: bool,
    pub(crate) launched_at: u64,
    /// Since when the oldest interval may run, by the host's clock.
    pub(crate) runs_since: u64,
    /// The end of the last interval, by the timeline of its context.
    pub(crate) ended_at: Option<i64>,
    pub(crate) poll_at: u64,
}

/// The oldest work of a stream, to be polled.
#[derive(Clone, Copy)]
pub(crate) struct Due {
    pub(crate) stream: Stream,
    pub(crate) queue: Queue,
    pub(crate) age: u64,
    /// `None` if no event is behind it.
    pub(crate) end: Option<Event>,
    pub(crate) start: Option<Event>,
    pub(crate) launched_at: u64,
    pub(crate) runs_since: u64,
    pub(crate) expected: u64,
    /// The end of the interval before it, by the timeline of its context.
    pub(crate) follows: Option<i64>,
}

impl OnStream {
    pub(crate) fn new(stream: Stream, queue: Queue, now: u64) -> Self {
        Self {
            stream,
            queue,
            age: contexts::age(),
            pace: StreamPace::default(),
            start: None,
            is_broken: true,
            is_recording: false,
            launched_at: now,
            runs_since: now,
            ended_at: None,
            poll_at: 0,
        }
    }

    /// No launch is being made any more, and this event, if there is one, was recorded. See
    /// [`State::close`](crate::state::State::close).
    pub(crate) fn close(
        &mut self,
        event: Option<Event>,
        is_behind_launch: bool,
        at: u64,
    ) -> Option<u64> {
        self.is_recording = false;
        let end = event.filter(|_| is_behind_launch || self.pace.open() > 0)?;
        self.pace.close(Marks { start: self.start.take(), end });
        self.poll_at = self.poll_after(at);
        Some(self.poll_at)
    }

    /// The oldest work, if there is any.
    pub(crate) fn due(&self) -> Option<Due> {
        let oldest = self.pace.oldest();
        (!self.pace.is_idle()).then(|| Due {
            stream: self.stream,
            queue: self.queue,
            age: self.age,
            end: oldest.map(|marks| marks.end),
            start: oldest.map_or(self.start, |marks| marks.start),
            launched_at: self.launched_at,
            runs_since: self.runs_since,
            expected: self.pace.expected_ns(),
            follows: self.ended_at,
        })
    }

    /// Whether this is still its oldest work.
    pub(crate) fn is_due(&self, due: &Due) -> bool {
        self.queue == due.queue
            && match (self.pace.oldest(), due.end) {
                (Some(marks), Some(end)) => marks.end == end,
                (None, None) => self.pace.open() > 0 && self.launched_at == due.launched_at,
                _ => false,
            }
    }

    /// When to poll next, if the oldest work had not ended at `at`: when it should have ended, and
    /// then often at first.
    pub(crate) fn poll_after(&self, at: u64) -> u64 {
        let (ran, expected) = (at.saturating_sub(self.runs_since), self.pace.expected_ns());
        if ran < expected {
            return at + (expected - ran).clamp(timing::SHORTEST_POLL, timing::LONGEST_POLL / 2);
        }
        at + ((ran - expected) / 64).clamp(timing::SHORTEST_POLL, timing::LONGEST_POLL)
    }
}
