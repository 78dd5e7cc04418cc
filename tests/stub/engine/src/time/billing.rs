//! Engine time by process, card and kernel name, and its history.
//!
//! The engine time of a process is the time in which at least one of its kernels was on the compute
//! engine. Kernels that overlap count once, and so do kernels of one name. A switch is billed to no
//! process.

use super::engine::Running;
use super::program::Program;
use super::state::Sink;
use super::{Mark, program::ContextOwner};
use std::collections::{BTreeMap, VecDeque};

/// Nanoseconds of one bucket of a history.
pub const BUCKET_NS: u64 = 10_000_000;

/// Nanoseconds over which utilisation is averaged: NVML's shortest sample period, a sixth of a
/// second, in whole buckets.
pub const PERIOD_NS: u64 = 17 * BUCKET_NS;

/// Buckets that are kept for each process and card: 44 minutes without a pause.
const BUCKETS_MAX: usize = 1 << 18;

/// The use of one card by the kernels of one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelUse {
    /// Launches that took time.
    pub launched: u64,
    /// Engine time, in nanoseconds.
    pub busy_ns: u64,
}

/// The use of one card by one process.
#[derive(Clone, Debug, Default)]
pub(super) struct Bill {
    pub busy_ns: u64,
    /// By the number of the kernel's name.
    pub by_kernel: BTreeMap<u32, KernelUse>,
    /// The number of the bucket and the nanoseconds in it, without empty buckets.
    pub history: VecDeque<(u64, u64)>,
}

impl Bill {
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

/// All bills, by client and card. Those of ended clients stay.
#[derive(Debug, Default)]
pub(super) struct Bills {
    pub pages: Vec<Vec<Bill>>,
}

/// The machine's own sink: it bills engine time and collects reached events and ended lanes.
pub(super) struct Billing<'a> {
    pub bills: &'a mut Bills,
    pub contexts: &'a [ContextOwner],
    /// Client, event, mark, instant.
    pub reached: Vec<(usize, u32, Mark, u64)>,
    /// Ended lanes.
    pub ended: Vec<usize>,
}

impl<'a> Billing<'a> {
    pub fn new(bills: &'a mut Bills, program: &'a Program) -> Self {
        Self { bills, contexts: &program.contexts, reached: Vec::new(), ended: Vec::new() }
    }
}

impl Sink for Billing<'_> {
    fn ran(&mut self, context: usize, running: &[Running], from: u64, to: u64) {
        let ContextOwner { client, card } = self.contexts[context];
        let page = &mut self.bills.pages[client][card];
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
