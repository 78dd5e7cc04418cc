//! The compute engine of one card: one context at a time, in turn.

use std::collections::{BTreeMap, VecDeque};

use super::{MS, US};

const SLICE_NS: u64 = 2 * MS;
const SWITCH_NS: u64 = 50 * US;

#[derive(Clone, Debug)]
pub struct Kernel {
    pub left: u64,
    /// When it began to run.
    pub began: Option<u64>,
    /// The meeting for which it waits, spinning, before its time counts.
    pub meets: Option<u64>,
}

#[derive(Debug, Default)]
pub struct Engine {
    /// The work by context.
    queues: BTreeMap<usize, VecDeque<Kernel>>,
    current: Option<usize>,
    /// The context that ran last. To continue with it costs no switch.
    resident: Option<usize>,
    /// The engine has been simulated up to this time.
    at: u64,
    switch_left: u64,
    slice_left: u64,
    /// Engine time by context.
    pub work: BTreeMap<usize, u64>,
}

/// An event in an engine.
#[derive(Debug)]
pub enum Occurred {
    Began { meets: u64 },
    Ended { context: usize, began: u64, ended: u64 },
}

impl Engine {
    pub fn submit(&mut self, now: u64, context: usize, kernel: Kernel) -> Vec<Occurred> {
        let events = self.advance(now);
        self.queues.entry(context).or_default().push_back(kernel);
        events
    }

    /// The context has exited; its running work ends at once.
    pub fn forget(&mut self, now: u64, context: usize) -> Vec<Occurred> {
        let events = self.advance(now);
        self.queues.remove(&context);
        if self.current == Some(context) {
            self.current = None;
        }
        events
    }

    /// A meeting is complete: kernels that waited for it continue.
    pub fn met(&mut self, now: u64, meeting: u64) -> Vec<Occurred> {
        let events = self.advance(now);
        for kernel in self.queues.values_mut().flatten() {
            if kernel.meets == Some(meeting) {
                kernel.meets = None;
            }
        }
        events
    }

    /// Simulates the engine until `now`.
    pub fn advance(&mut self, now: u64) -> Vec<Occurred> {
        let mut events = Vec::new();
        while self.at < now {
            self.choose(&mut events);
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
                    events.push(Occurred::Ended { context, began, ended: self.at });
                    if queue.is_empty() {
                        self.queues.remove(&context);
                    }
                }
            }
        }
        self.choose(&mut events);
        events
    }

    /// The time of the next event if nothing is submitted; `u64::MAX` for never.
    pub fn next_change(&self) -> u64 {
        let Some(context) = self.current else { return u64::MAX };
        if self.switch_left > 0 {
            return self.at + self.switch_left;
        }
        let kernel = &self.queues[&context][0];
        let ends = kernel.meets.map_or(self.at + kernel.left, |_| u64::MAX);
        if self.queues.len() > 1 { ends.min(self.at + self.slice_left.max(1)) } else { ends }
    }

    fn choose(&mut self, events: &mut Vec<Occurred>) {
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
                events.push(Occurred::Began { meets });
            }
        }
    }
}
