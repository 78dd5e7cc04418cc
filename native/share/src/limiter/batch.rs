//! Batches of launches: their size, and their bill.

/// The engine time that a batch should take. It is short enough that two batches in flight end
/// soon, and long enough that two events per batch cost a thousandth.
pub const BATCH_NS: u64 = 2_000_000;

/// The most launches in a batch, so that a wrong prediction for very short kernels has a bound.
pub const LARGEST_BATCH: u32 = 512;

/// The number of launches of a kernel that takes `cost` ns in one batch; 1 while the cost is
/// unknown.
pub fn batch_size(cost: Option<u64>) -> u32 {
    match cost {
        None => 1,
        Some(cost) => (BATCH_NS / cost.max(1)).clamp(1, u64::from(LARGEST_BATCH)) as u32,
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

/// The longest time for which the engine may have been idle in a batch, in ns. It can only be idle
/// while the host still launches, which takes `window`; and in that time it does the `predicted`
/// work of all launches except the last.
pub fn idle(window: u64, predicted: u64, launches: u32) -> u64 {
    let last = predicted / u64::from(launches.max(1));
    window.saturating_sub(predicted - last)
}

/// Whether a holder may launch more in a turn that ends at `until`. It may not if its work in
/// flight is predicted to take until then. Otherwise every turn would be longer by two batches, and
/// with kernels of 50 ms that is 100 ms.
pub fn fits(now: u64, in_flight_ns: u64, until: u64) -> bool {
    now.saturating_add(in_flight_ns) < until
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_takes_two_milliseconds_or_one_launch() {
        assert_eq!(batch_size(None), 1);
        assert_eq!(batch_size(Some(50_000_000)), 1);
        assert_eq!(batch_size(Some(500_000)), 4);
        assert_eq!(batch_size(Some(20_000)), 100);
        assert_eq!(batch_size(Some(1)), 512);
        assert_eq!(batch_size(Some(0)), 512);
    }

    #[test]
    fn a_turn_is_not_filled_twice() {
        assert!(fits(100, 0, 101));
        assert!(!fits(100, 0, 100));
        assert!(!fits(100, 50, 150));
        assert!(!fits(100, u64::MAX, 150));
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
