//! Tests of the bill: the time for which the card was reserved, whatever the slice reports.

use super::*;

#[test]
fn a_turn_is_billed_by_the_clock() {
    let mut desk = two([50, 50]);
    // One ms is billed, and half of it is credit.
    assert_eq!(desk.balance(0), -(MS as i64) / 2);
    desk.works(0, 3 * MS);
    desk.step(0);
    assert_eq!(desk.balance(0), -2 * MS as i64);
}

/// After 50 ms without the coordinator's pulse its grants do not count.
#[test]
fn the_time_in_which_the_coordinator_was_stopped_is_not_billed() {
    let mut desk = two([50, 50]);
    let before = desk.balance(0);
    desk.works(0, 150 * MS);
    desk.step(0);
    // Half of the time is credit.
    assert_eq!(desk.balance(0) - before, 25 * MS as i64);
}

#[test]
fn a_process_that_always_waits_is_billed() {
    let mut desk = two([50, 50]);
    desk.reports(0, State::Waiting);
    desk.step(3 * MS);
    assert_eq!(desk.balance(0), -2 * MS as i64);
}

#[test]
fn a_process_that_toggles_its_state_is_billed() {
    let mut desk = two([50, 50]);
    for state in [State::Waiting, State::Running, State::Waiting] {
        desk.reports(0, state);
        desk.step(MS);
    }
    assert_eq!(desk.balance(0), -2 * MS as i64);
}

#[test]
fn a_process_that_never_answers_is_billed_for_its_turn() {
    let mut desk = two([50, 50]);
    desk.works(0, 4 * MS);
    desk.reports(0, State::Waiting);
    assert_eq!(desk.step(0), [no_turn(0), turn(1, 20 * MS)]);
    let before = desk.balance(1);
    for _ in 0..5 {
        desk.step(MS);
    }
    assert!(!desk.has_turn(1));
    // Half of the 5 ms is credit.
    assert_eq!(desk.balance(1) - before, -5 * MS as i64 / 2);
}

#[test]
fn nothing_is_billed_from_the_time_on_that_a_turn_is_given_up() {
    let mut desk = two([50, 50]);
    desk.reports(0, State::Idle);
    desk.reports(1, State::Idle);
    desk.step(0);
    let before = desk.balance(0);
    desk.step(2 * MS);
    assert_eq!(desk.balance(0) - before, MS as i64);
}

/// It waits until it has a turn, and reports in its turns that it is idle.
#[test]
fn a_hard_slice_that_reports_idle_in_its_turns_has_no_more_than_its_share() {
    let mut desk = two([10, 50]);
    let mut had = 0;
    while desk.now < T + 10_000 * MS {
        let (first, second) = (desk.has_turn(0), desk.has_turn(1));
        desk.reports(0, if first { State::Idle } else { State::Waiting });
        desk.reports(1, if second { State::Running } else { State::Waiting });
        had += u64::from(first && desk.row(0).published.until > desk.now);
        desk.steps_for(1);
    }
    assert!(had <= 1_200, "{had} ms of 10,000");
}

#[test]
fn work_past_the_turn_is_billed() {
    let mut desk = two([50, 50]);
    desk.works(0, 4 * MS);
    desk.step(0);
    let before = desk.balance(0);
    for _ in 0..10 {
        desk.works(0, 2 * MS);
        assert_eq!(desk.step(0), []);
    }
    assert_eq!(desk.balance(0) - before, -10 * MS as i64);
}

#[test]
fn a_hard_slice_without_credit_gets_no_turn_on_a_free_card() {
    let mut desk = second_of_two([10, 50]);
    desk.reports(1, State::Idle);
    // It has had 6 ms of its tenth of 60.
    while desk.now < T + 59 * MS {
        desk.reports(0, State::Waiting);
        desk.step(MS);
        assert!(!desk.has_turn(0), "{}", desk.now - T);
    }
    assert_eq!(desk.wake_at, Some(T + 60 * MS));
    assert_eq!(desk.step(MS), [turn(0, 20 * MS)]);
}

#[test]
fn a_soft_slice_without_credit_gets_a_free_card() {
    let mut desk = second_of_two([10, 50]);
    desk.row(0).regime.mode = Mode::Soft;
    desk.reports(1, State::Idle);
    assert_eq!(desk.step(MS), [no_turn(1), turn(0, 20 * MS)]);
}

#[test]
fn slices_without_a_share_divide_what_the_shares_leave() {
    let mut desk = Desk::new(&[40, 0, 0]);
    (0..3).for_each(|slice| desk.reports(slice, State::Waiting));
    desk.step(0);
    let weights: Vec<u64> =
        desk.turns.slices.iter().map(|slice| slice.rows[0].ledger.weight).collect();
    assert_eq!(weights, [40_000, 30_000, 30_000]);
}

/// The bucket of one process cannot limit both.
#[test]
fn two_processes_of_a_hard_slice_alone_have_turns() {
    let mut desk = Desk::new(&[50]);
    desk.reports(0, State::Waiting);
    let other = ProcessView { slot: 9, ..*desk.process(0) };
    desk.row(0).processes.push(other);
    assert_eq!(desk.step(0), [no_turn(0), (0, Kind::Turn, Holder::Slot(4), 20 * MS)]);
    assert_eq!(desk.steps_for(19), []);
    // 20 ms are billed, and half of them credited.
    assert_eq!(desk.steps_for(1), [no_turn(0)]);
    assert_eq!(desk.steps_for(19), []);
    assert_eq!(desk.steps_for(1), [(0, Kind::Turn, Holder::Slot(9), 20 * MS)]);
}

/// The debt also counts for new processes of the slice.
#[test]
fn a_slice_pays_its_debt_also_while_it_is_alone() {
    let mut desk = two([10, 50]);
    desk.works(0, 19 * MS);
    desk.step(0);
    desk.row(1).processes.clear();
    desk.process(0).dead = true;
    desk.step(0);
    assert_eq!(desk.balance(0), -18 * MS as i64);
    desk.row(0).processes[0] = ProcessView { slot: 4, id: 1, ..ProcessView::default() };
    desk.reports(0, State::Waiting);
    desk.step(0);
    while desk.now < T + 199 * MS {
        desk.reports(0, State::Waiting);
        desk.step(MS);
        assert!(!desk.has_turn(0), "{}", desk.now - T);
    }
    assert_eq!(desk.step(MS), [alone(0)]);
}

#[test]
fn a_slice_that_waited_is_owed_its_time_also_while_it_is_alone() {
    let mut desk = two([50, 50]);
    desk.reports(1, State::Waiting);
    desk.steps_for(1_000);
    // It has waited for a second, and is owed half of this time. It gets the time in turns.
    desk.row(0).processes.clear();
    assert!(desk.balance(1) >= 450 * MS as i64, "{}", desk.balance(1));
    desk.step(0);
    desk.step(MS);
    let mut had = 0;
    while desk.row(1).published.kind == Kind::Turn {
        assert!(desk.has_turn(1));
        desk.reports(1, State::Running);
        desk.works(1, MS);
        desk.step(0);
        had += 1;
    }
    assert!((790..=810).contains(&had), "{had} ms");
    assert_eq!(desk.row(1).published.kind, Kind::Alone);
    // While it is alone, its own bucket enforces its share. So no debt grows, and the grant does
    // not change.
    for _ in 0..50 {
        desk.works(1, 5 * MS);
        assert_eq!(desk.step(0), []);
    }
}

#[test]
fn a_changed_share_or_mode_resets_the_balance() {
    let changes: [fn(&mut Regime); 2] = [|it| it.share = 20, |it| it.mode = Mode::Soft];
    for change in changes {
        let mut desk = second_of_two([50, 50]);
        desk.works(1, 10 * MS);
        desk.step(0);
        assert!(desk.balance(0) > 0 && desk.balance(1) < 0);
        (0..2).for_each(|slice| change(&mut desk.row(slice).regime));
        desk.step(0);
        assert_eq!((desk.balance(0), desk.balance(1)), (0, 0));
    }
    let mut desk = second_of_two([50, 50]);
    desk.row(0).regime.priority = Priority::High;
    desk.step(0);
    assert!(desk.balance(0) != 0);
}

/// Its own bucket gets the credit of that time. With both, it would have twice its share.
#[test]
fn a_hard_slice_that_has_the_card_alone_gets_no_credit_from_the_coordinator() {
    let mut desk = Desk::new(&[30]);
    desk.reports(0, State::Waiting);
    assert_eq!(desk.step(0), [alone(0)]);
    desk.reports(0, State::Running);
    for _ in 0..200 {
        desk.works(0, MS);
        assert_eq!(desk.step(0), []);
    }
    assert_eq!(desk.balance(0), 0);
}
