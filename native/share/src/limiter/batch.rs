//! Batches of launches: their size, and their bill.

/// The engine time that a batch takes at most. It is short enough that two batches in flight end
/// soon, and long enough that two events per batch cost a thousandth.
pub const BATCH_NS: u64 = 2_000_000;

/// The most launches in a batch, so that a wrong prediction for very short kernels has a bound.
pub const LARGEST_BATCH: u32 = 512;

/// The longest time that a driver takes for a launch while the engine is idle. A call that takes
/// longer waits for the engine: its queue is full, or the driver is told to wait for each launch.
const CALL_NS: u64 = 10_000;

/// The number of launches of a kernel that takes `cost` ns in a batch of `batch_ns`; 1 while the
/// cost is unknown.
pub fn batch_size(cost: Option<u64>, batch_ns: u64) -> u32 {
    match cost {
        None => 1,
        Some(cost) => (batch_ns / cost.max(1)).clamp(1, u64::from(LARGEST_BATCH)) as u32,
    }
}

/// The engine time of a batch, in ns.
///
/// The batch took `span` from its first event to its last. The engine may have been idle in
/// between, but for at most [`idle`], so the result lies between `span - idle` and `span`. Within
/// these bounds the `predicted` time of the kernels decides; without a prediction, all of the span
/// counts.
pub fn bill(span: u64, window: u64, predicted: Option<u64>, launches: u32) -> u64 {
    let Some(predicted) = predicted else { return span };
    predicted.clamp(span.saturating_sub(idle(window, predicted, launches)), span)
}

/// The time in which the host made the launches of a batch: from its first event to its second,
/// which is `elapsed`, except what the driver's call for the last launch took beyond [`CALL_NS`].
pub fn window(elapsed: u64, in_call: u64) -> u64 {
    elapsed.saturating_sub(in_call.saturating_sub(CALL_NS))
}

/// The longest time for which the engine may have been idle in a batch, in ns. It can only be idle
/// while the host still launches, which takes `window`; and in that time it does the `predicted`
/// work of all launches except the last.
pub fn idle(window: u64, predicted: u64, launches: u32) -> u64 {
    let last = predicted / u64::from(launches.max(1));
    window.saturating_sub(predicted - last)
}

/// How late work may end after its turn: about the time until a process has seen its turn.
/// Otherwise, if the length of a turn is a multiple of the kernel's, the last kernel would not fit.
const SLACK_NS: u64 = 300_000;

/// The longest turn that a single launch gets. A kernel that takes longer goes on after its turn.
pub const LONGEST_TURN_NS: u64 = 500_000_000;

/// Whether a launch that is predicted to take so long ends in a turn that ends at `until`, behind
/// the work in flight.
pub fn fits(now: u64, in_flight: u64, predicted: u64, until: u64) -> bool {
    let ns = in_flight.saturating_add(predicted.min(LONGEST_TURN_NS));
    now.saturating_add(ns) <= until.saturating_add(SLACK_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_takes_two_milliseconds_or_one_launch() {
        assert_eq!(batch_size(None, BATCH_NS), 1);
        assert_eq!(batch_size(Some(50_000_000), BATCH_NS), 1);
        assert_eq!(batch_size(Some(500_000), BATCH_NS), 4);
        assert_eq!(batch_size(Some(20_000), BATCH_NS), 100);
        assert_eq!(batch_size(Some(1), BATCH_NS), 512);
        assert_eq!(batch_size(Some(0), BATCH_NS), 512);
        assert_eq!(batch_size(Some(20_000), 500_000), 25);
    }

    #[test]
    fn work_fits_into_a_turn_if_it_ends_hardly_later() {
        assert!(fits(1_000_000, 0, 19_000_000, 20_000_000));
        assert!(fits(1_000_000, 9_300_000, 10_000_000, 20_000_000));
        assert!(!fits(1_000_000, 9_300_001, 10_000_000, 20_000_000));
        assert!(!fits(100, u64::MAX, 1, u64::MAX - SLACK_NS - 1));
        assert!(fits(0, 0, u64::MAX, LONGEST_TURN_NS));
    }

    #[test]
    fn a_call_that_waits_for_the_engine_is_no_idle_time() {
        assert_eq!(window(30_000, 8_000), 30_000);
        assert_eq!(bill(30_000, window(30_000, 8_000), Some(20_000), 1), 20_000);
        // The driver waits for each launch: what it was predicted to take does not count.
        assert_eq!(window(1_004_000, 1_002_000), 12_000);
        assert_eq!(bill(1_003_000, window(1_004_000, 1_002_000), Some(1_000), 1), 991_000);
    }

    #[test]
    fn gaps_lie_only_in_the_window_of_the_launches() {
        // Launched at once: the engine cannot have been idle, whatever was predicted.
        assert_eq!(bill(2_000, 0, Some(10), 10), 2_000);
        // Launched faster than the engine works: neither, and a low prediction does not last.
        assert_eq!(bill(1_500, 140, Some(1_365), 30), 1_500);
        // Launched slowly: the prediction counts as far as it is possible.
        assert_eq!(bill(1_600, 1_500, Some(1_000), 10), 1_000);
        assert_eq!(bill(2_000, 1_500, Some(100), 10), 590);
        assert_eq!(bill(2_000, 1_500, Some(9_000), 10), 2_000);
        // A single launch is billed its span, less the time that launching it took.
        assert_eq!(bill(2_000, 100, Some(1_000), 1), 1_900);
        // A window longer than the span, and no prediction.
        assert_eq!(bill(2_000, 5_000, Some(300), 10), 300);
        assert_eq!(bill(2_000, 5_000, None, 10), 2_000);
    }
}
