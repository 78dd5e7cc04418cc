//! The measured engine time of each kernel, for all threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use hami_share::limiter::Costs;
use vgpu_driver::guard::lock;

/// The estimate for a kernel that was never measured.
const UNKNOWN_NS: u64 = 1_000_000;

static COSTS: Mutex<Option<Costs>> = Mutex::new(None);
/// The number of times that a cost has changed.
static CHANGES: AtomicU32 = AtomicU32::new(0);

/// Records that each of some launches of a kernel took the time `each`, in nanoseconds.
pub fn learn(key: u64, each: u64, launches: u32) {
    let has_changed = with_costs(|costs| {
        let before = costs.cost(key);
        costs.learn(key, each, launches);
        costs.cost(key) != before
    });
    if has_changed {
        CHANGES.fetch_add(1, Ordering::Release);
    }
}

/// The measured cost of a launch of a kernel; `None` if it was never measured.
pub(crate) fn cost_of(key: u64) -> Option<u64> {
    with_costs(|costs| costs.cost(key))
}

/// The predicted cost of a launch of a kernel.
pub(crate) fn estimate_of(key: u64) -> u64 {
    cost_of(key).unwrap_or(UNKNOWN_NS)
}

/// A number that changes whenever a cost changes.
pub(super) fn changes() -> u32 {
    CHANGES.load(Ordering::Acquire)
}

/// Runs `body` with all costs.
pub(super) fn with_costs<T>(body: impl FnOnce(&mut Costs) -> T) -> T {
    body(lock(&COSTS).get_or_insert_with(Costs::default))
}
