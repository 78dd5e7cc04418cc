//! Tests beside a slice with a share that is idle, and of work that was launched without
//! permission.

use super::*;

/// A slice with a share that pauses, beside one without a share that works.
fn pausing() -> Desk {
    let mut desk = Desk::new(&[30, 0]);
    let process = desk.row(1).processes.pop();
    assert_eq!(desk.step(0), [all(1)]);
    desk.row(1).processes.extend(process);
    desk.reports(1, State::Running);
    desk.works(1, MS);
    assert_eq!(desk.step(0), []);
    desk
}

#[test]
fn launches_need_no_permission_without_a_share() {
    let mut desk = Desk::new(&[0, 100, 30, 30]);
    desk.reports(0, State::Waiting);
    desk.reports(1, State::Running);
    desk.row(2).processes.clear();
    desk.process(3).dead = true;
    let decision = desk.turns.step(T, &desk.view);
    assert_eq!(decision.regulated, [(0, false), (1, false), (2, false), (3, false)]);
    assert_eq!((decision.grants, decision.wake_at), (vec![], None));
}

#[test]
fn a_slice_without_a_share_is_metered_but_does_not_wait() {
    let mut desk = Desk::new(&[0, 100, 30]);
    desk.reports(0, State::Waiting);
    let decision = desk.turns.step(T, &desk.view);
    assert_eq!(decision.regulated, [(0, true), (1, true), (2, false)]);
    let grants: Vec<_> = decision.grants.iter().map(|publish| desk.publish(publish)).collect();
    assert_eq!((grants, decision.wake_at), (vec![all(0), all(1)], None));
    // On another card no permission is needed, and here none after the slice with a share has
    // exited.
    desk.row(0).card = 8;
    assert_eq!(desk.step(MS), [own(0)]);
    desk.process(2).dead = true;
    assert_eq!(desk.step(MS), [own(1)]);
}

#[test]
fn metered_work_ends_before_the_first_turn() {
    let mut desk = pausing();
    desk.reports(0, State::Waiting);
    desk.process(1).report.turn = 0;
    assert_eq!(desk.step(MS), [no_turn(0), no_turn(1)]);
    for _ in 0..38 {
        desk.works(1, MS);
        assert_eq!(desk.step(0), []);
    }
    desk.reports(1, State::Waiting);
    assert_eq!(desk.step(0), [turn(0, 5 * MS)]);
}

#[test]
fn time_used_without_turns_is_no_debt() {
    let mut desk = pausing();
    for _ in 0..100 {
        desk.works(1, 10 * MS);
        desk.step(0);
    }
    desk.reports(0, State::Waiting);
    desk.reports(1, State::Waiting);
    assert_eq!(desk.step(MS), [no_turn(0), no_turn(1), turn(0, 5 * MS)]);
    desk.reports(0, State::Running);
    desk.works(0, 5 * MS);
    desk.reports(0, State::Waiting);
    assert_eq!(desk.step(0), [no_turn(0), turn(1, 20 * MS)]);
}

#[test]
fn long_metered_kernels_are_waited_for_forty_milliseconds() {
    let mut desk = pausing();
    desk.reports(0, State::Waiting);
    desk.step(0);
    for _ in 0..40 {
        desk.works(1, MS);
        assert_eq!(desk.step(0), []);
    }
    // The driver lets both work. Others no longer wait for this slice, and it no longer counts.
    desk.works(1, MS);
    assert_eq!(desk.step(0), [turn(0, 20 * MS)]);
    assert_eq!(desk.step(MS), [alone(0)]);
    // It takes part again when its work has ended, and gets turns.
    desk.reports(0, State::Running);
    desk.reports(1, State::Waiting);
    assert_eq!(desk.step(MS), [no_turn(0)]);
    desk.reports(0, State::Idle);
    assert_eq!(desk.step(MS), [turn(1, 20 * MS)]);
}

/// A slice without a share has launched without a limit. Then one with a share starts.
fn queued() -> Desk {
    let mut desk = Desk::new(&[30, 0]);
    let process = desk.row(0).processes.pop();
    assert_eq!(desk.step(0), []);
    desk.reports(1, State::Running);
    assert_eq!(desk.step(MS), []);
    desk.row(0).processes.extend(process);
    desk.reports(0, State::Waiting);
    desk
}

#[test]
fn a_queue_launched_without_permission_is_waited_for_twenty_milliseconds() {
    let mut desk = queued();
    assert_eq!(desk.step(0), [no_turn(0), no_turn(1)]);
    assert_eq!(desk.steps_for(20), []);
    assert_eq!(desk.steps_for(1), [turn(0, 20 * MS)]);
    assert_eq!(desk.steps_for(1), [alone(0)]);
    desk.reports(0, State::Running);
    // Both learn that the driver divides the card between them.
    assert_eq!(desk.steps_for(1), [no_turn(1), alone(0)]);
    assert_eq!((desk.row(0).published.others, desk.row(1).published.others), (1, 1));
    // It still runs. Only another state shows that the queue is done.
    assert_eq!(desk.steps_for(50), []);
    desk.reports(1, State::Waiting);
    assert_eq!(desk.steps_for(1), [no_turn(0), no_turn(1)]);
}

#[test]
fn work_launched_after_that_queue_is_waited_for_as_usual() {
    let mut desk = queued();
    desk.step(0);
    desk.reports(1, State::Waiting);
    assert_eq!(desk.step(0), [turn(0, 5 * MS)]);
    desk.reports(0, State::Waiting);
    assert_eq!(desk.steps_for(5), [no_turn(0), turn(1, 20 * MS)]);
    desk.reports(1, State::Running);
    assert_eq!(desk.steps_for(20), [no_turn(1)]);
    assert_eq!(desk.steps_for(3_999), []);
}
