//! Launches on a budget. They go through the wrappers' own assembly to a [`driver`] of this test.
//! The rest of the budget shows whether a launch used the budget or needed admission. Admission
//! lets every launch pass here.

mod driver;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use self::driver::{By, Kind, launch, launch_nothing};
use vgpu_compute::budget::kinds::{Kinds, line_of};
use vgpu_compute::budget::{self, Estimate, learn};
use vgpu_compute::fast_path;
use vgpu_compute::launch::Launch;

const STREAM: usize = 0x7f00_1234_5678_9ab0;
const AMPLE: u64 = 1_000_000_000;

/// The table of kinds and the budget that the launches of this thread use. One test at a time.
struct Launches {
    kinds: Kinds,
    _alone: MutexGuard<'static, ()>,
}

impl Launches {
    fn new() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        static ADMIT_ALL: AtomicU32 = AtomicU32::new(1);
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        fast_path::LIMITS.store((&raw const ADMIT_ALL).cast_mut(), Ordering::Release);
        driver::install();
        Self { kinds: Kinds::default(), _alone: alone }
    }

    /// Looks a kind up, as admission does.
    fn look_up(&mut self, (function, grid): Kind) -> Option<u64> {
        self.kinds.cost(&Launch { function, grid, stream: STREAM })
    }

    fn grant(&self, ns: u64, launches: u32) {
        budget::of_thread().grant(self.kinds.table(), STREAM, ns, launches);
    }
}

impl Drop for Launches {
    fn drop(&mut self) {
        budget::of_thread().retire();
    }
}

/// Makes a launch. Returns the time that it took from the budget; `None` if the launch needed
/// admission. The driver always gets the launch.
fn take_by(by: By, kind: Kind, stream: usize) -> Option<u64> {
    let before = budget::of_thread().used();
    assert_eq!(launch(by, kind, stream), [(stream, kind)]);
    let after = budget::of_thread().used();
    (after.launches() > before.launches()).then(|| {
        assert_eq!(after.launches() - before.launches(), 1);
        u64::from(after.ns() - before.ns())
    })
}

fn take(kind: Kind) -> Option<u64> {
    take_by(By::Arguments, kind, STREAM)
}

fn known((function, grid): Kind, ns: u64) -> Kind {
    learn(Launch::key_of(function, grid), ns, 1);
    (function, grid)
}

/// Numbers that look like a driver's handles, a different range for each test.
fn function(range: usize, number: usize) -> usize {
    0x5500_0000_0000 + range * 0x1000_0000 + number * 0x240
}

#[test]
fn a_step_of_many_kernels_uses_one_budget_and_each_takes_its_cost_off_it() {
    let mut launches = Launches::new();
    let kinds: BTreeMap<Kind, u64> = (0..200)
        .map(|i| {
            let of = i / 2;
            let grid = [i % 2 + 1, of % 7 + 1, of % 3 + 1];
            ((function(1, of as usize), grid), u64::from(i) + 1)
        })
        .collect();
    for (kind, ns) in &kinds {
        assert_eq!(launches.look_up(known(*kind, *ns)), Some(*ns));
    }
    launches.grant(AMPLE, 1000);
    for by in [By::Arguments, By::Config] {
        let taken = kinds.iter().filter_map(|(kind, ns)| Some((take_by(by, *kind, STREAM)?, *ns)));
        let taken: Vec<(u64, u64)> = taken.collect();
        assert!(taken.iter().all(|(taken, ns)| taken == ns), "{taken:?}");
        // If three kinds need one line, one of them is replaced.
        assert!(taken.len() >= 190);
    }
}

#[test]
fn a_launch_that_differs_in_anything_needs_admission() {
    let mut launches = Launches::new();
    let (kernel, [x, y, z]) = known((function(2, 0), [5, 6, 7]), 100);
    assert_eq!(launches.look_up((kernel, [x, y, z])), Some(100));
    launches.grant(AMPLE, 1000);
    for by in [By::Arguments, By::Config, By::ArgumentsOfThread, By::ConfigOfThread] {
        assert_eq!(take_by(by, (kernel, [x, y, z]), STREAM), Some(100));
        for stream in [0, STREAM + 1, STREAM + (1 << 32)] {
            assert_eq!(take_by(by, (kernel, [x, y, z]), stream), None);
        }
        for grid in [[x + 1, y, z], [x, y + 1, z], [x, y, z + 1], [y, x, z], [0; 3]] {
            assert_eq!(take_by(by, (kernel, grid), STREAM), None);
        }
        for other in [0, kernel + 16, kernel + (1 << 32)] {
            assert_eq!(take_by(by, (other, [x, y, z]), STREAM), None);
        }
    }
    assert_eq!(take((kernel, [x, y, z])), Some(100));
}

#[test]
fn null_is_the_stream_that_the_function_says() {
    let mut launches = Launches::new();
    let kind = known((function(9, 0), [1, 1, 1]), 100);
    let _ = launches.look_up(kind);
    let own = Launch::stream(0, true);
    assert_eq!((Launch::stream(2, false), Launch::stream(1, true)), (own, 0));
    for (granted, plain, of_thread) in [(0, Some(100), None), (own, None, Some(100))] {
        budget::of_thread().grant(launches.kinds.table(), granted, AMPLE, 1000);
        for by in [By::Arguments, By::Config] {
            assert_eq!(take_by(by, kind, 0), plain);
        }
        for by in [By::ArgumentsOfThread, By::ConfigOfThread] {
            assert_eq!(take_by(by, kind, 0), of_thread);
        }
    }
    // By the other name of each stream.
    assert_eq!(take_by(By::Arguments, kind, 2), Some(100));
    budget::of_thread().grant(launches.kinds.table(), 0, AMPLE, 1000);
    assert_eq!(take_by(By::ArgumentsOfThread, kind, 1), Some(100));
}

#[test]
fn the_driver_refuses_a_launch_without_a_configuration() {
    let launches = Launches::new();
    launches.grant(AMPLE, 1000);
    assert_eq!(launch_nothing(), [(0, (0, [0; 3]))]);
    assert_eq!(budget::of_thread().used(), Estimate::default());
}

#[test]
fn no_launch_and_no_nanosecond_more_than_was_granted() {
    let mut launches = Launches::new();
    let dear = known((function(3, 0), [1, 1, 1]), 70);
    let cheap = known((function(3, 1), [1, 1, 1]), 30);
    let (_, _) = (launches.look_up(dear), launches.look_up(cheap));
    launches.grant(170, 1000);
    assert_eq!([take(dear), take(dear)], [Some(70), Some(70)]);
    assert_eq!([take(dear), take(cheap)], [None, Some(30)]);
    assert_eq!([take(cheap), take(dear)], [None, None]);
    launches.grant(AMPLE, 3);
    assert_eq!([take(dear), take(cheap)], [Some(70), Some(30)]);
    assert_eq!([take(dear), take(cheap)], [Some(70), None]);
    assert_eq!(budget::of_thread().used().launches(), 3);
    launches.grant(0, 1000);
    assert_eq!(take(cheap), None);
}

#[test]
fn a_revoked_budget_lets_nothing_pass_and_tells_what_was_used() {
    let mut launches = Launches::new();
    let kind = known((function(4, 0), [9, 1, 1]), 11);
    let _ = launches.look_up(kind);
    for revoke in [budget::revoke_all, || budget::of_thread().forget_current()] {
        launches.grant(AMPLE, 1000);
        assert_eq!([take(kind), take(kind)], [Some(11), Some(11)]);
        revoke();
        assert_eq!(take(kind), None);
        let used = budget::of_thread().withdraw();
        assert_eq!((used.launches(), used.ns()), (2, 22));
        assert_eq!(budget::of_thread().withdraw(), Estimate::default());
    }
}

#[test]
fn a_kernel_that_was_never_measured_never_uses_the_budget() {
    let mut launches = Launches::new();
    let strange: Kind = (function(5, 0), [1, 1, 1]);
    let long = known((function(5, 1), [1, 1, 1]), 50_000_000);
    assert_eq!((launches.look_up(strange), launches.look_up(long)), (None, Some(50_000_000)));
    launches.grant(hami_share::limiter::BATCH_NS, 1000);
    assert_eq!((take(strange), take(long)), (None, None));
    // A measurement counts from the next admission on.
    known(strange, 123);
    assert_eq!(launches.look_up(long), Some(50_000_000));
    launches.grant(AMPLE, 1000);
    assert_eq!(take(strange), Some(123));
}

#[test]
fn a_new_cost_replaces_the_known_one() {
    let mut launches = Launches::new();
    let kind = known((function(6, 0), [1, 2, 3]), 1_000);
    assert_eq!(launches.look_up(kind), Some(1_000));
    known(kind, 3_000);
    assert_eq!(launches.look_up(kind), Some(2_000));
    launches.grant(AMPLE, 10);
    assert_eq!(take(kind), Some(2_000));
}

#[test]
fn kinds_of_the_same_line_replace_and_are_never_mistaken_for_each_other() {
    let mut launches = Launches::new();
    let mut lines: BTreeMap<u16, Vec<Kind>> = BTreeMap::new();
    for number in 0..20_000 {
        let kind = (function(7, number), [1, 1, 1]);
        lines.entry(line_of(kind.0, kind.1)).or_default().push(kind);
    }
    let colliding = lines.into_values().find(|line| line.len() >= 5).unwrap_or_default();
    assert!(colliding.len() >= 5);
    for (index, kind) in colliding.iter().take(5).enumerate() {
        let ns = 10 + index as u64;
        assert_eq!(launches.look_up(known(*kind, ns)), Some(ns));
        launches.grant(AMPLE, 1000);
        assert_eq!(take(*kind), Some(ns), "the last one is in the table");
    }
    let took = colliding.iter().filter(|kind| take(**kind).is_some()).count();
    assert_eq!(took, 2);
}

#[test]
fn other_kinds_are_counted_apart_from_the_batch_s_own() {
    let mut launches = Launches::new();
    let own = known((function(8, 0), [1, 1, 1]), 5);
    let other = known((function(8, 1), [1, 1, 1]), 5);
    let (_, _) = (launches.look_up(other), launches.look_up(own));
    launches.kinds.set_own();
    launches.grant(AMPLE, 300);
    for _ in 0..256 {
        let _ = take(own);
    }
    assert!(!budget::of_thread().used().has_others());
    let _ = take(other);
    assert!(budget::of_thread().used().has_others());
    // Now it is the other that is the batch's own.
    let _ = launches.look_up(other);
    launches.kinds.set_own();
    launches.grant(AMPLE, 300);
    let _ = take(other);
    assert!(!budget::of_thread().used().has_others());
    let _ = take(own);
    let used = budget::of_thread().used();
    assert!(used.has_others());
    assert_eq!((used.launches(), used.ns()), (2, 10));
}
