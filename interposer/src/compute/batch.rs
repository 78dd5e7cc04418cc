//! Batches: the launches of one thread on one stream between two events of ours.
//!
//! A batch is closed right behind its last launch, before anything else can come into the stream. One
//! that is not used up, because the program does something else, is closed by the meter a little
//! later. Either way it is then in flight, until the second event is reached.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hami_share::limiter::{Costs, batch_size};

use super::capture::{self, Capturing};
use super::card::CardLimiter;
use super::events::{self, Event, Reached};
use super::outstanding::Queue;
use super::shape::Launch;
use super::sleep::now;
use super::ticket::{self, Ticket};
use crate::init;

/// Predicted engine time of a batch.
const BATCH_NS: u64 = 2_000_000;
/// What is assumed of a kernel that was never measured.
const UNKNOWN_NS: u64 = 1_000_000;
/// One batch in so many has a single launch, so that what a kernel takes is measured alone now and
/// then, however its launches come; and so have as many at first, when nothing is known for sure.
const SAMPLED: u32 = 16;
/// Streams that a thread may have open batches on; beyond that the oldest is closed.
const OPEN: usize = 8;

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

/// A batch that may still grow.
struct Batch {
    limiter: &'static CardLimiter,
    stream: Stream,
    queue: Queue,
    start: Event,
    opened_at: u64,
    launches: u32,
    /// The most launches it may have.
    room: u32,
    /// Predicted engine time of its launches, as far as their costs are known.
    predicted: u64,
    /// What the limiter was told to expect.
    expected: u64,
    /// Whether all costs are known.
    is_known: bool,
    /// The kernel, as long as there is only one, and what each launch of it is predicted to take.
    key: Option<u64>,
    cost: u64,
    /// The ticket stands for launches of this batch.
    has_ticket: bool,
    /// The launch that is being made is its last.
    is_closing: bool,
    /// When the driver had taken its only launch.
    launched_at: Option<u64>,
    /// How many launches the meter has seen, and when that last changed.
    seen: (u32, u64),
}

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

/// One thread's open batches.
pub(super) struct Thread {
    ticket: *const Ticket,
    open: Mutex<Open>,
}

/// What a thread keeps between its launches.
#[derive(Default)]
struct Open {
    batches: Vec<Batch>,
    /// How many there have been.
    opened: u32,
    recent: Recent,
}

/// The costs of a few kernels, so that a launch need not ask for what all threads share.
#[derive(Default)]
struct Recent {
    learned: u32,
    costs: [(u64, Option<u64>); RECENT],
}

const RECENT: usize = 32;

impl Recent {
    fn cost(&mut self, key: u64) -> Option<u64> {
        let learned = LEARNED.load(Ordering::Acquire);
        if self.learned != learned {
            *self = Self { learned, ..Self::default() };
        }
        let entry = self.costs.get_mut((key >> 32) as usize % RECENT)?;
        if entry.0 != key {
            *entry = (key, cost_of(key));
        }
        entry.1
    }
}

// SAFETY: the ticket is read through atomics, and only while the thread is in `THREADS`.
unsafe impl Send for Thread {}
// SAFETY: as above.
unsafe impl Sync for Thread {}

/// The threads that have launched something.
static THREADS: Mutex<Vec<Arc<Thread>>> = Mutex::new(Vec::new());
/// What was measured of kernels, and how often anything was.
static COSTS: Mutex<Option<Costs>> = Mutex::new(None);
static LEARNED: AtomicU32 = AtomicU32::new(0);

/// Remembers what the launches of a kernel took each.
pub(super) fn learn(key: u64, each: u64, launches: u32) {
    lock(&COSTS).get_or_insert_with(Costs::default).learn(key, each, launches);
    LEARNED.fetch_add(1, Ordering::Release);
}

/// About the shortest time that a launch has taken from our first event on.
static SHORTEST_GAP: AtomicU64 = AtomicU64::new(u64::MAX);

/// Takes a thread's batches along when it ends.
struct Registered(Arc<Thread>);

impl Drop for Registered {
    fn drop(&mut self) {
        // In a child of fork nothing of this is its own, and the locks may be held for ever.
        if init::inherited() {
            return;
        }
        // The streams live on, but nobody else may touch the thread's ticket.
        self.0.close_all(|_| true);
        lock(&THREADS).retain(|thread| !Arc::ptr_eq(thread, &self.0));
    }
}

thread_local! {
    static MINE: OnceCell<Registered> = const { OnceCell::new() };
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does something with the calling thread's batches; `None` in a thread that is ending.
pub(super) fn with_mine<T>(body: impl FnOnce(&Thread) -> T) -> Option<T> {
    MINE.try_with(|mine| {
        let registered = mine.get_or_init(|| {
            let thread = Thread { ticket: ticket::mine(), open: Mutex::default() };
            let thread = Arc::new(thread);
            lock(&THREADS).push(Arc::clone(&thread));
            Registered(thread)
        });
        body(&registered.0)
    })
    .ok()
}

/// Every thread that has launched something.
pub(super) fn threads() -> Vec<Arc<Thread>> {
    lock(&THREADS).clone()
}

pub(super) fn cost_of(key: u64) -> Option<u64> {
    lock(&COSTS).get_or_insert_with(Costs::default).cost(key)
}

/// What a kernel is predicted to take.
pub(super) fn expectation(key: u64) -> u64 {
    cost_of(key).unwrap_or(UNKNOWN_NS)
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

impl Thread {
    fn ticket(&self) -> &Ticket {
        // SAFETY: the thread lives, or it would not be in `THREADS`, or is the caller itself.
        unsafe { &*self.ticket }
    }

    /// Adds a launch to the open batch of its stream, if it has room.
    pub(super) fn join(&self, launch: &Launch, stream: Stream) -> Next {
        let key = launch.key();
        let mut open = lock(&self.open);
        let cost = open.recent.cost(key);
        let open = &mut open.batches;
        self.count_ticket(open);
        let Some(batch) = open.iter_mut().find(|batch| batch.stream == stream) else {
            return Next::AskForBatch;
        };
        let fits = cost.is_some_and(|cost| batch.predicted + cost <= BATCH_NS);
        if batch.launches >= batch.room || !fits {
            close(open, |batch| batch.stream == stream);
            return Next::AskForBatch;
        }
        batch.add(key, cost);
        self.issue(batch, launch)
    }

    /// Opens a batch with a launch that has passed the limiter.
    pub(super) fn open(
        &self,
        limiter: &'static CardLimiter,
        launch: &Launch,
        stream: Stream,
        expected: u64,
    ) -> Next {
        let key = launch.key();
        let cost = cost_of(key);
        let start = events::take(stream.context);
        let Some(start) = start.filter(|start| start.record(stream.handle, stream.is_threads_own))
        else {
            // What cannot be measured is billed as it was predicted.
            limiter.ended(stream.queue(), expected, expected);
            return Next::Launch;
        };
        let mut all = lock(&self.open);
        let open = &mut all.batches;
        self.count_ticket(open);
        // Another context with the same handle, or a batch that its thread was interrupted in.
        close(open, |batch| batch.stream == stream);
        if open.len() >= OPEN {
            let oldest = open.first().map(|batch| batch.stream);
            close(open, |batch| Some(batch.stream) == oldest);
        }
        let opened_at = now();
        all.opened = all.opened.wrapping_add(1);
        // Nobody else can put an event into a thread's own stream, nor into one that may be captured.
        let is_single = limiter.is_one_by_one(opened_at)
            || stream.is_threads_own
            || capture::any()
            || all.opened <= SAMPLED
            || all.opened.is_multiple_of(SAMPLED);
        let open = &mut all.batches;
        let mut batch = Batch {
            limiter,
            stream,
            queue: stream.queue(),
            start,
            opened_at,
            launches: 0,
            room: if is_single { 1 } else { batch_size(cost) },
            predicted: 0,
            expected,
            is_known: true,
            key: Some(key),
            cost: 0,
            has_ticket: false,
            is_closing: false,
            launched_at: None,
            seen: (0, opened_at),
        };
        batch.add(key, cost);
        let next = self.issue(&mut batch, launch);
        open.push(batch);
        drop(all);
        super::meter::wake_by(opened_at);
        next
    }

    /// Lets more of the same pass without asking, as far as the batch has room; its last launch has to
    /// come by.
    fn issue(&self, batch: &mut Batch, launch: &Launch) -> Next {
        let by_time = (BATCH_NS.saturating_sub(batch.predicted)).checked_div(batch.cost);
        let left = batch.room.saturating_sub(batch.launches);
        let left = left.min(by_time.map_or(0, |count| u32::try_from(count).unwrap_or(u32::MAX)));
        if left == 0 {
            batch.is_closing = true;
            return Next::LaunchAndClose;
        }
        if launch.is_plain_kernel && left > 1 {
            self.ticket().issue(launch.function, launch.stream, launch.grid, left - 1);
            batch.has_ticket = true;
        }
        Next::Launch
    }

    /// Adds what was launched on the ticket to the batch that it stands for, and takes it back.
    fn count_ticket(&self, open: &mut [Batch]) {
        let used = self.ticket().take_back();
        for batch in open.iter_mut().filter(|batch| batch.has_ticket) {
            batch.has_ticket = false;
            batch.launches += used;
            batch.predicted += u64::from(used) * batch.cost;
        }
    }

    /// The driver has taken the launch that was to be the last of its batch.
    pub(super) fn launched(&self) {
        let at = now();
        let open = &mut lock(&self.open).batches;
        for batch in open.iter_mut().filter(|batch| batch.is_closing && batch.launches == 1) {
            batch.launched_at = Some(at);
        }
        close(open, |batch| batch.is_closing);
    }

    /// Closes those of its open batches, from its own thread.
    pub(super) fn close_all(&self, which: impl Fn(Stream) -> bool) {
        let open = &mut lock(&self.open).batches;
        if open.iter().any(|batch| which(batch.stream)) {
            self.count_ticket(open);
            close(open, |batch| which(batch.stream));
        }
    }

    /// From another thread: closes the batches of these streams. Their own thread may launch one more at this
    /// very instant, which is then billed to nobody.
    pub(super) fn close_from_outside(&self, which: impl Fn(Stream) -> bool) {
        let open = &mut lock(&self.open).batches;
        if open.iter().any(|batch| which(batch.stream)) {
            self.count_ticket_from_outside(open);
            close(open, |batch| which(batch.stream));
        }
    }

    fn count_ticket_from_outside(&self, open: &mut [Batch]) {
        ticket::revoke_all();
        for batch in open.iter_mut().filter(|batch| batch.has_ticket) {
            let used = self.ticket().used();
            batch.has_ticket = false;
            batch.launches += used;
            batch.predicted += u64::from(used) * batch.cost;
        }
    }

    /// The contexts of its open batches on a card, where they were not added to for `quiet`, or are
    /// `age` old, or all of them.
    pub(super) fn stale(&self, at: u64, quiet: u64, age: u64, of: &Due<'_>) -> Vec<Stream> {
        let open = &mut lock(&self.open).batches;
        let mut stale = Vec::new();
        for batch in open.iter_mut().filter(|batch| !batch.is_closing) {
            let ticketed = if batch.has_ticket { self.ticket().used() } else { 0 };
            let launches = batch.launches + ticketed;
            if batch.seen.0 != launches {
                batch.seen = (launches, at);
            }
            let is_old = at >= batch.seen.1 + quiet || at >= batch.opened_at + age;
            if is_old || of.limiters.iter().any(|limiter| std::ptr::eq(*limiter, batch.limiter)) {
                stale.push(batch.stream);
            }
        }
        stale
    }

    /// Whether it has open batches.
    pub(super) fn has_open(&self) -> bool {
        !lock(&self.open).batches.is_empty()
    }

    /// Batches in a context that has ended: they will never be measured.
    pub(super) fn forget(&self, context: usize) {
        let open = &mut lock(&self.open).batches;
        self.count_ticket_from_outside(open);
        open.retain(|batch| {
            let is_gone = batch.stream.context == context;
            if is_gone {
                // The driver has waited for what was in it.
                let elapsed = now().saturating_sub(batch.opened_at);
                batch.limiter.ended(batch.queue, batch.expected, batch.predicted.max(elapsed));
            }
            !is_gone
        });
    }
}

/// Puts the second event behind those batches.
fn close(open: &mut Vec<Batch>, which: impl Fn(&Batch) -> bool) {
    let mut place = 0;
    while let Some(batch) = open.get(place) {
        if which(batch) {
            let batch = open.remove(place);
            events::in_context(batch.stream.context, || batch.close());
        } else {
            place += 1;
        }
    }
}

/// The cards whose batches all have to be closed now.
pub(super) struct Due<'a> {
    pub(super) limiters: &'a [&'static CardLimiter],
}

impl Batch {
    fn add(&mut self, key: u64, cost: Option<u64>) {
        self.launches += 1;
        self.is_known &= cost.is_some();
        self.predicted += cost.unwrap_or(0);
        // A kernel may have been too short to be measured.
        self.cost = cost.unwrap_or(0).max(1);
        if self.key != Some(key) {
            self.key = None;
        }
    }

    fn close(self) {
        let stream = self.stream;
        let end = match capture::state_of(stream) {
            Capturing::No => events::take(stream.context),
            Capturing::Yes | Capturing::CannotTell => None,
        };
        let end = end.filter(|end| end.record(stream.handle, stream.is_threads_own));
        let Some(end) = end else {
            events::give_back(stream.context, self.start);
            let billed = if self.is_known { self.predicted } else { self.expected };
            self.limiter.ended(self.queue, self.expected, billed);
            return;
        };
        let closed_at = now();
        let (gap, doubt) = self.idle_before(closed_at);
        let expected = if self.is_known { self.predicted } else { self.expected };
        self.limiter.expect(self.queue, self.expected, expected);
        super::meter::take_off(Flight {
            limiter: self.limiter,
            queue: self.queue,
            context: stream.context,
            start: self.start,
            end,
            born: super::contexts::age(),
            launches: self.launches,
            key: self.key,
            predicted: self.is_known.then_some(self.predicted),
            expected,
            window: closed_at.saturating_sub(self.opened_at),
            gap,
            sample: self.launched_at.and(Some(doubt)),
            closed_at,
        });
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
