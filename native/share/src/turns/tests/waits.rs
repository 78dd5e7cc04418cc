//! Tests of kernels that wait for a launch of their own slice.

use super::*;

/// A second row for each slice, on another card.
fn on_two_cards(desk: &mut Desk) {
    for slice in &mut desk.view.slices {
        let second = SliceCardView { card: 8, ..slice.rows[0].clone() };
        slice.rows.push(second);
    }
}

fn waiting() -> Report {
    Report { state: State::Waiting, ..Report::default() }
}

fn stalled() -> Report {
    Report { state: State::Running, is_stalled: true, needs_ns: MS, ..Report::default() }
}

/// The work of the first slice makes no progress, and its turn has just ended.
fn stalled_past_its_turn(report: Report) -> Desk {
    let mut desk = two([50, 50]);
    desk.reports_on(0, 0, report);
    assert_eq!(desk.steps_for(4), [no_turn(0)]);
    desk
}

#[test]
fn stalled_work_and_a_launch_that_waits_give_a_short_turn() {
    let mut desk = stalled_past_its_turn(stalled());
    assert_eq!(desk.steps_for(9), []);
    assert_eq!(desk.steps_for(1), [turn(0, 3 * MS)]);
    // Again, until the work ends.
    assert_eq!(desk.steps_for(3), [turn(0, 3 * MS)]);
    assert_eq!(desk.steps_for(3), [turn(0, 3 * MS)]);
    desk.reports(0, State::Waiting);
    assert_eq!(desk.steps_for(3), [no_turn(0), turn(1, 20 * MS)]);
}

#[test]
fn a_short_turn_is_as_long_as_the_launch() {
    let mut desk = stalled_past_its_turn(Report { needs_ns: 32 * MS, ..stalled() });
    assert_eq!(desk.steps_for(10), [turn(0, 34 * MS)]);
}

#[test]
fn work_that_makes_progress_gets_no_short_turn() {
    for report in [
        Report { is_stalled: false, ..stalled() },
        // No launch waits.
        Report { needs_ns: 0, ..stalled() },
    ] {
        let mut desk = stalled_past_its_turn(report);
        assert_eq!(desk.steps_for(4_000), []);
        assert_eq!(desk.steps_for(1), [turn(1, 20 * MS)]);
    }
}

#[test]
fn all_work_past_the_turn_must_be_stalled() {
    let mut desk = two([50, 50]);
    let busy = ProcessView { slot: 9, ..*desk.process(0) };
    desk.row(0).processes.push(busy);
    desk.reports_on(0, 0, stalled());
    assert_eq!(desk.steps_for(4), [no_turn(0)]);
    assert_eq!(desk.steps_for(1_000), []);
    desk.row(0).processes[1].report.is_stalled = true;
    assert_eq!(desk.steps_for(1), [turn(0, 3 * MS)]);
}

#[test]
fn others_get_the_card_after_four_seconds_of_short_turns() {
    let mut desk = stalled_past_its_turn(stalled());
    let began = desk.now;
    while !desk.has_turn(1) {
        assert!(desk.now - began <= 4_010 * MS);
        desk.steps_for(1);
    }
    assert!(desk.now - began >= 4_000 * MS, "{}", desk.now - began);
    // From now on it only gets short turns.
    let mut had = 0;
    for _ in 0..1_000 {
        let state = if desk.has_turn(1) { State::Running } else { State::Waiting };
        desk.reports(1, state);
        desk.reports_on(0, 0, stalled());
        desk.steps_for(1);
        had += u32::from(desk.has_turn(0));
    }
    assert!((3..=10).contains(&had), "{had} ms");
}

/// A slice has launched on one card, and its other process waits for a turn on the other.
#[test]
fn a_slice_has_its_turns_on_both_cards_also_when_it_works_on_one() {
    for shares in [[0, 20], [20, 0], [50, 50]] {
        let mut desk = Desk::new(&shares);
        on_two_cards(&mut desk);
        (0..2).for_each(|slice| (0..2).for_each(|row| desk.reports_on(slice, row, waiting())));
        desk.step(0);
        let mut had = [0, 0];
        for _ in 0..500 {
            for (slice, had) in had.iter_mut().enumerate() {
                let grants = [0, 1].map(|row| desk.view.slices[slice].rows[row].published);
                assert_eq!(grants[0].holder, grants[1].holder, "{shares:?}");
                assert_eq!(grants[0].until, grants[1].until, "{shares:?}");
                let state = if desk.has_turn(slice) { State::Running } else { State::Waiting };
                desk.reports(slice, state);
                *had += u32::from(desk.has_turn(slice));
            }
            assert!(!desk.has_turn(0) || !desk.has_turn(1), "{shares:?}");
            desk.steps_for(1);
        }
        assert!(had.iter().all(|had| *had >= 80), "{shares:?}: {had:?}");
    }
}

/// A kernel that waits for ever is billed like any other.
#[test]
fn work_that_never_ends_has_no_more_turns_than_its_share() {
    let mut desk = second_of_two([90, 10]);
    desk.works(1, 20 * MS);
    desk.reports(1, State::Waiting);
    assert_eq!(desk.step(0), [no_turn(1), turn(0, 20 * MS)]);
    desk.reports(0, State::Running);
    let began = desk.now;
    while desk.has_turn(0) {
        assert!(desk.now - began < 300 * MS);
        desk.steps_for(1);
    }
    // 20 ms of a tenth are worth 180 of the rest.
    assert!(desk.now - began >= 160 * MS, "{}", desk.now - began);
    assert_eq!(desk.steps_for(3_999), []);
}
