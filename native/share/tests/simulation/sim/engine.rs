//! The compute engine of one card: one context at a time, in turn.

use std::collections::{BTreeMap, VecDeque};

use super::{MS, US};

const SLICE_NS: u64 = 2 * MS;
const SWITCH_NS: u64 = 50 * US;

#[derive(Clone, Debug)]
pub struct Kernel {
    pub left: u64,
    /// It began to run at.
    pub began: Option<u64>,
    /// The number of the meeting that it waits for, spinning, before its time counts.
    pub meets: Option<u64>,
}

#[derive(Debug, Default)]
pub struct Engine {
    /// By context, those that have work.
    queues: BTreeMap<usize, VecDeque<Kernel>>,
    current: Option<usize>,
    /// The context that ran last: to go on with it costs no switch.
    resident: Option<usize>,
    /// Up to here everything is settled.
    at: u64,
    switch_left: u64,
    slice_left: u64,
    /// Engine time by context.
    pub work: BTreeMap<usize, u64>,
}

/// What happened until now.
#[derive(Debug)]
pub enum Happened {
    Began { meets: u64 },
    Ended { context: usize, began: u64, ended: u64 },
}

impl Engine {
    pub fn submit(&mut self, now: u64, context: usize, kernel: Kernel) -> Vec<Happened> {
        let happened = self.settle(now);
        self.queues.entry(context).or_default().push_back(kernel);
        happened
    }

    /// The context is gone; what runs of it ends at once.
    pub fn forget(&mut self, now: u64, context: usize) -> Vec<Happened> {
        let happened = self.settle(now);
        self.queues.remove(&context);
        if self.current == Some(context) {
            self.current = None;
        }
        happened
    }

    /// A meeting is complete: kernels that waited for it go on.
    pub fn met(&mut self, now: u64, meeting: u64) -> Vec<Happened> {
        let happened = self.settle(now);
        for kernel in self.queues.values_mut().flatten() {
            if kernel.meets == Some(meeting) {
                kernel.meets = None;
            }
        }
        happened
    }

    /// Lets the engine work until `now`.
    pub fn settle(&mut self, now: u64) -> Vec<Happened> {
        let mut happened = Vec::new();
        while self.at < now {
            self.choose(&mut happened);
            let Some(context) = self.current else {
                self.at = now;
                break;
            };
            let run = self.next_change().min(now) - self.at;
            self.at += run;
            if self.switch_left > 0 {
                self.switch_left -= run;
                continue;
            }
            *self.work.entry(context).or_default() += run;
            self.slice_left = self.slice_left.saturating_sub(run);
            let queue = self.queues.get_mut(&context).expect("it is current");
            let kernel = queue.front_mut().expect("it has work");
            if kernel.meets.is_none() {
                kernel.left -= run;
                if kernel.left == 0 {
                    let began = kernel.began.expect("it ran");
                    queue.pop_front();
                    happened.push(Happened::Ended { context, began, ended: self.at });
                    if queue.is_empty() {
                        self.queues.remove(&context);
                    }
                }
            }
        }
        self.choose(&mut happened);
        happened
    }

    /// When something will happen next if nothing is submitted; `u64::MAX` for never.
    pub fn next_change(&self) -> u64 {
        let Some(context) = self.current else { return u64::MAX };
        if self.switch_left > 0 {
            return self.at + self.switch_left;
        }
        let kernel = &self.queues[&context][0];
        let ends = kernel.meets.map_or(self.at + kernel.left, |_| u64::MAX);
        if self.queues.len() > 1 { ends.min(self.at + self.slice_left.max(1)) } else { ends }
    }

    fn choose(&mut self, happened: &mut Vec<Happened>) {
        let stays = self.current.is_some_and(|context| {
            let has_work = self.queues.contains_key(&context);
            has_work && (self.slice_left > 0 || self.queues.len() == 1)
        });
        if !stays {
            let last = self.resident.map_or(0, |context| context + 1);
            let next = self.queues.range(last..).chain(self.queues.iter()).next();
            let next = next.map(|(context, _)| *context);
            if next.is_some() && next != self.resident {
                self.switch_left = if self.resident.is_some() { SWITCH_NS } else { 0 };
                self.resident = next;
            }
            self.slice_left = SLICE_NS;
            self.current = next;
        }
        let Some(context) = self.current.filter(|_| self.switch_left == 0) else { return };
        let kernel = &mut self.queues.get_mut(&context).expect("it was chosen")[0];
        if kernel.began.is_none() {
            kernel.began = Some(self.at);
            if let Some(meets) = kernel.meets {
                happened.push(Happened::Began { meets });
            }
        }
    }
}
