//! Tests of single rules, with exact times. tests/lease tests how the rules work together.

mod garbage;
mod set;
mod shared;

use super::*;
use crate::{Mode, Priority, Regime, timing};

const MS: u64 = 1_000_000;
const T: u64 = 1_000_000 * MS;

/// The files of some slices on card 7, each with one process, and a coordinator for them.
struct Desk {
    leases: Leases,
    view: View,
    now: u64,
    wake_at: Option<u64>,
}

/// A published grant: slice, kind, holder and the length of the lease.
type Published = (u64, Kind, Holder, u64);

impl Desk {
    /// Slices with hard shares.
    fn new(shares: &[u32]) -> Self {
        let slices = shares.iter().enumerate().map(|(key, share)| {
            let regime = Regime { share: *share, ..Regime::default() };
            let processes = vec![ProcessView { slot: 4, ..ProcessView::default() }];
            let row = SliceCardView { card: 7, regime, processes, ..SliceCardView::default() };
            SliceView { key: key as u64, rows: vec![row], ..SliceView::default() }
        });
        let view = View { slices: slices.collect() };
        Self { leases: Leases::new(), view, now: T, wake_at: None }
    }

    fn row(&mut self, slice: usize) -> &mut SliceCardView {
        &mut self.view.slices[slice].rows[0]
    }

    fn process(&mut self, slice: usize) -> &mut ProcessView {
        &mut self.row(slice).processes[0]
    }

    /// The first process of a row reports, having seen the published grant. Its grant is filled in.
    fn reports_on(&mut self, slice: usize, row: usize, report: Report) {
        let now = self.now;
        let row = &mut self.view.slices[slice].rows[row];
        let process = &mut row.processes[0];
        process.report = Report { grant: row.published.number, ..report };
        process.active_at = now;
    }

    fn reports(&mut self, slice: usize, state: State) {
        self.reports_on(slice, 0, Report { state, ..Report::default() });
    }

    /// Nothing of the work in flight makes progress, and a launch waits.
    fn stalls(&mut self, slice: usize) {
        let report =
            Report { state: State::Running, is_stalled: true, needs_ns: 1, ..Report::default() };
        self.reports_on(slice, 0, report);
    }

    /// Steps every ms. All processes have a heartbeat, and have seen the published grants.
    fn steps_for(&mut self, ms: u64) -> Vec<Published> {
        let mut published = Vec::new();
        for _ in 0..ms {
            self.now += MS;
            let now = self.now;
            for row in self.view.slices.iter_mut().flat_map(|slice| &mut slice.rows) {
                for process in &mut row.processes {
                    process.active_at = if process.active_at > 0 { now } else { 0 };
                    process.report.grant = row.published.number;
                }
            }
            published.extend(self.step(0));
        }
        published
    }

    /// A step after `passed`. It returns the published grants.
    fn step(&mut self, passed: u64) -> Vec<Published> {
        self.now += passed;
        let mut published = Vec::new();
        loop {
            let decision = self.leases.step(self.now, &self.view);
            self.wake_at = decision.wake_at;
            published.extend(decision.grants.iter().map(|update| self.publish(update)));
            if self.wake_at != Some(self.now) {
                return published;
            }
        }
    }

    fn publish(&mut self, update: &GrantUpdate) -> Published {
        let now = self.now;
        let slice = self.view.slices.iter_mut().find(|slice| slice.key == update.slice).unwrap();
        let published = &mut slice.rows[update.row].published;
        assert_eq!(update.grant.number, published.number.wrapping_add(1));
        *published = update.grant;
        let Grant { kind, holder, until, .. } = update.grant;
        (update.slice, kind, holder, until.saturating_sub(now))
    }

    fn holds(&mut self, slice: usize) -> bool {
        self.row(slice).published.holder != Holder::None
    }

    fn balance(&self, slice: u64) -> i64 {
        self.leases.balance(slice, 0).unwrap()
    }
}

fn lease(slice: u64, ms: u64) -> Published {
    (slice, Kind::Lease, Holder::All, ms * MS)
}

fn none(slice: u64) -> Published {
    (slice, Kind::Lease, Holder::None, 0)
}

/// The process has the card alone, and its own bucket keeps its share.
fn alone(slice: u64) -> Published {
    (slice, Kind::Alone, Holder::Slot(4), 0)
}

/// All processes launch without a lease.
fn all(slice: u64) -> Published {
    (slice, Kind::Alone, Holder::All, 0)
}

fn own(slice: u64) -> Published {
    (slice, Kind::Own, Holder::All, 0)
}

/// Two slices that both wait; the first has the first lease since T, and works.
fn two(shares: [u32; 2]) -> Desk {
    let mut desk = Desk::new(&shares);
    desk.reports(0, State::Waiting);
    desk.reports(1, State::Waiting);
    assert_eq!(desk.step(0), [none(0), none(1), lease(0, 20)]);
    desk.reports(0, State::Running);
    desk.reports(1, State::Waiting);
    desk
}

/// Two slices, of which the second has a lease since T + 1 ms, and the first pauses.
fn paused(shares: [u32; 2]) -> Desk {
    let mut desk = two(shares);
    desk.reports(0, State::Idle);
    assert_eq!(desk.step(MS), [none(0), lease(1, 20)]);
    desk.reports(1, State::Running);
    desk
}

#[test]
fn a_slice_alone_has_the_card_until_another_one_starts() {
    let mut desk = Desk::new(&[30, 0]);
    desk.reports(0, State::Waiting);
    let decision = desk.leases.step(T, &desk.view);
    assert_eq!(decision.regulated, [(0, true), (1, true)]);
    let grants: Vec<_> = decision.grants.iter().map(|update| desk.publish(update)).collect();
    assert_eq!(grants, [none(1), alone(0)]);
    desk.reports(0, State::Running);
    assert_eq!(desk.step(MS), []);
    // The other gets it when the running work has ended.
    desk.reports(1, State::Waiting);
    assert_eq!(desk.step(MS), [none(0)]);
    desk.reports(0, State::Waiting);
    assert_eq!(desk.step(MS), [lease(1, 20)]);
}

#[test]
fn a_soft_share_alone_is_unlimited() {
    let mut desk = Desk::new(&[30, 0]);
    desk.row(0).regime.mode = Mode::Soft;
    desk.reports(0, State::Waiting);
    assert_eq!(desk.step(0), [none(1), all(0)]);
    assert_eq!(desk.row(0).published.depth, timing::DEPTH, "another may start");
    desk.row(1).processes.clear();
    desk.step(MS);
    assert_eq!(desk.row(0).published.depth, timing::ALONE_DEPTH);
}

#[test]
fn beside_an_idle_slice_with_a_share_the_work_in_flight_is_limited() {
    let mut desk = Desk::new(&[30, 0]);
    desk.reports(1, State::Running);
    assert_eq!(desk.step(0), [all(1)]);
    assert_eq!(desk.row(1).published.depth, timing::METERED);
    assert_eq!(desk.wake_at, None);
}

#[test]
fn a_pause_changes_nothing_and_a_long_one_ends_regulation() {
    let mut desk = Desk::new(&[30, 0]);
    desk.reports(0, State::Running);
    desk.step(0);
    desk.reports(0, State::Idle);
    assert_eq!(desk.step(99 * MS), []);
    assert_eq!(desk.step(2 * MS), [own(0), all(1)]);
    assert_eq!(desk.wake_at, None);
}

#[test]
fn without_a_share_nothing_is_regulated() {
    let mut desk = Desk::new(&[0, 100]);
    desk.reports(0, State::Running);
    desk.reports(1, State::Waiting);
    let decision = desk.leases.step(T, &desk.view);
    assert_eq!((decision.regulated, decision.wake_at), (vec![(0, false), (1, false)], None));
    assert!(decision.grants.is_empty());
}

#[test]
fn the_next_lease_waits_for_the_end_of_running_work() {
    let mut desk = two([50, 50]);
    assert_eq!(desk.steps_for(20), [none(0)]);
    assert_eq!(desk.steps_for(1_000), []);
    desk.reports(0, State::Waiting);
    assert_eq!(desk.step(0), [lease(1, 20)]);
}

#[test]
fn a_lease_that_is_given_up_goes_to_the_next_at_once_and_costs_a_minimum() {
    let mut desk = two([50, 50]);
    desk.reports(0, State::Idle);
    assert_eq!(desk.step(MS / 10), [none(0), lease(1, 20)]);
    assert_eq!(desk.balance(0), MS as i64 / 20 - MS as i64);
}

#[test]
fn a_revoked_card_is_read_once_more_before_it_is_granted() {
    let mut desk = two([50, 50]);
    desk.reports(0, State::Idle);
    desk.now += MS;
    let decision = desk.leases.step(desk.now, &desk.view);
    let grants: Vec<_> = decision.grants.iter().map(|update| desk.publish(update)).collect();
    assert_eq!((grants, decision.wake_at), (vec![none(0)], Some(desk.now)));
    // It has made a launch before it saw the revocation. The other waits for this launch.
    desk.process(0).report.state = State::Running;
    assert_eq!(desk.step(0), []);
    desk.reports(0, State::Waiting);
    assert_eq!(desk.step(MS), [lease(1, 20)]);
}

#[test]
fn a_lease_is_prolonged_for_a_holder_that_is_also_next() {
    let mut desk = two([90, 10]);
    desk.reports_on(0, 0, Report { state: State::Running, needs_ns: 1, ..Report::default() });
    assert_eq!(desk.steps_for(20), [none(0)], "the other has had nothing");
    desk.reports(0, State::Waiting);
    desk.step(0);
    desk.reports(1, State::Waiting);
    assert_eq!(desk.steps_for(20), [none(1), lease(0, 20)]);
    assert_eq!(desk.steps_for(18), []);
    assert_eq!(desk.steps_for(1), [lease(0, 20)]);
}

#[test]
fn slices_that_always_want_more_never_cut_each_other() {
    for shares in [[50, 50], [90, 10], [10, 90]] {
        assert_eq!(two(shares).steps_for(18), [], "{shares:?}");
    }
}

#[test]
fn a_slice_that_returns_from_a_pause_ends_the_lease_of_one_that_has_had_more() {
    let mut desk = paused([50, 50]);
    desk.steps_for(9);
    desk.reports(0, State::Waiting);
    assert_eq!(desk.steps_for(1), [none(1)]);
    desk.reports(1, State::Waiting);
    assert_eq!(desk.step(0), [lease(0, 20)]);
}

#[test]
fn a_slice_that_returns_from_a_pause_does_not_end_the_lease_of_one_that_has_had_less() {
    let mut desk = two([50, 50]);
    desk.steps_for(40);
    desk.reports(0, State::Idle);
    assert_eq!(desk.steps_for(1), [lease(1, 20)]);
    desk.reports(0, State::Waiting);
    assert_eq!(desk.steps_for(9), []);
}

#[test]
fn of_the_slices_that_may_have_the_card_the_highest_priority_goes_first() {
    let mut desk = Desk::new(&[10, 10]);
    desk.row(1).regime.priority = Priority::High;
    desk.reports(0, State::Waiting);
    desk.reports(1, State::Waiting);
    assert_eq!(desk.step(0), [none(0), none(1), lease(1, 20)]);
    assert_eq!(desk.steps_for(20), [none(1), lease(0, 20)], "it owes");
}

#[test]
fn turn_numbers_and_rounds_of_unblocking_continue_from_the_published_ones() {
    let mut desk = two([50, 50]);
    desk.row(0).published.unblock = 7 << 32;
    desk.leases = Leases::new();
    // The lease is revoked, and the other waits for its work.
    assert_eq!(desk.step(2 * MS), [none(0)]);
    desk.stalls(0);
    desk.step(MS);
    assert_eq!(desk.row(0).published.unblock, 8 << 32 | 1);
    desk.reports(0, State::Waiting);
    assert_eq!(desk.step(MS), [lease(1, 20)]);
}

#[test]
fn a_removed_slice_is_not_waited_for() {
    let mut desk = two([50, 50]);
    desk.view.slices.remove(0);
    assert_eq!(desk.step(MS), [alone(1)]);
}

#[test]
fn a_dead_process_holds_nothing() {
    let mut desk = two([50, 50]);
    desk.process(0).dead = true;
    assert_eq!(desk.step(MS), [none(0), alone(1)]);
}

#[test]
fn a_holder_without_a_heartbeat_loses_the_card_after_ten_milliseconds() {
    let mut desk = two([50, 50]);
    desk.step(0);
    while desk.holds(0) {
        desk.now = desk.wake_at.unwrap();
        desk.step(0);
    }
    assert!(desk.now > T + 10 * MS && desk.now <= T + 20 * MS, "{}", desk.now - T);
    // It shows life again.
    desk.reports(0, State::Waiting);
    assert_eq!(desk.step(MS), [lease(1, 20)]);
}

#[test]
fn a_holder_that_does_not_answer_loses_the_card_after_five_milliseconds() {
    let mut desk = two([50, 50]);
    let number = desk.row(0).published.number;
    desk.process(0).report =
        Report { grant: number - 1, state: State::Waiting, ..Report::default() };
    desk.step(0);
    assert_eq!(desk.wake_at, Some(T + 5 * MS));
    assert_eq!(desk.step(4 * MS), []);
    assert_eq!(desk.step(MS), [none(0), alone(1)]);
}

#[test]
fn a_long_kernel_is_waited_for_four_seconds_and_billed_until_it_ends() {
    let mut desk = two([50, 50]);
    assert_eq!(desk.steps_for(20), [none(0)]);
    assert_eq!(desk.steps_for(3_999), []);
    assert_eq!(desk.steps_for(1), [lease(1, 20)]);
    let before = desk.balance(0);
    desk.steps_for(1_000);
    assert_eq!(desk.balance(0) - before, -500 * MS as i64);
    // It has leases in its order, but its work is not waited for again.
    desk.stalls(0);
    desk.reports(1, State::Idle);
    desk.steps_for(1);
    assert!(!desk.holds(0), "it owes");
    desk.row(0).regime.mode = Mode::Soft;
    assert_eq!(desk.steps_for(1), [lease(0, 20)]);
    desk.reports(1, State::Waiting);
    assert_eq!(desk.steps_for(1), [none(0), lease(1, 20)]);
}

/// Otherwise a slice could keep the card with a new process every second.
#[test]
fn another_process_in_the_slot_is_not_waited_for_longer() {
    let mut desk = two([50, 50]);
    desk.steps_for(20);
    for id in 1..5 {
        assert_eq!(desk.steps_for(999), []);
        desk.process(0).id = id;
    }
    assert_eq!(desk.steps_for(4), [lease(1, 20)]);
}

/// A program without a share has launched as it liked. The queue may have any length.
#[test]
fn a_queue_from_before_is_waited_for_a_short_time() {
    for coordinator_is_new in [false, true] {
        let mut desk = Desk::new(&[30, 30, 0]);
        if !coordinator_is_new {
            (0..2).for_each(|slice| desk.row(slice).processes.clear());
            desk.reports(2, State::Running);
            assert_eq!(desk.step(0), []);
            let process = ProcessView { slot: 4, ..ProcessView::default() };
            (0..2).for_each(|slice| desk.row(slice).processes.push(process));
        }
        // One that returns does not wait; the other one waits for a hard slice.
        desk.reports(0, State::Waiting);
        desk.reports(1, State::Waiting);
        desk.reports(2, State::Running);
        desk.steps_for(3);
        assert!(desk.holds(0));
        // Another one waits.
        desk.steps_for(30);
        assert!(!desk.holds(2));
        assert!(desk.leases.parties[2].is_stuck, "{coordinator_is_new}");
        desk.reports(2, State::Waiting);
        desk.steps_for(1);
        assert!(!desk.leases.parties[2].is_stuck);
        desk.reports(2, State::Running);
        desk.steps_for(1_000);
        assert!(!desk.leases.parties[2].is_stuck, "this work had a lease");
    }
}

#[test]
fn a_slice_with_pauses_does_not_wait_for_long_kernels_of_soft_slices() {
    let beside = vec![lease(0, 20)];
    for (shares, mode, first, then) in [
        ([50, 50], Mode::Soft, vec![none(1), lease(0, 20)], vec![]),
        ([30, 70], Mode::Soft, vec![none(1)], beside),
        ([50, 50], Mode::Hard, vec![none(1)], vec![]),
    ] {
        let mut desk = paused(shares);
        (0..2).for_each(|slice| desk.row(slice).regime.mode = mode);
        desk.steps_for(9);
        desk.reports(0, State::Waiting);
        assert_eq!(desk.steps_for(1), first, "{shares:?} {mode:?}");
        assert_eq!(desk.steps_for(1), then, "{shares:?} {mode:?}");
    }
}

#[test]
fn unblocking_doubles_and_starts_anew_after_progress() {
    let mut desk = two([50, 50]);
    desk.steps_for(20);
    let mut rounds = Vec::new();
    for ms in 0..200 {
        if ms == 100 {
            desk.reports(0, State::Running);
            desk.steps_for(1);
        }
        let before = desk.row(0).published;
        desk.stalls(0);
        desk.steps_for(1);
        let unblock = desk.row(0).published.unblock;
        if unblock != before.unblock {
            assert_eq!(desk.row(0).published.number, before.number.wrapping_add(1));
            rounds.push((ms, unblock >> 32, unblock as u32));
        }
    }
    let expected = [(0, 1, 1), (20, 2, 2), (60, 3, 4), (100, 4, 1), (120, 5, 2), (160, 6, 4)];
    assert_eq!(rounds, expected);
    assert!(!desk.holds(0) && !desk.holds(1));
}

#[test]
fn processes_with_nothing_in_flight_are_unblocked_first() {
    let mut desk = two([50, 50]);
    desk.steps_for(20);
    desk.stalls(0);
    let idle = ProcessView { slot: 9, report: Report::default(), ..*desk.process(0) };
    desk.row(0).processes.push(idle);
    desk.row(0).processes[1].report.state = State::Waiting;
    desk.steps_for(1);
    assert_eq!(desk.row(0).published.unblock, 1 << 32 | 1 << 31 | 1);
    desk.steps_for(20);
    assert_eq!(desk.row(0).published.unblock, 2 << 32 | 2);
}

#[test]
fn work_that_makes_progress_is_not_unblocked() {
    let mut desk = two([50, 50]);
    let busy = ProcessView { slot: 9, ..*desk.process(0) };
    desk.row(0).processes.push(busy);
    desk.stalls(0);
    desk.steps_for(1_000);
    assert_eq!(desk.row(0).published.unblock, 0);
}

#[test]
fn no_report_makes_a_lease_longer() {
    let mut desk = Desk::new(&[50, 50]);
    let report = Report { state: State::Waiting, needs_ns: 10_000 * MS, ..Report::default() };
    desk.reports_on(0, 0, report);
    desk.reports(1, State::Waiting);
    assert_eq!(desk.step(0)[2], (0, Kind::Lease, Holder::All, 20 * MS));
}

#[test]
fn leases_are_shorter_with_more_slices() {
    for (slices, length) in [(2, 20), (4, 17), (20, 5)] {
        let mut desk = Desk::new(&vec![5; slices]);
        (0..slices).for_each(|slice| desk.reports(slice, State::Waiting));
        assert_eq!(desk.step(0).last(), Some(&lease(0, length)));
    }
}
