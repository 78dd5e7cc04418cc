//! Launches on a ticket, made through the wrappers' own assembly and into a [`driver`] of ours. Whether one
//! rode on the ticket or came by the gate is told by what the ticket has left; here the gate lets
//! everything pass.

mod driver;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use self::driver::{By, Kind, launch, launch_nothing};
use super::Price;
use crate::compute::batch::{Kinds, learn, line_of};
use crate::compute::door;
use crate::compute::shape::Launch;
use crate::compute::ticket;

const STREAM: usize = 0x7f00_1234_5678_9ab0;
const AMPLE: u64 = 1_000_000_000;

/// What this thread's launches have to pass: an own table of kinds, and its ticket. One at a time.
struct Gate {
    kinds: Kinds,
    _alone: MutexGuard<'static, ()>,
}

impl Gate {
    fn new() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        static SHUT: AtomicU32 = AtomicU32::new(1);
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        door::LIMITS.store((&raw const SHUT).cast_mut(), Ordering::Release);
        driver::install();
        Self { kinds: Kinds::default(), _alone: alone }
    }

    /// Comes by the gate with a kind, as a launch does that finds no ticket.
    fn look_up(&mut self, (function, grid): Kind) -> Option<u64> {
        self.kinds.cost(&Launch { function, grid, stream: STREAM, is_threads_own: false })
    }

    fn issue(&self, ns: u64, launches: u32) {
        ticket::mine().issue(self.kinds.table(), STREAM, ns, launches);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        ticket::mine().give_up();
    }
}

/// Launches, and says what that took off the ticket: nothing where it came by the gate. The driver always
/// gets it.
fn ride_by(by: By, kind: Kind, stream: usize) -> Option<u64> {
    let before = ticket::mine().used();
    assert_eq!(launch(by, kind, stream), [(stream, kind)]);
    let after = ticket::mine().used();
    (after.launches() > before.launches()).then(|| {
        assert_eq!(after.launches() - before.launches(), 1);
        u64::from(after.ns() - before.ns())
    })
}

fn ride(kind: Kind) -> Option<u64> {
    ride_by(By::Arguments, kind, STREAM)
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
fn a_step_of_many_kernels_rides_on_one_ticket_and_is_billed_what_each_costs() {
    let mut gate = Gate::new();
    let kinds: BTreeMap<Kind, u64> = (0..200)
        .map(|i| {
            let of = i / 2;
            let grid = [i % 2 + 1, of % 7 + 1, of % 3 + 1];
            ((function(1, of as usize), grid), u64::from(i) + 1)
        })
        .collect();
    for (kind, ns) in &kinds {
        assert_eq!(gate.look_up(known(*kind, *ns)), Some(*ns));
    }
    gate.issue(AMPLE, 1000);
    for by in [By::Arguments, By::Config] {
        let taken = kinds.iter().filter_map(|(kind, ns)| Some((ride_by(by, *kind, STREAM)?, *ns)));
        let taken: Vec<(u64, u64)> = taken.collect();
        assert!(taken.iter().all(|(taken, ns)| taken == ns), "{taken:?}");
        // Where three want one line, one has to go.
        assert!(taken.len() >= 190);
    }
}

#[test]
fn whatever_differs_comes_by_the_gate() {
    let mut gate = Gate::new();
    let (kernel, [x, y, z]) = known((function(2, 0), [5, 6, 7]), 100);
    assert_eq!(gate.look_up((kernel, [x, y, z])), Some(100));
    gate.issue(AMPLE, 1000);
    for by in [By::Arguments, By::Config] {
        assert_eq!(ride_by(by, (kernel, [x, y, z]), STREAM), Some(100));
        for stream in [0, STREAM + 1, STREAM + (1 << 32)] {
            assert_eq!(ride_by(by, (kernel, [x, y, z]), stream), None);
        }
        for grid in [[x + 1, y, z], [x, y + 1, z], [x, y, z + 1], [y, x, z], [0; 3]] {
            assert_eq!(ride_by(by, (kernel, grid), STREAM), None);
        }
        for other in [0, kernel + 16, kernel + (1 << 32)] {
            assert_eq!(ride_by(by, (other, [x, y, z]), STREAM), None);
        }
    }
    assert_eq!(ride((kernel, [x, y, z])), Some(100));
}

#[test]
fn no_configuration_at_all_is_the_driver_s_to_refuse() {
    let gate = Gate::new();
    gate.issue(AMPLE, 1000);
    assert_eq!(launch_nothing(), [(0, (0, [0; 3]))]);
    assert_eq!(ticket::mine().used(), Price::default());
}

#[test]
fn not_one_launch_and_not_one_nanosecond_more_than_was_granted() {
    let mut gate = Gate::new();
    let dear = known((function(3, 0), [1, 1, 1]), 70);
    let cheap = known((function(3, 1), [1, 1, 1]), 30);
    let (_, _) = (gate.look_up(dear), gate.look_up(cheap));
    gate.issue(170, 1000);
    assert_eq!([ride(dear), ride(dear)], [Some(70), Some(70)]);
    assert_eq!([ride(dear), ride(cheap)], [None, Some(30)]);
    assert_eq!([ride(cheap), ride(dear)], [None, None]);
    gate.issue(AMPLE, 3);
    assert_eq!([ride(dear), ride(cheap)], [Some(70), Some(30)]);
    assert_eq!([ride(dear), ride(cheap)], [Some(70), None]);
    assert_eq!(ticket::mine().used().launches(), 3);
    gate.issue(0, 1000);
    assert_eq!(ride(cheap), None);
}

#[test]
fn a_revoked_ticket_lets_nothing_pass_and_tells_what_was_used() {
    let mut gate = Gate::new();
    let kind = known((function(4, 0), [9, 1, 1]), 11);
    let _ = gate.look_up(kind);
    for revoke in [ticket::revoke_all, || ticket::mine().forget_place()] {
        gate.issue(AMPLE, 1000);
        assert_eq!([ride(kind), ride(kind)], [Some(11), Some(11)]);
        revoke();
        assert_eq!(ride(kind), None);
        let used = ticket::mine().take_back();
        assert_eq!((used.launches(), used.ns()), (2, 22));
        assert_eq!(ticket::mine().take_back(), Price::default());
    }
}

#[test]
fn a_kernel_that_was_never_measured_never_rides() {
    let mut gate = Gate::new();
    let strange: Kind = (function(5, 0), [1, 1, 1]);
    let long = known((function(5, 1), [1, 1, 1]), 50_000_000);
    assert_eq!((gate.look_up(strange), gate.look_up(long)), (None, Some(50_000_000)));
    gate.issue(hami_share::limiter::BATCH_NS, 1000);
    assert_eq!((ride(strange), ride(long)), (None, None));
    // What was measured meanwhile counts from the next visit on.
    known(strange, 123);
    assert_eq!(gate.look_up(long), Some(50_000_000));
    gate.issue(AMPLE, 1000);
    assert_eq!(ride(strange), Some(123));
}

#[test]
fn what_is_learned_anew_replaces_what_was_thought() {
    let mut gate = Gate::new();
    let kind = known((function(6, 0), [1, 2, 3]), 1_000);
    assert_eq!(gate.look_up(kind), Some(1_000));
    known(kind, 3_000);
    assert_eq!(gate.look_up(kind), Some(2_000));
    gate.issue(AMPLE, 10);
    assert_eq!(ride(kind), Some(2_000));
}

#[test]
fn kinds_that_want_the_same_line_push_each_other_out_and_are_never_taken_for_one_another() {
    let mut gate = Gate::new();
    let mut lines: BTreeMap<u16, Vec<Kind>> = BTreeMap::new();
    for number in 0..20_000 {
        let kind = (function(7, number), [1, 1, 1]);
        lines.entry(line_of(kind.0, kind.1)).or_default().push(kind);
    }
    let colliding = lines.into_values().find(|line| line.len() >= 5).unwrap_or_default();
    assert!(colliding.len() >= 5);
    for (index, kind) in colliding.iter().take(5).enumerate() {
        let ns = 10 + index as u64;
        assert_eq!(gate.look_up(known(*kind, ns)), Some(ns));
        gate.issue(AMPLE, 1000);
        assert_eq!(ride(*kind), Some(ns), "who came last is there");
    }
    let rode = colliding.iter().filter(|kind| ride(**kind).is_some()).count();
    assert_eq!(rode, 2);
}

#[test]
fn others_are_told_from_the_batch_s_own_kind() {
    let mut gate = Gate::new();
    let own = known((function(8, 0), [1, 1, 1]), 5);
    let other = known((function(8, 1), [1, 1, 1]), 5);
    let (_, _) = (gate.look_up(other), gate.look_up(own));
    gate.kinds.set_own();
    gate.issue(AMPLE, 300);
    for _ in 0..256 {
        let _ = ride(own);
    }
    assert!(!ticket::mine().used().has_others());
    let _ = ride(other);
    assert!(ticket::mine().used().has_others());
    // Now it is the other that is the batch's own.
    let _ = gate.look_up(other);
    gate.kinds.set_own();
    gate.issue(AMPLE, 300);
    let _ = ride(other);
    assert!(!ticket::mine().used().has_others());
    let _ = ride(own);
    let used = ticket::mine().used();
    assert!(used.has_others());
    assert_eq!((used.launches(), used.ns()), (2, 10));
}
