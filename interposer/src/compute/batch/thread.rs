//! A thread's open batches, and the ticket that stands for launches of one of them.
//!
//! A thread works on its own; the meter and whoever ends a stream or context come from outside, so each
//! has a lock, which is hardly ever waited for.

use std::cell::OnceCell;
use std::sync::{Arc, Mutex};

use hami_share::limiter::BATCH_NS;

use super::contents::Contents;
use super::kinds::Kinds;
use super::{Batch, Next, Stream, lock};
use crate::compute::card::CardLimiter;
use crate::compute::shape::Launch;
use crate::compute::sleep::now;
use crate::compute::ticket::{self, Price, Ticket};
use crate::compute::{capture, events, meter};
use crate::init;

// No batch can pay what is dear.
const _: () = assert!(BATCH_NS < Price::DEAR_NS as u64);

/// About one batch in so many has a single launch, so that what a kernel takes is measured alone now
/// and then, however its launches come; and so have as many at first, when nothing is known for sure.
const SAMPLED: u32 = 16;
/// Streams that a thread may have open batches on; beyond that the oldest is closed, long after its
/// last launch, and idle time in it is billed. As many as programs with many streams have.
const OPEN: usize = 64;

/// One thread that launches.
pub(in crate::compute) struct Thread {
    ticket: *const Ticket,
    open: Mutex<Open>,
}

/// What a thread keeps between its launches.
#[derive(Default)]
struct Open {
    batches: Vec<Batch>,
    /// How many there have been.
    opened: u32,
    kinds: Kinds,
}

// SAFETY: the ticket is read through atomics, and only while the thread is in `THREADS`.
unsafe impl Send for Thread {}
// SAFETY: as above.
unsafe impl Sync for Thread {}

/// The threads that have launched something.
static THREADS: Mutex<Vec<Arc<Thread>>> = Mutex::new(Vec::new());

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
        self.0.ticket().give_up();
        lock(&THREADS).retain(|thread| !Arc::ptr_eq(thread, &self.0));
    }
}

thread_local! {
    static MINE: OnceCell<Registered> = const { OnceCell::new() };
}

/// Does something with the calling thread's batches; `None` in a thread that is ending.
pub(in crate::compute) fn with_mine<T>(body: impl FnOnce(&Thread) -> T) -> Option<T> {
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
pub(in crate::compute) fn threads() -> Vec<Arc<Thread>> {
    lock(&THREADS).clone()
}

impl Thread {
    fn ticket(&self) -> &Ticket {
        // SAFETY: the thread lives, or it would not be in `THREADS`, or is the caller itself.
        unsafe { &*self.ticket }
    }

    /// Adds a launch to the open batch of its stream, if it has room.
    pub(in crate::compute) fn join(&self, launch: &Launch, stream: Stream) -> Next {
        let open = &mut *lock(&self.open);
        open.count_used(self.ticket().take_back());
        let cost = open.kinds.cost(launch);
        let batches = &mut open.batches;
        let Some(batch) = batches.iter_mut().find(|batch| batch.stream == stream) else {
            return Next::AskForBatch;
        };
        let Some(cost) = cost.filter(|cost| batch.contents.has_room(*cost)) else {
            close(batches, |batch| batch.stream == stream);
            return Next::AskForBatch;
        };
        batch.contents.add(launch.key(), cost);
        issue(self.ticket(), batch, &mut open.kinds, cost)
    }

    /// Opens a batch with a launch that has passed the limiter.
    pub(in crate::compute) fn open(
        &self,
        limiter: &'static CardLimiter,
        launch: &Launch,
        stream: Stream,
        expected: u64,
    ) -> Next {
        let start = events::take(stream.context);
        let Some(start) = start.filter(|start| start.record(stream.handle, stream.is_threads_own))
        else {
            // What cannot be measured is billed as it was predicted.
            limiter.ended(stream.queue(), expected, expected);
            return Next::Launch;
        };
        let mut all = lock(&self.open);
        let open = &mut *all;
        open.count_used(self.ticket().take_back());
        let batches = &mut open.batches;
        // One that a signal handler of this thread has opened since it asked.
        close(batches, |batch| batch.stream == stream);
        if batches.len() >= OPEN {
            let oldest = batches.first().map(|batch| batch.stream);
            close(batches, |batch| Some(batch.stream) == oldest);
        }
        open.opened = open.opened.wrapping_add(1);
        // Nobody else can put an event into a thread's own stream, nor into one that may be captured.
        let is_single = limiter.is_one_by_one(now())
            || stream.is_threads_own
            || capture::any()
            || open.opened <= SAMPLED
            || is_sampled(open.opened);
        let cost = open.kinds.cost(launch);
        let contents = Contents::begin(launch.key(), cost, is_single);
        let mut batch = Batch::open(limiter, stream, start, contents, expected);
        let next = issue(self.ticket(), &mut batch, &mut open.kinds, cost.unwrap_or(1));
        let opened_at = batch.opened_at;
        open.batches.push(batch);
        drop(all);
        meter::wake_by(opened_at);
        next
    }

    /// The driver has taken the launch that was to be the last of its batch.
    pub(in crate::compute) fn launched(&self) {
        let at = now();
        let batches = &mut lock(&self.open).batches;
        for batch in
            batches.iter_mut().filter(|batch| batch.is_closing && batch.contents.launches == 1)
        {
            batch.launched_at = Some(at);
        }
        close(batches, |batch| batch.is_closing);
    }

    /// Closes those of its open batches, from its own thread.
    pub(in crate::compute) fn close_all(&self, which: impl Fn(Stream) -> bool) {
        let open = &mut *lock(&self.open);
        if open.has(&which) {
            open.count_used(self.ticket().take_back());
            close(&mut open.batches, |batch| which(batch.stream));
        }
    }

    /// From another thread: closes the batches of these streams. Their own thread may launch one more at this
    /// very instant, which is then billed to nobody.
    pub(in crate::compute) fn close_from_outside(&self, which: impl Fn(Stream) -> bool) {
        let open = &mut *lock(&self.open);
        if open.has(&which) {
            self.count_from_outside(open);
            close(&mut open.batches, |batch| which(batch.stream));
        }
    }

    fn count_from_outside(&self, open: &mut Open) {
        ticket::revoke_all();
        if open.batches.iter().any(|batch| batch.has_ticket) {
            open.count_used(self.ticket().used());
        }
    }

    /// The streams of its open batches that were not added to for `quiet`, or are `age` old, or are on
    /// a card whose batches are all `due` to be closed.
    pub(in crate::compute) fn stale(
        &self,
        at: u64,
        quiet: u64,
        age: u64,
        due: &[&'static CardLimiter],
    ) -> Vec<Stream> {
        let batches = &mut lock(&self.open).batches;
        let mut stale = Vec::new();
        for batch in batches.iter_mut().filter(|batch| !batch.is_closing) {
            let ticketed = if batch.has_ticket { self.ticket().used().launches() } else { 0 };
            let launches = batch.contents.launches + ticketed;
            if batch.seen.0 != launches {
                batch.seen = (launches, at);
            }
            let is_old = at >= batch.seen.1 + quiet || at >= batch.opened_at + age;
            if is_old || due.iter().any(|limiter| std::ptr::eq(*limiter, batch.limiter)) {
                stale.push(batch.stream);
            }
        }
        stale
    }

    /// Whether it has open batches.
    pub(in crate::compute) fn has_open(&self) -> bool {
        !lock(&self.open).batches.is_empty()
    }

    /// Batches in a context that has ended: they will never be measured.
    pub(in crate::compute) fn forget(&self, context: usize) {
        let open = &mut *lock(&self.open);
        self.count_from_outside(open);
        open.batches.retain(|batch| {
            let is_gone = batch.stream.context == context;
            if is_gone {
                batch.forget();
            }
            !is_gone
        });
    }
}

impl Open {
    /// Adds what was launched on the ticket to the batch that it stands for.
    fn count_used(&mut self, used: Price) {
        for batch in self.batches.iter_mut().filter(|batch| batch.has_ticket) {
            batch.add_used(used);
        }
    }

    fn has(&self, which: impl Fn(Stream) -> bool) -> bool {
        self.batches.iter().any(|batch| which(batch.stream))
    }
}

/// Lets more launches pass without asking, as far as the batch has room. The last has to come by, where it
/// can be told which that is: if all are like the one that is being made, which takes `cost`.
fn issue(ticket: &Ticket, batch: &mut Batch, kinds: &mut Kinds, cost: u64) -> Next {
    if !batch.contents.has_room(cost) {
        batch.is_closing = true;
        return Next::LaunchAndClose;
    }
    let (ns, launches) = batch.contents.ticket(cost);
    // The wrappers that look at tickets name other streams than a thread's own.
    if launches > 0 && !batch.stream.is_threads_own {
        if batch.contents.key.is_some() {
            kinds.set_own();
        }
        ticket.issue(kinds.table(), batch.stream.handle, ns, launches);
        batch.has_ticket = true;
    }
    Next::Launch
}

/// Whether a thread's batch of this number is one of those with a single launch. They come at no fixed
/// distance: a program that launches the same kernels over and over would keep step with it, and
/// always the same few would be measured.
fn is_sampled(number: u32) -> bool {
    // The multipliers of MurmurHash3's finalizer, in which every bit reaches every other.
    let mixed = (number ^ number >> 16).wrapping_mul(0x85eb_ca6b);
    let mixed = (mixed ^ mixed >> 13).wrapping_mul(0xc2b2_ae35);
    (mixed ^ mixed >> 16).is_multiple_of(SAMPLED)
}

/// Puts the second event behind those batches.
fn close(batches: &mut Vec<Batch>, which: impl Fn(&Batch) -> bool) {
    let mut place = 0;
    while let Some(batch) = batches.get(place) {
        if which(batch) {
            let batch = batches.remove(place);
            events::in_context(batch.stream.context, || batch.close());
        } else {
            place += 1;
        }
    }
}
