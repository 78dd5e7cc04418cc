//! The compute engine of one card: contexts in time slices, and the streams of a context beside
//! each other.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use crate::{MS, US};

const SLICE_NS: u64 = 2 * MS;
const SWITCH_NS: u64 = 50 * US;

/// Kernels that wait for each other: none ends before as many have begun.
pub type Meeting = (u64, usize);

/// How many kernels have begun of each meeting, on all cards.
pub type Meetings = Rc<RefCell<BTreeMap<u64, usize>>>;

#[derive(Clone, Debug)]
pub struct Kernel {
    pub left: u64,
    /// It fills the card: of these, a context runs one at a time.
    pub fills: bool,
    /// It spins until this meeting is complete, before its time counts.
    pub meets: Option<Meeting>,
    began: Option<u64>,
}

impl Kernel {
    pub fn new(left: u64, fills: bool, meets: Option<Meeting>) -> Self {
        Self { left, fills, meets, began: None }
    }

    /// What a driver's handle of its function would be.
    pub fn function(&self) -> usize {
        2 * self.left as usize + usize::from(self.meets.is_some())
    }
}

/// The end of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    pub context: usize,
    pub stream: usize,
    pub began: u64,
    pub at: u64,
}

#[derive(Debug, Default)]
struct Context {
    streams: BTreeMap<usize, VecDeque<Kernel>>,
    /// The stream whose kernel fills the card.
    filled_by: Option<usize>,
    /// Streams whose next kernel fills the card, in the order in which they came.
    queue: VecDeque<usize>,
}

#[derive(Debug, Default)]
pub struct Engine {
    contexts: BTreeMap<usize, Context>,
    resident: Option<usize>,
    at: u64,
    switch_left: u64,
    slice_left: u64,
    /// Engine time by context.
    pub work: BTreeMap<usize, u64>,
    begun: Meetings,
    ended: Vec<Ended>,
}

impl Engine {
    pub fn new(begun: Meetings) -> Self {
        Self { begun, ..Self::default() }
    }

    /// The process of a context has died.
    pub fn kill(&mut self, now: u64, context: usize) {
        self.advance_to(now);
        self.contexts.remove(&context);
        self.begin();
    }

    pub fn submit(&mut self, now: u64, context: usize, stream: usize, kernel: Kernel) {
        self.advance_to(now);
        let it = self.contexts.entry(context).or_default();
        it.streams.entry(stream).or_default().push_back(kernel);
        self.begin();
    }

    /// A flag of the host, or the last of a meeting.
    pub fn open(&mut self, now: u64, meeting: u64) {
        self.advance_to(now);
        *self.begun.borrow_mut().entry(meeting).or_default() += 1_000;
        self.begin();
    }

    /// The kernels that have ended until `now`.
    pub fn advance(&mut self, now: u64) -> Vec<Ended> {
        self.advance_to(now);
        std::mem::take(&mut self.ended)
    }

    fn is_met(&self, kernel: &Kernel) -> bool {
        kernel
            .meets
            .is_none_or(|(id, members)| self.begun.borrow().get(&id).is_some_and(|n| *n >= members))
    }

    /// The time of the next event if nothing is submitted; `u64::MAX` for never.
    pub fn next_change(&self) -> u64 {
        let Some(context) = self.resident.filter(|it| self.contexts.contains_key(it)) else {
            return u64::MAX;
        };
        if self.switch_left > 0 {
            return self.at + self.switch_left;
        }
        let running = self.contexts[&context].streams.values().filter_map(VecDeque::front);
        let running = running.filter(|kernel| kernel.began.is_some() && self.is_met(kernel));
        let next = running.map(|kernel| self.at + kernel.left).min().unwrap_or(u64::MAX);
        if self.contexts.len() > 1 { next.min(self.at + self.slice_left.max(1)) } else { next }
    }

    fn advance_to(&mut self, now: u64) {
        self.begin();
        while self.at < now {
            let next = self.next_change().min(now);
            let run = next - self.at;
            self.at = next;
            self.run(run);
            self.begin();
        }
    }

    fn run(&mut self, run: u64) {
        let Some(context) = self.resident.filter(|it| self.contexts.contains_key(it)) else {
            return;
        };
        if self.switch_left > 0 {
            self.switch_left -= run;
            return;
        }
        self.slice_left = self.slice_left.saturating_sub(run);
        *self.work.entry(context).or_default() += run;
        let met: Vec<usize> = self.contexts[&context]
            .streams
            .iter()
            .filter(|(_, queue)| queue.front().is_some_and(|k| k.began.is_some() && self.is_met(k)))
            .map(|(stream, _)| *stream)
            .collect();
        let it = self.contexts.get_mut(&context).expect("it is resident");
        for stream in met {
            let queue = it.streams.get_mut(&stream).expect("it runs");
            let kernel = queue.front_mut().expect("it runs");
            kernel.left -= run;
            if kernel.left == 0 {
                let began = kernel.began.expect("it runs");
                queue.pop_front();
                if queue.is_empty() {
                    it.streams.remove(&stream);
                }
                if it.filled_by == Some(stream) {
                    it.filled_by = None;
                }
                self.ended.push(Ended { context, stream, began, at: self.at });
            }
        }
        if it.streams.is_empty() {
            self.contexts.remove(&context);
        }
    }

    /// Chooses the context, and begins its kernels.
    fn begin(&mut self) {
        let stays = self.resident.is_some_and(|context| {
            let has_work = self.contexts.contains_key(&context);
            has_work && (self.switch_left > 0 || self.slice_left > 0 || self.contexts.len() == 1)
        });
        if !stays {
            let last = self.resident.map_or(0, |context| context + 1);
            let next = self.contexts.range(last..).chain(self.contexts.iter()).next();
            if let Some(next) = next.map(|(context, _)| *context) {
                if Some(next) != self.resident {
                    self.switch_left = if self.resident.is_some() { SWITCH_NS } else { 0 };
                    self.resident = Some(next);
                }
                self.slice_left = SLICE_NS;
            }
        }
        let Some(context) = self.resident.filter(|_| self.switch_left == 0) else { return };
        let Some(it) = self.contexts.get_mut(&context) else { return };
        for (stream, queue) in &mut it.streams {
            let kernel = queue.front_mut().expect("no stream is empty");
            if kernel.began.is_some() {
                continue;
            }
            if kernel.fills {
                if !it.queue.contains(stream) {
                    it.queue.push_back(*stream);
                }
                if it.filled_by.is_some() || it.queue.front() != Some(stream) {
                    continue;
                }
                it.queue.pop_front();
                it.filled_by = Some(*stream);
            }
            kernel.began = Some(self.at);
            if let Some((id, _)) = kernel.meets {
                *self.begun.borrow_mut().entry(id).or_default() += 1;
            }
        }
        // A kernel behind the first of the queue may begin now.
        if it.filled_by.is_none()
            && let Some(stream) = it.queue.pop_front()
        {
            it.filled_by = Some(stream);
            let kernel = it.streams.get_mut(&stream).and_then(VecDeque::front_mut);
            kernel.expect("it waits").began = Some(self.at);
        }
    }
}
