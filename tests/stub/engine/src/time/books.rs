//! What ran, for whom: engine time by process, card and kernel name, and when.
//!
//! Engine time of a process is the time in which at least one of its kernels had the compute engine:
//! kernels that overlap count once, and so do kernels of one name. A switch is nobody's.

use super::engine::Running;
use super::program::Program;
use super::state::Sink;
use super::{Mark, program::ContextPlace};
use std::collections::{BTreeMap, VecDeque};

/// Nanoseconds of one bucket of a history.
pub const BUCKET_NS: u64 = 10_000_000;

/// Nanoseconds over which utilisation is averaged: NVML's shortest sample period, a sixth of a second, in
/// whole buckets.
pub const PERIOD_NS: u64 = 17 * BUCKET_NS;

/// Buckets that are kept by process and card: 44 minutes in which it ran without a pause.
const BUCKETS_MAX: usize = 1 << 18;

/// What one kernel name of a process did on one card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelUse {
    /// Launches that took time.
    pub launched: u64,
    /// Engine time, in nanoseconds.
    pub busy_ns: u64,
}

/// What one process did on one card.
#[derive(Clone, Debug, Default)]
pub(super) struct Page {
    pub busy_ns: u64,
    /// By number of the name.
    pub by_kernel: BTreeMap<u32, KernelUse>,
    /// Number of the bucket and nanoseconds in it, those with none left out.
    pub history: VecDeque<(u64, u64)>,
}

impl Page {
    fn add(&mut self, mut from: u64, to: u64) {
        self.busy_ns += to - from;
        while from < to {
            let bucket = from / BUCKET_NS;
            let end = to.min((bucket + 1) * BUCKET_NS);
            match self.history.back_mut() {
                Some((last, ns)) if *last == bucket => *ns += end - from,
                _ => self.history.push_back((bucket, end - from)),
            }
            from = end;
        }
        while self.history.len() > BUCKETS_MAX {
            self.history.pop_front();
        }
    }

    /// Engine time in the period that ended with the last whole bucket before `now`.
    pub fn recent(&self, now: u64) -> u64 {
        let end = now / BUCKET_NS;
        let start = end.saturating_sub(PERIOD_NS / BUCKET_NS);
        let buckets = self.history.iter().rev().take_while(|(bucket, _)| *bucket >= start);
        buckets.filter(|(bucket, _)| *bucket < end).map(|(_, ns)| ns).sum()
    }
}

/// All pages, by client and card; those of the gone stay.
#[derive(Debug, Default)]
pub(super) struct Books {
    pub pages: Vec<Vec<Page>>,
}

/// The machine's own sink: bills, notes events, gathers what has ended.
pub(super) struct Billing<'a> {
    pub books: &'a mut Books,
    pub contexts: &'a [ContextPlace],
    /// Client, event, mark, instant.
    pub reached: Vec<(usize, u32, Mark, u64)>,
    /// Lanes.
    pub ended: Vec<usize>,
}

impl<'a> Billing<'a> {
    pub fn new(books: &'a mut Books, program: &'a Program) -> Self {
        Self { books, contexts: &program.contexts, reached: Vec::new(), ended: Vec::new() }
    }
}

impl Sink for Billing<'_> {
    fn ran(&mut self, context: usize, running: &[Running], from: u64, to: u64) {
        let ContextPlace { client, card } = self.contexts[context];
        let page = &mut self.books.pages[client][card];
        page.add(from, to);
        for (index, head) in running.iter().enumerate() {
            if running[..index].iter().all(|other| other.name != head.name) {
                page.by_kernel.entry(head.name).or_default().busy_ns += to - from;
            }
        }
    }

    fn reached(&mut self, client: usize, event: u32, mark: Mark, at: u64) {
        self.reached.push((client, event, mark, at));
    }

    fn ended(&mut self, lane: usize) {
        self.ended.push(lane);
    }
}
