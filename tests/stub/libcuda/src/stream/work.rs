//! Work that takes time: its submission to the engine, and waits for it.
//!
//! The engine has lanes, which are in-order queues, and marks, which are positions in them. The
//! driver adds the rules between streams: the default stream waits for all blocking streams of its
//! context, and they wait for it ([`Queue::submit`]). The rules apply to work that takes time; a
//! context without such work costs nothing ([`Backlog`]).

use crate::context::Context;
use crate::process::{Driver, lock};
use crate::stream::Queue;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
pub use stub_engine::time::{Direction, Lane, Mark, Work};
use stub_engine::time::{Progress, Query, Status};

/// The delay before a repeated query without a forecast: the first one, and the longest.
const FIRST_STEP_NS: u64 = 100_000;
const LONGEST_STEP_NS: u64 = 1_000_000;

/// How many lanes a context records before it checks which of them are done.
const REMEMBERED: usize = 256;

/// The pending work of a context's lanes, as far as the driver knows.
#[derive(Default)]
pub struct Backlog {
    /// Whether there ever was any. An untimed call reads nothing else.
    has_any: AtomicBool,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// By number.
    lanes: BTreeMap<u32, LaneEnd>,
    /// The last item of the default stream.
    legacy: Mark,
}

/// The end of a lane.
#[derive(Clone, Copy)]
struct LaneEnd {
    last: Mark,
    /// Whether it belongs to a blocking stream and the default stream has not waited for it.
    is_ahead: bool,
    /// The last mark of the default stream that it has waited for.
    joined: Mark,
}

impl Backlog {
    pub fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Acquire)
    }

    /// All work that is not known to be done.
    fn ends(&self) -> Vec<Mark> {
        lock(&self.known).lanes.values().map(|end| end.last).collect()
    }

    fn note(&self, last: Mark) {
        self.has_any.store(true, Ordering::Release);
        lock(&self.known).note(last, false, Mark::NONE);
    }

    fn forget(&self, is_done: impl Fn(Mark) -> bool) {
        lock(&self.known).lanes.retain(|_, end| !is_done(end.last));
    }

    fn reset(&self) {
        *lock(&self.known) = Known::default();
        self.has_any.store(false, Ordering::Release);
    }
}

impl Known {
    fn note(&mut self, last: Mark, is_ahead: bool, joined: Mark) {
        self.lanes.insert(last.lane(), LaneEnd { last, is_ahead, joined });
    }
}

fn put(driver: &Driver, context: &Context, lane: &Lane, work: Work) -> Mark {
    driver.engine.submit(lane, context.index(), context.card(), work, driver.clock.now())
}

/// Waits until a lane has room for one more item, as the real driver does.
fn make_room(driver: &Driver, lane: &Lane) {
    loop {
        let needed = lane.room();
        if needed.is_none() {
            return;
        }
        let done = wait_in(driver, needed);
        lane.note_done(done);
    }
}

/// Adds an item to a lane in a context, without the rules of streams and without a wait for room:
/// it is part of a graph, whose launch needs room in its stream.
pub fn submit(driver: &Driver, context: &Context, lane: &Lane, work: Work) -> Mark {
    let mark = put(driver, context, lane, work);
    context.backlog.note(mark);
    mark
}

/// Ends a lane, so that it can be used again.
pub fn end(driver: &Driver, context: &Context, lane: &Lane) {
    if !lane.is_unused() {
        put(driver, context, lane, Work::End);
        lane.reset();
    }
    if lock(&context.backlog.known).lanes.len() > REMEMBERED {
        context.backlog.forget(|mark| is_done(driver, mark));
    }
}

/// The status of a mark. After the end of the server, everything is done.
pub fn status(driver: &Driver, query: &Query) -> Status {
    let done = Status { progress: Progress::Done(None), lane_done: Mark::LAST_POSITION };
    if query.mark.is_none() {
        return done;
    }
    driver.engine.status(query, driver.clock.now()).unwrap_or(done)
}

/// The status of a mark and its lane, without a forecast.
pub fn status_of(driver: &Driver, mark: Mark) -> Status {
    status(driver, &Query { mark, event: None, has_forecast: false })
}

fn status_with_forecast(driver: &Driver, mark: Mark) -> Status {
    status(driver, &Query { mark, event: None, has_forecast: true })
}

/// Whether a mark is done now.
pub fn is_done(driver: &Driver, mark: Mark) -> bool {
    matches!(status_of(driver, mark).progress, Progress::Done(_))
}

/// When a mark will be done if no work is added: now if it is done, `None` if it may never be done.
pub fn forecast(driver: &Driver, mark: Mark) -> Option<u64> {
    match status_with_forecast(driver, mark).progress {
        Progress::Done(_) => Some(driver.clock.now()),
        Progress::Pending { forecast, .. } => forecast,
    }
}

/// Returns when a mark is done.
pub fn wait(driver: &Driver, mark: Mark) {
    wait_in(driver, mark);
}

/// Returns when a mark is done, with the last mark of its lane that is done.
fn wait_in(driver: &Driver, mark: Mark) -> Mark {
    let mut step = FIRST_STEP_NS;
    loop {
        let status = status_with_forecast(driver, mark);
        let Progress::Pending { check_at, .. } = status.progress else {
            return Mark::new(mark.lane(), status.lane_done);
        };
        let until = check_at.unwrap_or_else(|| {
            let until = driver.clock.now() + step;
            step = (step * 2).min(LONGEST_STEP_NS);
            until
        });
        driver.clock.sleep_until(until);
    }
}

/// Waits for everything in a context.
pub fn wait_for_all(driver: &Driver, context: &Context) {
    if context.backlog.has_any() {
        let ends = context.backlog.ends();
        for mark in &ends {
            wait(driver, *mark);
        }
        // Sorted: by lane.
        context.backlog.forget(|mark| ends.binary_search(&mark).is_ok());
    }
}

/// Ends all lanes of a context that no stream has, when everything in them is done.
pub fn end_all(driver: &Driver, context: &Context) {
    for lane in context.threads.iter().chain([&context.legacy, &context.host]) {
        end(driver, context, lane);
    }
    context.backlog.reset();
}

impl Queue {
    /// Submits work after the work that the rules of streams put before it. Waits while the stream
    /// is full.
    pub fn submit(self, driver: &Driver, work: Work) -> Mark {
        let (context, lane) = (self.context().0, self.lane());
        make_room(driver, lane);
        context.backlog.has_any.store(true, Ordering::Release);
        let mut known = lock(&context.backlog.known);
        let joined = self.join(driver, &mut known);
        let mark = put(driver, context, lane, work);
        self.note(&mut known, mark, joined);
        mark
    }

    /// The mark that new work here would wait for; [`Mark::NONE`] if there is none.
    #[inline]
    pub fn tail(self, driver: &Driver) -> Mark {
        if self.context().0.backlog.has_any() { self.find_tail(driver) } else { Mark::NONE }
    }

    fn find_tail(self, driver: &Driver) -> Mark {
        let (context, lane) = (self.context().0, self.lane());
        let mut known = lock(&context.backlog.known);
        let before = lane.last();
        let joined = self.join(driver, &mut known);
        let mark = lane.last();
        if mark != before {
            self.note(&mut known, mark, joined);
        }
        mark
    }

    /// Whether new work here takes part in the engine's time: it would wait for timed work, or the
    /// stream has had timed work.
    pub fn is_timed(self) -> bool {
        let context = self.context().0;
        if !context.backlog.has_any() {
            return false;
        }
        if !self.lane().is_unused() {
            return true;
        }
        match self {
            Self::Legacy(..) => lock(&context.backlog.known).lanes.values().any(|end| end.is_ahead),
            _ => self.is_blocking() && !lock(&context.backlog.known).legacy.is_none(),
        }
    }

    /// Whether everything that new work here would wait for is done. A query adds nothing to the
    /// stream.
    pub fn is_done(self, driver: &Driver) -> bool {
        let (context, lane) = (self.context().0, self.lane());
        if !context.backlog.has_any() {
            return true;
        }
        let others: Vec<Mark> = {
            let known = lock(&context.backlog.known);
            match self {
                Self::Legacy(..) => {
                    let ahead = known.lanes.values().filter(|end| end.is_ahead);
                    ahead.map(|end| end.last).collect()
                }
                _ if self.is_blocking() => vec![known.legacy],
                _ => Vec::new(),
            }
        };
        let last = lane.last();
        let status = status_of(driver, last);
        if !last.is_none() {
            lane.note_done(Mark::new(last.lane(), status.lane_done));
        }
        matches!(status.progress, Progress::Done(_))
            && others.into_iter().all(|mark| is_done(driver, mark))
    }

    /// Waits for everything that new work here would wait for.
    #[inline]
    pub fn wait(self, driver: &Driver) {
        let tail = self.tail(driver);
        if !tail.is_none() {
            let done = wait_in(driver, tail);
            self.lane().note_done(done);
        }
    }

    /// Adds the waits that the rules of streams require before new work; returns the last mark of
    /// the default stream that the stream has waited for.
    fn join(self, driver: &Driver, known: &mut Known) -> Mark {
        let (context, lane) = (self.context().0, self.lane());
        match self {
            Self::Legacy(..) => {
                for end in known.lanes.values_mut().filter(|end| end.is_ahead) {
                    end.is_ahead = false;
                    put(driver, context, lane, Work::Wait(end.last));
                }
                Mark::NONE
            }
            _ if self.is_blocking() && !known.legacy.is_none() => {
                let joined = known.lanes.get(&lane.number()).map(|end| end.joined);
                if joined != Some(known.legacy) {
                    put(driver, context, lane, Work::Wait(known.legacy));
                }
                known.legacy
            }
            _ => Mark::NONE,
        }
    }

    fn note(self, known: &mut Known, mark: Mark, joined: Mark) {
        let is_legacy = matches!(self, Self::Legacy(..));
        if is_legacy {
            known.legacy = mark;
        }
        known.note(mark, !is_legacy && self.is_blocking(), joined);
    }
}
