//! Tests of the debts of processes that have exited.

use super::*;

/// The ways in which a process with running work ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// Its lock is free.
    Dead,
    /// Its slot is free again, and its time is in the account's sums.
    Reaped,
    /// Another process has its slot.
    Replaced,
}

impl Desk {
    fn ends(&mut self, slice: usize, end: End) {
        let row = self.row(slice);
        let ended = row.processes.pop().unwrap_or_default();
        if !matches!(end, End::Dead) {
            row.departed_ns += ended.used_ns;
        }
        row.processes.extend(match end {
            End::Dead => Some(ProcessView { dead: true, ..ended }),
            End::Reaped => None,
            End::Replaced => Some(ProcessView { slot: 4, id: 1, ..ProcessView::default() }),
        });
    }
}

#[test]
fn the_work_of_a_process_that_dies_is_billed_up_to_its_death() {
    for end in [End::Dead, End::Reaped, End::Replaced] {
        let mut desk = Desk::new(&[10]);
        desk.reports(0, State::Running);
        desk.step(0);
        let billed = |desk: &Desk| desk.turns.slices[0].rows[0].ledger.billed;
        // It has reported 30 ms of its 100.
        for reported in [30, 0] {
            desk.process(0).used_ns += reported * MS;
            desk.now += 49 * MS;
            desk.process(0).active_at = desk.now;
            desk.step(MS);
        }
        assert_eq!(billed(&desk), 30 * MS);
        desk.ends(0, end);
        desk.step(0);
        assert_eq!(billed(&desk), 80 * MS, "{end:?}");
        // Once, whatever happens to its slot.
        desk.ends(0, End::Replaced);
        desk.step(10 * MS);
        assert_eq!(billed(&desk), 80 * MS, "{end:?}");
        // No new process of the slice launches before it is paid; other slices are not affected.
        assert_eq!(desk.row(0).published.holder, Holder::None);
        desk.step(800 * MS);
        desk.step(0);
        assert_eq!(desk.row(0).published.kind, Kind::Own, "{end:?}");
    }
}

#[test]
fn the_last_report_of_a_dying_process_is_billed_once() {
    for end in [End::Dead, End::Reaped, End::Replaced] {
        let mut desk = Desk::new(&[10]);
        desk.reports(0, State::Running);
        desk.step(0);
        desk.works(0, 40 * MS);
        desk.now += 10 * MS;
        desk.ends(0, end);
        desk.step(0);
        assert_eq!(desk.turns.slices[0].rows[0].ledger.billed, 50 * MS, "{end:?}");
    }
}

#[test]
fn a_process_killed_while_stopped_is_billed_for_no_more_than_can_have_run() {
    let mut desk = Desk::new(&[10]);
    desk.reports(0, State::Running);
    for _ in 0..100 {
        desk.step(10 * MS);
    }
    desk.process(0).dead = true;
    desk.step(0);
    assert_eq!(desk.turns.slices[0].rows[0].ledger.billed, 40 * MS);
}

#[test]
fn a_process_that_dies_with_nothing_in_flight_owes_nothing() {
    for state in [State::Idle, State::Waiting] {
        let mut desk = Desk::new(&[10]);
        desk.reports(0, State::Running);
        desk.step(0);
        desk.works(0, MS);
        desk.reports(0, state);
        desk.step(0);
        desk.process(0).dead = true;
        desk.step(50 * MS);
        assert_eq!(desk.turns.slices[0].rows[0].ledger.billed, MS, "{state:?}");
    }
}

/// Its own bucket does not have the debts of the processes before it.
#[test]
fn a_process_waits_until_the_time_of_an_exited_one_is_paid() {
    let mut desk = Desk::new(&[10]);
    desk.reports(0, State::Running);
    desk.step(0);
    desk.works(0, 20 * MS);
    desk.reports(0, State::Idle);
    desk.step(0);
    desk.ends(0, End::Replaced);
    desk.step(MS);
    assert_eq!(desk.row(0).published.holder, Holder::None);
    desk.reports(0, State::Waiting);
    assert_eq!(desk.step(MS), []);
    // 20 ms are 200 ms of a tenth, of which some have passed.
    let positive_at = desk.wake_at.unwrap();
    assert_eq!(desk.step(positive_at - desk.now - MS), []);
    while desk.row(0).published.holder == Holder::None {
        desk.step(MS);
    }
    assert_eq!((desk.now, desk.row(0).published.kind), (T + 200 * MS, Kind::Alone));
}

/// Its neighbour's processes run for long, are killed, and start again.
#[test]
fn a_slice_that_waited_is_owed_its_time_also_while_it_is_alone() {
    let mut desk = two([50, 50]);
    desk.reports(1, State::Waiting);
    for _ in 0..100 {
        desk.now += 9 * MS;
        desk.process(0).active_at = desk.now;
        desk.step(MS);
    }
    // It has waited for a second, and is owed half of it: it gets that in turns.
    desk.ends(0, End::Reaped);
    let balance = |desk: &Desk| desk.turns.balance(1, 0).unwrap();
    assert!(balance(&desk) >= 450 * MS as i64, "{}", balance(&desk));
    desk.step(0);
    let mut had = 0;
    while desk.row(1).published.kind == Kind::Turn {
        assert_eq!(desk.row(1).published.holder, ME);
        desk.reports(1, State::Running);
        desk.works(1, 5 * MS);
        desk.step(0);
        had += 5;
    }
    assert!((850..=1_100).contains(&had), "{had} ms");
    assert_eq!(desk.row(1).published.kind, Kind::Alone);
    // Alone its own bucket enforces its share, so no debt grows and the grant does not change.
    for _ in 0..50 {
        desk.works(1, 5 * MS);
        assert_eq!(desk.step(5 * MS), []);
    }
}
