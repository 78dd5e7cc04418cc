//! Tests of processes that were stopped, and of work that does not end.

use super::*;

#[test]
fn a_stopped_holder_loses_the_card_after_ten_milliseconds_without_a_heartbeat() {
    let mut desk = second_of_two([50, 50]);
    for _ in 0..10 {
        assert_eq!(desk.step(MS), []);
    }
    assert_eq!(desk.step(MS), [no_turn(1), alone(0)]);
}

/// The coordinator sets a time to wake up for it.
#[test]
fn a_stopped_holder_loses_the_card_without_another_event() {
    let mut desk = second_of_two([50, 50]);
    desk.step(0);
    let heartbeat = desk.now;
    while desk.has_turn(1) {
        desk.now = desk.wake_at.unwrap();
        desk.step(0);
    }
    assert!(desk.now <= heartbeat + 11 * MS, "after {} ms", (desk.now - heartbeat) / MS);
}

/// Otherwise false reports of work would take the card from others, at the price of a debt.
#[test]
fn work_without_any_turn_does_not_keep_the_card() {
    let mut desk = two([50, 50]);
    let mut had = 0;
    while desk.now < T + 60_000 * MS {
        // For one of 3,900 ms it reports that its work has ended.
        let ended = ((desk.now - T) / MS).is_multiple_of(3_900);
        desk.reports(0, if ended { State::Waiting } else { State::Running });
        let state = if desk.has_turn(1) { State::Running } else { State::Waiting };
        desk.reports(1, state);
        had += u64::from(desk.has_turn(1));
        desk.steps_for(1);
    }
    assert!(had > 25_000, "the other had {had} ms of 60,000");
}

#[test]
fn stopped_work_past_its_turn_is_waited_for_ten_milliseconds() {
    let mut desk = two([50, 50]);
    desk.works(0, 3 * MS);
    assert_eq!(desk.step(MS), [no_turn(0)]);
    assert_eq!(desk.step(9 * MS), []);
    assert_eq!(desk.step(MS), [turn(1, 20 * MS)]);
}

#[test]
fn a_holder_that_does_not_answer_loses_the_card_after_five_milliseconds() {
    let mut desk = two([50, 50]);
    desk.works(0, 4 * MS);
    desk.reports(0, State::Waiting);
    assert_eq!(desk.step(0), [no_turn(0), turn(1, 20 * MS)]);
    for _ in 0..4 {
        desk.reports(0, State::Waiting);
        assert_eq!(desk.step(MS), []);
    }
    assert_eq!(desk.wake_at, Some(desk.now + MS));
    assert_eq!(desk.step(MS), [no_turn(1), alone(0)]);
}

/// Its turn was prolonged; it has answered the first part.
#[test]
fn an_answer_to_any_part_of_a_turn_counts() {
    let mut desk = second_of_two([10, 90]);
    desk.reports(1, State::Waiting);
    assert_eq!(desk.step(19 * MS), [turn(1, 20 * MS)]);
    assert_eq!(desk.step(10 * MS), []);
}

#[test]
fn a_process_that_does_not_respond_gets_no_turns_until_it_does() {
    let mut desk = Desk::new(&[50, 25, 25]);
    (0..3).for_each(|slice| desk.reports(slice, State::Waiting));
    desk.process(2).active_at = 0;
    assert_eq!(desk.step(0), [no_turn(0), no_turn(1), no_turn(2), turn(0, 5 * MS)]);
    assert_eq!(desk.step(5 * MS), [no_turn(0), turn(1, 5 * MS)]);
    // Now only the third may be alive.
    assert_eq!(desk.step(5 * MS), [no_turn(1), alone(2)]);
    desk.reports(0, State::Waiting);
    desk.reports(2, State::Running);
    assert_eq!(desk.step(MS), [no_turn(2)]);
}

#[test]
fn a_long_kernel_is_waited_for_four_seconds() {
    let mut desk = two([50, 50]);
    // Until the end of its turn, and from then on.
    assert_eq!(desk.steps_for(4), [no_turn(0)]);
    assert_eq!(desk.steps_for(4_000), []);
    assert_eq!(desk.steps_for(1), [turn(1, 20 * MS)]);
    // It takes part again when its state changes.
    desk.steps_for(100);
    assert!(!desk.turns.slices[0].rows[0].is_active(desk.now));
    desk.reports(0, State::Waiting);
    desk.steps_for(1);
    assert!(desk.turns.slices[0].rows[0].is_active(desk.now));
}

/// Otherwise a slice could keep the card with a new process every second.
#[test]
fn another_process_in_the_slot_is_not_waited_for_longer() {
    let mut desk = two([50, 50]);
    desk.steps_for(4);
    for id in 1..5 {
        assert_eq!(desk.steps_for(1_000), []);
        desk.process(0).id = id;
    }
    assert_eq!(desk.steps_for(1), [turn(1, 20 * MS)]);
}
