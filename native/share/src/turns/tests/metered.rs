//! Tests beside a slice with a share that is idle, and of work that was launched without
//! permission.

use super::*;

/// A slice with a share that pauses, beside one without a share that works.
fn pausing() -> Desk {
    let mut desk = Desk::new(&[30, 0]);
    assert_eq!(desk.step(0), [metered(1)]);
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
    assert_eq!((grants, decision.wake_at), (vec![metered(0), metered(1)], None));
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
    desk.process(1).turn = 0;
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
    assert_eq!(desk.step(0), [turn(1, 20 * MS)]);
}

#[test]
fn long_metered_kernels_are_waited_for_forty_milliseconds() {
    let mut desk = pausing();
    desk.reports(0, State::Waiting);
    desk.step(0);
    for _ in 0..40 {
        desk.now += MS;
        desk.process(1).active_at = desk.now;
        assert_eq!(desk.step(0), []);
    }
    desk.process(1).active_at = desk.now;
    // The driver lets both work; the other slice is not waited for, or counted, any more.
    assert_eq!(desk.step(MS), [turn(0, 20 * MS)]);
    assert_eq!(desk.step(MS), [(0, Kind::Alone, ME, 0)]);
    // It takes part again when its work has ended, and gets turns.
    desk.reports(0, State::Running);
    desk.reports(1, State::Waiting);
    assert_eq!(desk.step(MS), [no_turn(0)]);
    desk.reports(0, State::Idle);
    assert_eq!(desk.step(MS), [turn(1, 20 * MS)]);
}

/// A slice without a share, of whose first metered work nothing has been measured at the end of its
/// turn: the work may be behind a queue of any length.
fn queued(reported: u64) -> Desk {
    let mut desk = Desk::new(&[30, 0]);
    desk.row(0).processes.clear();
    assert_eq!(desk.step(0), []);
    desk.row(0).processes.push(ProcessView { slot: 4, ..ProcessView::default() });
    desk.reports(0, State::Waiting);
    desk.reports(1, State::Waiting);
    assert_eq!(desk.step(MS), [no_turn(0), no_turn(1), turn(0, 5 * MS)]);
    desk.reports(0, State::Idle);
    assert_eq!(desk.step(MS), [no_turn(0), turn(1, 20 * MS)]);
    desk.reports(1, State::Running);
    desk.process(1).used_ns = reported;
    desk.step(15 * MS);
    desk.reports(0, State::Waiting);
    desk.step(5 * MS);
    desk
}

#[test]
fn a_queue_launched_without_permission_is_waited_for_twenty_milliseconds() {
    for (reported, patience) in [(0, 20 * MS), (MS, 4_000 * MS)] {
        let mut desk = queued(reported);
        let began = desk.now;
        while desk.row(0).published.holder == Holder::None {
            desk.process(1).active_at = desk.now;
            desk.step(MS);
        }
        let waited = desk.now - began;
        assert!((patience..=patience + 2 * MS).contains(&waited), "reported {reported}: {waited}");
    }
}

#[test]
fn a_turn_in_which_nothing_is_measured_is_billed_by_the_clock() {
    let mut desk = queued(0);
    let billed = |desk: &Desk| desk.turns.slices[1].rows[0].ledger.billed;
    // Since it was first seen running.
    assert_eq!(billed(&desk), 5 * MS);
    // The time that is measured then is not billed twice.
    desk.works(1, 20 * MS);
    desk.step(0);
    assert_eq!(billed(&desk), 25 * MS);
}

#[test]
fn a_card_shared_with_a_queue_is_shared_in_turns_when_the_queue_is_done() {
    let mut desk = queued(0);
    for _ in 0..30 {
        desk.process(1).active_at = desk.now;
        desk.step(MS);
    }
    assert_eq!(desk.row(0).published.kind, Kind::Alone);
    desk.reports(0, State::Running);
    desk.works(1, MS);
    // It still runs: only another state shows that the queue is done.
    assert_eq!(desk.step(0), []);
    desk.reports(1, State::Waiting);
    assert_eq!(desk.step(MS), [no_turn(0)]);
}
