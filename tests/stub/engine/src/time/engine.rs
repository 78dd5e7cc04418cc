//! The engines of a card: whose turn it is on the compute engine, how fast kernels that run at once
//! get on, and the queue of a copy engine.

use super::FULL;
use std::collections::VecDeque;

/// Whose turn it is on a compute engine.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Turn {
    /// Nobody's: there is no work.
    #[default]
    Nobodys,
    /// The loaded context's, as soon as the switch to it is over.
    Switching { until: u64 },
    /// The loaded context's, since this instant.
    Since(u64),
}

/// The head of a lane that wants the compute engine: a kernel, or an event's place.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Running {
    /// Index of its lane.
    pub lane: usize,
    pub name: u32,
    /// Work left, in units of [`work_of`].
    pub left: u64,
    pub demand: u32,
    /// The event that is recorded here; `None`: it is a kernel.
    pub event: Option<u32>,
    /// How manieth launch of a collective; 0: it is none.
    pub turn: u64,
    pub group: usize,
    pub has_arrived: bool,
}

/// A kernel's work: nanoseconds at full speed, and fractions of them, since kernels that share the
/// engine go on by less than one in a nanosecond.
pub(super) fn work_of(ns: u64) -> u64 {
    ns << FRACTION
}

const FRACTION: u32 = 14;

/// How fast the kernels on an engine go on: what they demand together, at least [`FULL`].
#[derive(Clone, Copy)]
pub(super) struct Rate(u64);

/// The rate of kernels that have the engine together: full speed while their grids fit, and a part of
/// it that is the same for all when they do not.
pub(super) fn rate_of(heads: &[Running]) -> Rate {
    let demand = heads.iter().map(|head| u64::from(head.demand)).sum::<u64>();
    Rate(demand.max(u64::from(FULL)))
}

/// Nanoseconds that a kernel among those on an engine at least has left, from when they had left what
/// they say: whoever comes later only makes it slower, and the others slow it down until they end.
pub(super) fn least_time(heads: &[Running], head: &Running) -> u64 {
    // Each goes on by the same, so another's part in the whole is as long as the shorter of the two.
    let mut ends: Vec<(u64, u64)> =
        heads.iter().map(|other| (other.left.min(head.left), u64::from(other.demand))).collect();
    ends.sort_unstable();
    let mut demand: u64 = ends.iter().map(|(_, demand)| demand).sum();
    let (mut done, mut product) = (0, 0);
    for (end, its_demand) in ends {
        product += u128::from(end - done) * u128::from(demand.max(u64::from(FULL)));
        (done, demand) = (end, demand - its_demand);
    }
    u64::try_from(product.div_ceil(u128::from(FULL) << FRACTION)).unwrap_or(u64::MAX)
}

impl Rate {
    /// Nanoseconds until this much work is done.
    pub fn time_for(self, work: u64) -> u64 {
        let product = u128::from(work) * u128::from(self.0);
        product.div_ceil(u128::from(FULL) << FRACTION) as u64
    }

    /// The work done in so many nanoseconds.
    pub fn work_in(self, ns: u64) -> u64 {
        let product = u128::from(ns) * (u128::from(FULL) << FRACTION);
        u64::try_from(product / u128::from(self.0)).unwrap_or(u64::MAX)
    }
}

/// A copy engine: one copy at a time, first come first.
#[derive(Clone, Debug, Default)]
pub(super) struct CopyEngine {
    /// Lanes whose next item is a copy; the first one runs.
    queue: VecDeque<usize>,
    /// When that is done.
    until: u64,
}

impl CopyEngine {
    pub fn push(&mut self, lane: usize, now: u64, ns: u64) {
        if self.queue.is_empty() {
            self.until = now + ns;
        }
        self.queue.push_back(lane);
    }

    pub fn next_event(&self) -> Option<u64> {
        (!self.queue.is_empty()).then_some(self.until)
    }

    /// Takes the copy out that is done.
    pub fn finished(&mut self, now: u64) -> Option<usize> {
        if self.until > now { None } else { self.queue.pop_front() }
    }

    /// When the copy of a lane is done that runs now.
    pub fn ends(&self, lane: usize) -> Option<u64> {
        (self.first() == Some(lane)).then_some(self.until)
    }

    pub fn first(&self) -> Option<usize> {
        self.queue.front().copied()
    }

    pub fn start(&mut self, now: u64, ns: u64) {
        self.until = now + ns;
    }

    /// Takes lanes out; `true` when the one that ran was among them.
    pub fn forget(&mut self, is_gone: impl Fn(&usize) -> bool) -> bool {
        let was_running = self.queue.front().is_some_and(&is_gone);
        self.queue.retain(|lane| !is_gone(lane));
        was_running
    }
}
