//! Tests of slices and gangs that use several cards.

use super::*;

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
fn a_gang_has_its_turns_on_all_cards_at_once() {
    let mut desk = gang_and_neighbours();
    desk.steps_for(1);
    for _ in 0..500 {
        // Those with a turn work.
        for slice in 0..4 {
            let state = if desk.has_turn(slice) { State::Running } else { State::Waiting };
            desk.reports(slice, state);
        }
        desk.steps_for(1);
        let [first, second] = [0, 1].map(|slice| desk.row(slice).published);
        assert_eq!((first.holder, first.until), (second.holder, second.until));
        assert!(![2, 3].into_iter().any(|other| desk.has_turn(0) && desk.has_turn(other)));
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
    assert_eq!(desk.step(0), [no_turn(0), no_turn(1), alone(2), alone(3)]);
    desk.reports(2, State::Running);
    desk.reports(3, State::Running);
    desk.reports(0, State::Waiting);
    desk.reports(1, State::Waiting);
    assert_eq!(desk.step(MS), [no_turn(2), no_turn(3)]);
    desk.reports(2, State::Waiting);
    assert_eq!(desk.step(MS), [], "the other card is not free");
    desk.reports(3, State::Waiting);
    assert_eq!(desk.step(MS), [turn(0, 20 * MS), turn(1, 20 * MS)]);
}

/// The row is no longer active, and has had more than its share.
#[test]
fn a_turn_ends_on_a_card_that_its_party_does_not_use_any_more() {
    let mut desk = Desk::new(&[10, 50, 0]);
    for slice in [0, 1] {
        desk.view.slices[slice].gang = Some(5);
    }
    desk.row(1).card = 8;
    (0..2).for_each(|slice| desk.reports(slice, State::Waiting));
    assert_eq!(desk.step(0)[3..], [turn(0, 20 * MS), turn(1, 20 * MS)]);
    (0..2).for_each(|slice| desk.reports(slice, State::Running));
    // The process on card 7 is stopped.
    for _ in 0..12 {
        desk.works(1, MS);
        desk.step(0);
    }
    assert_eq!(desk.row(2).published.kind, Kind::Alone, "it is metered");
    assert!(!desk.has_turn(0));
}

#[test]
fn a_gang_divides_the_bill_of_a_card_by_its_weights() {
    let mut desk = Desk::new(&[30, 10, 50]);
    for slice in [0, 1] {
        desk.view.slices[slice].gang = Some(5);
    }
    (0..2).for_each(|slice| desk.reports(slice, State::Waiting));
    let granted = desk.step(0);
    assert_eq!(granted[3..], [turn(0, 20 * MS), turn(1, 20 * MS)]);
    desk.reports(0, State::Running);
    desk.works(0, 4 * MS);
    desk.step(0);
    // 4 ms of 30 and 10 percent are credit; 3 and 1 ms are billed.
    assert_eq!(desk.balance(0), 1_200_000 - 3 * MS as i64);
    assert_eq!(desk.balance(1), 400_000 - MS as i64);
    assert_eq!(desk.balance(2), 2 * MS as i64);
}

#[test]
fn a_slice_alone_on_its_cards_loses_both_when_another_starts_on_one() {
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
    assert!(desk.has_turn(1));
}
