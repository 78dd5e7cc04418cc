//! Beside a slice with a share that does nothing, and what was launched before anybody asked.

use super::*;

/// A slice with a share that pauses, beside one without that works.
fn pausing() -> Desk {
    let mut desk = Desk::new(&[30, 0]);
    assert_eq!(desk.step(0), [metered(1)]);
    desk.says(1, State::Runs);
    desk.works(1, MS);
    assert_eq!(desk.step(0), []);
    desk
}

#[test]
fn nobody_asks_where_no_share_is_there() {
    let mut desk = Desk::new(&[0, 100, 30, 30]);
    desk.says(0, State::Wants);
    desk.says(1, State::Runs);
    desk.row(2).processes.clear();
    desk.process(3).dead = true;
    let decision = desk.turns.step(T, &desk.view);
    assert_eq!(decision.regulated, [(0, false), (1, false), (2, false), (3, false)]);
    assert_eq!((decision.grants, decision.wake_at), (vec![], None));
}

#[test]
fn who_has_no_share_asks_but_does_not_wait_where_one_is_there() {
    let mut desk = Desk::new(&[0, 100, 30]);
    desk.says(0, State::Wants);
    let decision = desk.turns.step(T, &desk.view);
    assert_eq!(decision.regulated, [(0, true), (1, true), (2, false)]);
    let grants: Vec<_> = decision.grants.iter().map(|publish| desk.publish(publish)).collect();
    assert_eq!((grants, decision.wake_at), (vec![metered(0), metered(1)], None));
    // On another card nobody asks, and here nobody either when it has gone.
    desk.row(0).card = 8;
    assert_eq!(desk.step(MS), [own(0)]);
    desk.process(2).dead = true;
    assert_eq!(desk.step(MS), [own(1)]);
}

#[test]
fn what_was_launched_freely_ends_before_the_first_turn() {
    let mut desk = pausing();
    desk.says(0, State::Wants);
    desk.process(1).turn = 0;
    assert_eq!(desk.step(MS), [nobody(0), nobody(1)]);
    for _ in 0..38 {
        desk.works(1, MS);
        assert_eq!(desk.step(0), []);
    }
    desk.says(1, State::Wants);
    assert_eq!(desk.step(0), [turn(0, 5 * MS)]);
}

#[test]
fn what_was_had_freely_is_nobodys_claim() {
    let mut desk = pausing();
    for _ in 0..100 {
        desk.works(1, 10 * MS);
        desk.step(0);
    }
    desk.says(0, State::Wants);
    desk.says(1, State::Wants);
    assert_eq!(desk.step(MS), [nobody(0), nobody(1), turn(0, 5 * MS)]);
    desk.says(0, State::Runs);
    desk.works(0, 5 * MS);
    desk.says(0, State::Wants);
    assert_eq!(desk.step(0), [turn(1, 20 * MS)]);
}

#[test]
fn long_kernels_that_were_launched_freely_are_waited_for_forty_milliseconds() {
    let mut desk = pausing();
    desk.says(0, State::Wants);
    desk.step(0);
    for _ in 0..40 {
        desk.now += MS;
        desk.process(1).active_at = desk.now;
        assert_eq!(desk.step(0), []);
    }
    desk.process(1).active_at = desk.now;
    // The driver lets both work; the other is no more waited for, or counted.
    assert_eq!(desk.step(MS), [turn(0, 20 * MS)]);
    assert_eq!(desk.step(MS), [(0, Kind::Alone, ME, 0)]);
    // It comes back when its work has ended, and has turns again.
    desk.says(0, State::Runs);
    desk.says(1, State::Wants);
    assert_eq!(desk.step(MS), [nobody(0)]);
    desk.says(0, State::Idle);
    assert_eq!(desk.step(MS), [turn(1, 20 * MS)]);
}

/// A slice without a share, of whose first work since it is asked nothing has been measured at the
/// end of its turn: it may stand behind a queue of any length.
fn queued(told: u64) -> Desk {
    let mut desk = Desk::new(&[30, 0]);
    desk.row(0).processes.clear();
    assert_eq!(desk.step(0), []);
    desk.row(0).processes.push(ProcessView { slot: 4, ..ProcessView::default() });
    desk.says(0, State::Wants);
    desk.says(1, State::Wants);
    assert_eq!(desk.step(MS), [nobody(0), nobody(1), turn(0, 5 * MS)]);
    desk.says(0, State::Idle);
    assert_eq!(desk.step(MS), [nobody(0), turn(1, 20 * MS)]);
    desk.says(1, State::Runs);
    desk.process(1).used_ns = told;
    desk.step(15 * MS);
    desk.says(0, State::Wants);
    desk.step(5 * MS);
    desk
}

#[test]
fn a_queue_from_before_anybody_asked_is_waited_for_twenty_milliseconds() {
    for (told, patience) in [(0, 20 * MS), (MS, 4_000 * MS)] {
        let mut desk = queued(told);
        let began = desk.now;
        while desk.row(0).published.holder == Holder::Nobody {
            desk.process(1).active_at = desk.now;
            desk.step(MS);
        }
        let waited = desk.now - began;
        assert!((patience..=patience + 2 * MS).contains(&waited), "told {told}: {waited}");
    }
}

#[test]
fn a_turn_in_which_nothing_is_measured_is_billed_by_the_clock() {
    let mut desk = queued(0);
    let billed = |desk: &Desk| desk.turns.slices[1].rows[0].book.billed;
    // Since it was seen to run.
    assert_eq!(billed(&desk), 5 * MS);
    // What is measured then is not billed twice.
    desk.works(1, 20 * MS);
    desk.step(0);
    assert_eq!(billed(&desk), 25 * MS);
}

#[test]
fn a_card_shared_with_a_queue_is_shared_in_turns_when_that_is_done() {
    let mut desk = queued(0);
    for _ in 0..30 {
        desk.process(1).active_at = desk.now;
        desk.step(MS);
    }
    assert_eq!(desk.row(0).published.kind, Kind::Alone);
    desk.says(0, State::Runs);
    desk.works(1, MS);
    // It still runs: only that it has nothing more to do says that it is through.
    assert_eq!(desk.step(0), []);
    desk.says(1, State::Wants);
    assert_eq!(desk.step(MS), [nobody(0)]);
}
