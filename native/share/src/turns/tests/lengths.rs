//! Tests of the length of turns, and of how much may be in flight.

use super::*;

/// The turn for a launch of this time: with 1/32 and 1 ms more.
fn for_launch(ns: u64) -> u64 {
    ns + ns / 32 + MS
}

#[test]
fn a_turn_is_as_long_as_the_launch_that_waits() {
    for (needs, length) in [
        (1, 20 * MS),
        (10 * MS, 20 * MS),
        (40 * MS, for_launch(40 * MS)),
        (u64::MAX, for_launch(500 * MS)),
    ] {
        let mut desk = two([50, 50]);
        desk.needs(1, needs);
        desk.works(0, 4 * MS);
        desk.reports(0, State::Waiting);
        assert_eq!(desk.step(0), [no_turn(0), turn(1, length)], "{needs}");
    }
}

#[test]
fn the_first_turn_of_a_newcomer_is_as_long_as_its_launch() {
    let mut desk = Desk::new(&[50, 50]);
    desk.needs(0, 40 * MS);
    desk.reports(1, State::Waiting);
    assert_eq!(desk.step(0), [no_turn(0), no_turn(1), turn(0, for_launch(40 * MS))]);
}

#[test]
fn turns_are_shorter_with_more_slices() {
    let mut desk = Desk::new(&[20, 20, 20, 20]);
    (0..4).for_each(|slice| desk.reports(slice, State::Waiting));
    desk.step(0);
    let mut lengths = Vec::new();
    for slice in 0..4 {
        let grant = desk.row(slice).published;
        assert!(desk.has_turn(slice));
        lengths.push(grant.until - desk.now);
        desk.reports(slice, State::Running);
        desk.works(slice, grant.until - desk.now);
        desk.reports(slice, State::Waiting);
        desk.step(0);
    }
    // Newcomers wait behind the first three.
    assert_eq!(lengths, [5 * MS, 5 * MS, 5 * MS, 17 * MS]);
}

#[test]
fn a_turn_whose_rest_is_too_short_for_the_launches_that_wait_ends_early() {
    let mut desk = second_of_two([50, 50]);
    desk.works(1, 15 * MS);
    desk.needs(1, 5 * MS);
    assert_eq!(desk.step(0), [], "it fits");
    desk.needs(1, 6 * MS);
    assert_eq!(desk.step(0), [no_turn(1), turn(0, 20 * MS)]);
}

#[test]
fn a_turn_goes_on_while_work_runs_or_one_launch_fits() {
    let mut desk = second_of_two([50, 50]);
    desk.works(1, 15 * MS);
    let other = ProcessView { slot: 9, ..*desk.process(1) };
    desk.row(1).processes.push(other);
    desk.needs(1, 6 * MS);
    assert_eq!(desk.step(0), [], "the other process works");
    desk.row(1).processes[1].report = Report { needs_ns: MS, ..desk.process(1).report };
    assert_eq!(desk.step(0), [], "its launch fits");
    desk.row(1).processes[1].report.needs_ns = 6 * MS;
    assert_eq!(desk.step(0), [no_turn(1), turn(0, 20 * MS)]);
}

#[test]
fn much_may_be_in_flight_alone() {
    for mode in [Mode::Hard, Mode::Soft] {
        let mut desk = Desk::new(&[50]);
        desk.row(0).regime.mode = mode;
        desk.reports(0, State::Waiting);
        desk.step(0);
        assert_eq!(desk.depth(0), 64 * MS);
    }
}

#[test]
fn no_more_is_in_flight_alone_while_another_slice_may_return() {
    let mut desk = paused([50, 50]);
    (0..2).for_each(|slice| desk.row(slice).regime.mode = Mode::Soft);
    while desk.now < T + 1_200 * MS {
        desk.reports(1, State::Running);
        desk.works(1, MS);
        desk.step(0);
        if desk.row(1).published.kind == Kind::Alone {
            // The other was last active at 1 ms.
            let expected = if desk.now < T + 1_001 * MS { 4 * MS } else { 64 * MS };
            assert_eq!(desk.depth(1), expected, "{} ms", (desk.now - T) / MS);
        }
    }
    assert_eq!(desk.row(1).published.kind, Kind::Alone);
}

#[test]
fn metered_work_in_flight_is_limited() {
    let mut desk = Desk::new(&[30, 0]);
    desk.step(0);
    assert_eq!(desk.depth(1), 10 * MS);
}

#[test]
fn two_batches_are_in_flight_beside_slices_that_always_want_more() {
    let mut desk = second_of_two([50, 50]);
    assert_eq!(desk.depth(1), 4 * MS);
}

/// So a second process does not change the grant in the middle of a turn.
#[test]
fn each_process_of_a_slice_may_have_as_much_in_flight() {
    let mut desk = second_of_two([50, 50]);
    let other = ProcessView { slot: 9, ..*desk.process(1) };
    desk.row(1).processes.push(other);
    assert_eq!(desk.step(MS), []);
    assert_eq!(desk.depth(1), 4 * MS);
}

#[test]
fn little_is_in_flight_beside_a_slice_with_pauses() {
    let mut desk = paused([50, 50]);
    assert_eq!(desk.depth(1), MS);
    // The slice with pauses is not beside one.
    desk.works(1, 9 * MS);
    desk.reports(0, State::Waiting);
    desk.step(0);
    desk.reports(1, State::Waiting);
    assert_eq!(desk.step(MS), [turn(0, 20 * MS)]);
    assert_eq!(desk.depth(0), 4 * MS);
}

#[test]
fn a_slice_counts_as_one_with_pauses_for_a_while() {
    let mut desk = paused([50, 50]);
    // The pause was at 2 ms.
    while desk.now < T + 300 * MS {
        for slice in 0..2 {
            let state = if desk.has_turn(slice) { State::Running } else { State::Waiting };
            desk.reports(slice, state);
        }
        desk.steps_for(1);
        if desk.has_turn(1) {
            let expected = if desk.now < T + 202 * MS { MS } else { 4 * MS };
            assert_eq!(desk.depth(1), expected, "{} ms", (desk.now - T) / MS);
        }
    }
}
