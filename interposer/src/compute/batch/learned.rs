//! What was measured of kernels, for all threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use hami_share::limiter::Costs;

use super::lock;

/// What is assumed of a kernel that was never measured.
const UNKNOWN_NS: u64 = 1_000_000;

static COSTS: Mutex<Option<Costs>> = Mutex::new(None);
/// How often a cost has changed.
static CHANGES: AtomicU32 = AtomicU32::new(0);

/// Remembers what the launches of a kernel took each.
pub(in crate::compute) fn learn(key: u64, each: u64, launches: u32) {
    let is_news = with_costs(|costs| {
        let before = costs.cost(key);
        costs.learn(key, each, launches);
        costs.cost(key) != before
    });
    if is_news {
        CHANGES.fetch_add(1, Ordering::Release);
    }
}

pub(in crate::compute) fn cost_of(key: u64) -> Option<u64> {
    with_costs(|costs| costs.cost(key))
}

/// What a kernel is predicted to take.
pub(in crate::compute) fn expectation(key: u64) -> u64 {
    cost_of(key).unwrap_or(UNKNOWN_NS)
}

/// A number that is another one whenever a cost has changed.
pub(super) fn changes() -> u32 {
    CHANGES.load(Ordering::Acquire)
}

/// Asks for several costs at once.
pub(super) fn with_costs<T>(body: impl FnOnce(&mut Costs) -> T) -> T {
    body(lock(&COSTS).get_or_insert_with(Costs::default))
}
