//! The engines of a card: the turns on the compute engine, the speed of kernels that run at the
//! same time, and the queue of a copy engine.

use super::FULL;
use std::collections::VecDeque;

/// The turn on a compute engine.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Turn {
    /// There is no work.
    #[default]
    Idle,
    /// The engine switches to the loaded context.
    Switching { until: u64 },
    /// The loaded context has had its turn since this instant.
    Since(u64),
}

/// The head of a lane that is at the compute engine: a kernel, or the record of an event.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Running {
    /// Index of its lane.
    pub lane: usize,
    pub name: u32,
    /// Work left, in units of [`work_of`].
    pub left: u64,
    pub demand: u32,
    /// The event that is recorded here; `None` for a kernel.
    pub event: Option<u32>,
    /// The number of the launch of a collective; 0: it is not a collective.
    pub turn: u64,
    pub group: usize,
    pub has_arrived: bool,
}

/// A kernel's work: nanoseconds at full speed, and fractions of them, because kernels that share
/// the engine do less than a nanosecond's work in a nanosecond.
pub(super) fn work_of(ns: u64) -> u64 {
    ns << FRACTION
}

const FRACTION: u32 = 14;

/// The speed of the kernels on an engine: the sum of their demands, at least [`FULL`].
#[derive(Clone, Copy)]
pub(super) struct Rate(u64);

/// The rate of kernels that share the engine: full speed while their grids fit together, otherwise
/// the same fraction of it for all.
pub(super) fn rate_of(heads: &[Running]) -> Rate {
    let demand = heads.iter().map(|head| u64::from(head.demand)).sum::<u64>();
    Rate(demand.max(u64::from(FULL)))
}

/// The fewest nanoseconds that a kernel on an engine still needs, from the instant at which `left`
/// of all of them is valid. Kernels that arrive later only make it slower, and the present ones
/// slow it down until they end.
pub(super) fn least_time(heads: &[Running], head: &Running) -> u64 {
    // All have the same speed, so another kernel adds the shorter of the two remainders.
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

/// A copy engine: one copy at a time, first come, first served.
#[derive(Clone, Debug, Default)]
pub(super) struct CopyEngine {
    /// The lanes whose next item is a copy; the copy of the first one runs.
    queue: VecDeque<usize>,
    /// When the running copy is done.
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

    /// Removes the copy that is done.
    pub fn finished(&mut self, now: u64) -> Option<usize> {
        if self.until > now { None } else { self.queue.pop_front() }
    }

    /// When the copy of a lane is done, if it runs now.
    pub fn ends(&self, lane: usize) -> Option<u64> {
        (self.first() == Some(lane)).then_some(self.until)
    }

    pub fn first(&self) -> Option<usize> {
        self.queue.front().copied()
    }

    pub fn start(&mut self, now: u64, ns: u64) {
        self.until = now + ns;
    }

    /// Removes lanes; `true` when the running copy's lane was among them.
    pub fn forget(&mut self, is_gone: impl Fn(&usize) -> bool) -> bool {
        let was_running = self.queue.front().is_some_and(&is_gone);
        self.queue.retain(|lane| !is_gone(lane));
        was_running
    }
}
