//! Tests of the bill, and of slices and gangs that use several cards.

use super::*;

#[test]
fn a_lease_is_billed_by_the_clock_whatever_the_slice_reports() {
    for state in [State::Running, State::Waiting] {
        let mut desk = two([50, 50]);
        desk.reports(0, state);
        desk.steps_for(4);
        // Half of the time is credit.
        assert_eq!((desk.balance(0), desk.balance(1)), (-2 * MS as i64, 2 * MS as i64));
    }
}

/// After 50 ms without the coordinator's pulse its grants do not count.
#[test]
fn a_step_after_a_pause_bills_fifty_milliseconds() {
    let mut desk = two([50, 50]);
    desk.step(150 * MS);
    assert_eq!(desk.balance(0), 25 * MS as i64);
}

/// It waits until it has a lease, and reports in its leases that it is idle.
#[test]
fn a_hard_slice_that_reports_idle_in_its_leases_has_no_more_than_its_share() {
    let mut desk = two([10, 50]);
    let mut had = 0;
    while desk.now < T + 10_000 * MS {
        let (first, second) = (desk.holds(0), desk.holds(1));
        desk.reports(0, if first { State::Idle } else { State::Waiting });
        desk.reports(1, if second { State::Running } else { State::Waiting });
        had += u64::from(first);
        desk.steps_for(1);
    }
    assert!(had <= 1_200, "{had} ms of 10,000");
}

#[test]
fn a_hard_slice_that_owes_waits_and_a_soft_one_does_not() {
    let mut desk = two([10, 50]);
    desk.steps_for(6);
    desk.reports(0, State::Idle);
    desk.reports(1, State::Idle);
    desk.steps_for(1);
    // It has had 7 ms of its tenth of 70.
    desk.reports(0, State::Waiting);
    while desk.now < T + 69 * MS {
        desk.steps_for(1);
        assert!(!desk.holds(0), "{}", desk.now - T);
    }
    let mut soft = two([10, 50]);
    soft.row(0).regime.mode = Mode::Soft;
    desk.steps_for(2);
    soft.steps_for(6);
    assert!(desk.holds(0) && soft.holds(0));
}

#[test]
fn slices_without_a_share_divide_what_the_shares_leave() {
    let mut desk = Desk::new(&[40, 0, 0]);
    (0..3).for_each(|slice| desk.reports(slice, State::Waiting));
    desk.step(0);
    let weights: Vec<u64> =
        desk.leases.slices.iter().map(|slice| slice.rows[0].ledger.weight).collect();
    assert_eq!(weights, [400_000, 300_000, 300_000]);
}

/// The bucket of one process cannot limit both.
#[test]
fn two_processes_of_a_hard_slice_alone_have_leases() {
    let mut desk = Desk::new(&[50]);
    desk.reports(0, State::Waiting);
    let other = ProcessView { slot: 9, ..*desk.process(0) };
    desk.row(0).processes.push(other);
    assert_eq!(desk.step(0), [lease(0, 20)]);
    // 20 ms are billed, and half of them credited.
    assert_eq!(desk.steps_for(20), [none(0)]);
    assert_eq!(desk.steps_for(19), []);
    assert_eq!(desk.steps_for(1), [lease(0, 20)]);
}

/// The debt also counts for new processes of the slice.
#[test]
fn a_slice_pays_its_debt_also_while_it_is_alone() {
    let mut desk = two([10, 50]);
    desk.steps_for(20);
    desk.row(1).processes.clear();
    desk.process(0).dead = true;
    desk.step(0);
    assert_eq!(desk.balance(0), -18 * MS as i64);
    desk.row(0).processes[0] = ProcessView { slot: 4, id: 1, ..ProcessView::default() };
    desk.reports(0, State::Waiting);
    desk.steps_for(179);
    assert!(!desk.holds(0));
    assert_eq!(desk.steps_for(1), [alone(0)]);
}

#[test]
fn a_slice_that_waited_is_owed_its_time_also_while_it_is_alone() {
    let mut desk = two([50, 50]);
    desk.steps_for(1_000);
    // It has waited for a second, and is owed half of this time. It gets the time in leases.
    desk.row(0).processes.clear();
    assert_eq!(desk.balance(1), 500 * MS as i64);
    let mut had = 0;
    desk.steps_for(1);
    while desk.row(1).published.kind == Kind::Lease {
        assert!(desk.holds(1));
        desk.reports(1, State::Running);
        desk.process(1).report.needs_ns = 1;
        desk.steps_for(1);
        had += 1;
    }
    assert!((790..=810).contains(&had), "{had} ms");
    assert_eq!(desk.row(1).published.kind, Kind::Alone);
    // Now its own bucket has the credit. With both, it would have twice its share.
    let balance = desk.balance(1);
    assert_eq!(desk.steps_for(250), []);
    assert_eq!(desk.balance(1), balance);
}

#[test]
fn a_changed_share_or_mode_resets_the_balance() {
    let changes: [fn(&mut Regime); 2] = [|it| it.share = 20, |it| it.mode = Mode::Soft];
    for change in changes {
        let mut desk = two([50, 50]);
        desk.steps_for(10);
        assert!(desk.balance(0) < 0 && desk.balance(1) > 0);
        (0..2).for_each(|slice| change(&mut desk.row(slice).regime));
        desk.step(0);
        assert_eq!((desk.balance(0), desk.balance(1)), (0, 0));
    }
    let mut desk = two([50, 50]);
    desk.steps_for(10);
    desk.row(0).regime.priority = Priority::High;
    desk.step(0);
    assert!(desk.balance(0) != 0);
}

/// A gang of two slices, one on each of the cards 7 and 8, and another slice on each card. All
/// wait.
fn gang_and_neighbours() -> Desk {
    let mut desk = Desk::new(&[50, 50, 50, 50]);
    for slice in [0, 1] {
        desk.view.slices[slice].gang = Some(5);
    }
    for slice in [1, 3] {
        desk.row(slice).card = 8;
    }
    (0..4).for_each(|slice| desk.reports(slice, State::Waiting));
    desk
}

#[test]
fn a_gang_holds_its_leases_on_all_cards_at_once() {
    let mut desk = gang_and_neighbours();
    desk.steps_for(1);
    for _ in 0..500 {
        // Holders work.
        for slice in 0..4 {
            let state = if desk.holds(slice) { State::Running } else { State::Waiting };
            desk.reports(slice, state);
        }
        desk.steps_for(1);
        let [first, second] = [0, 1].map(|slice| desk.row(slice).published);
        assert_eq!((first.holder, first.until), (second.holder, second.until));
        assert!(![2, 3].into_iter().any(|other| desk.holds(0) && desk.holds(other)));
    }
    // Each has had a half of its card.
    for slice in 0..4 {
        assert!(desk.balance(slice).unsigned_abs() < 20 * MS, "{slice}: {}", desk.balance(slice));
    }
}

#[test]
fn a_gang_waits_for_work_on_each_of_its_cards() {
    let mut desk = gang_and_neighbours();
    for slice in [0, 1] {
        *desk.process(slice) = ProcessView { slot: 4, ..ProcessView::default() };
    }
    assert_eq!(desk.step(0), [none(0), none(1), alone(2), alone(3)]);
    desk.reports(2, State::Running);
    desk.reports(3, State::Running);
    desk.reports(0, State::Waiting);
    desk.reports(1, State::Waiting);
    assert_eq!(desk.step(MS), [none(2), none(3)]);
    desk.reports(2, State::Waiting);
    assert_eq!(desk.step(MS), [], "the other card is not free");
    desk.reports(3, State::Waiting);
    assert_eq!(desk.step(MS), [lease(0, 20), lease(1, 20)]);
}

#[test]
fn a_gang_divides_the_bill_of_a_card_by_its_weights() {
    let mut desk = Desk::new(&[30, 10, 50]);
    for slice in [0, 1] {
        desk.view.slices[slice].gang = Some(5);
    }
    (0..2).for_each(|slice| desk.reports(slice, State::Waiting));
    assert_eq!(desk.step(0)[3..], [lease(0, 20), lease(1, 20)]);
    (0..2).for_each(|slice| desk.reports(slice, State::Running));
    desk.steps_for(4);
    // 4 ms of 30 and 10 percent are credit; 3 and 1 ms are billed.
    assert_eq!(desk.balance(0), 1_200_000 - 3 * MS as i64);
    assert_eq!(desk.balance(1), 400_000 - MS as i64);
    assert_eq!(desk.balance(2), 2 * MS as i64);
}

/// Both slices have two cards and always work.
#[test]
fn slices_of_two_cards_never_hold_one_each() {
    for shares in [[0, 20], [20, 0], [50, 50]] {
        let mut desk = Desk::new(&shares);
        for slice in &mut desk.view.slices {
            slice.rows.push(SliceCardView { card: 8, ..slice.rows[0].clone() });
        }
        let mut had = [0, 0];
        for _ in 0..500 {
            for (slice, had) in had.iter_mut().enumerate() {
                let grants = [0, 1].map(|row| desk.view.slices[slice].rows[row].published);
                assert_eq!(grants[0].holder, grants[1].holder, "{shares:?}");
                assert_eq!(grants[0].until, grants[1].until, "{shares:?}");
                let holds = grants[0].kind == Kind::Lease && desk.holds(slice);
                // A launch on one card, while the other process waits.
                let state = if holds { State::Running } else { State::Waiting };
                desk.reports(slice, state);
                let second = Report { state: State::Waiting, ..Report::default() };
                desk.reports_on(slice, 1, second);
                *had += u32::from(holds);
            }
            assert!(had == [0, 0] || !desk.holds(0) || !desk.holds(1), "{shares:?}");
            desk.steps_for(1);
        }
        assert!(had.iter().all(|had| *had >= 80), "{shares:?}: {had:?}");
    }
}

#[test]
fn a_slice_alone_on_two_cards_loses_both_when_another_starts_on_one() {
    let mut desk = Desk::new(&[0, 30]);
    let second = SliceCardView { card: 8, ..desk.row(0).clone() };
    desk.view.slices[0].rows.push(second);
    for row in [0, 1] {
        desk.reports_on(0, row, Report { state: State::Running, ..Report::default() });
    }
    desk.step(0);
    desk.reports(1, State::Waiting);
    desk.steps_for(1);
    assert_eq!(desk.row(0).published.holder, Holder::None);
    for row in [0, 1] {
        desk.reports_on(0, row, Report { state: State::Waiting, ..Report::default() });
    }
    desk.steps_for(1);
    assert!(desk.holds(1));
}
