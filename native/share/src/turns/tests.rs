//! Tests of single rules, with exact times. tests/simulation tests how the rules work together.

mod billing;
mod gangs;
mod garbage;
mod lengths;
mod metered;
mod silence;
mod waits;

use super::*;
use crate::{Mode, Priority, Regime};

const T: u64 = 1_000_000 * MS;

/// The files of some slices on card 7, each with one process, and a coordinator for them.
struct Desk {
    turns: Turns,
    view: View,
    now: u64,
    wake_at: Option<u64>,
}

/// A published grant: slice, kind, holder and the length of the turn.
type Published = (u64, Kind, Holder, u64);

impl Desk {
    /// Slices with hard shares.
    fn new(shares: &[u32]) -> Self {
        let slices = shares.iter().enumerate().map(|(key, share)| {
            let regime = Regime { share: *share, ..Regime::default() };
            let processes = vec![ProcessView { slot: 4, ..ProcessView::default() }];
            let row = SliceCardView { card: 7, regime, processes, ..SliceCardView::default() };
            SliceView { key: key as u64, rows: vec![row], ..SliceView::default() }
        });
        let view = View { slices: slices.collect() };
        Self { turns: Turns::new(), view, now: T, wake_at: None }
    }

    fn row(&mut self, slice: usize) -> &mut SliceCardView {
        &mut self.view.slices[slice].rows[0]
    }

    fn process(&mut self, slice: usize) -> &mut ProcessView {
        &mut self.row(slice).processes[0]
    }

    /// The first process of a row reports, having seen the published grant. Its turn is filled in.
    fn reports_on(&mut self, slice: usize, row: usize, report: Report) {
        let now = self.now;
        let row = &mut self.view.slices[slice].rows[row];
        let process = &mut row.processes[0];
        process.report = Report { turn: row.published.turn, ..report };
        process.active_at = now;
    }

    fn reports(&mut self, slice: usize, state: State) {
        self.reports_on(slice, 0, Report { state, ..Report::default() });
    }

    /// A launch of the process waits that takes `needs_ns`.
    fn needs(&mut self, slice: usize, needs_ns: u64) {
        let report = Report { state: State::Waiting, needs_ns, ..Report::default() };
        self.reports_on(slice, 0, report);
    }

    /// The process of a slice works until `now`, and its meter has checked it.
    fn works(&mut self, slice: usize, ns: u64) {
        self.now += ns;
        self.process(slice).active_at = self.now;
    }

    /// Steps every ms. All processes have a heartbeat, and waiting ones see the published grants.
    fn steps_for(&mut self, ms: u64) -> Vec<Published> {
        let mut published = Vec::new();
        for _ in 0..ms {
            self.now += MS;
            let now = self.now;
            for row in self.view.slices.iter_mut().flat_map(|slice| &mut slice.rows) {
                for process in &mut row.processes {
                    process.active_at = now;
                    if process.report.state == State::Waiting {
                        process.report.turn = row.published.turn;
                    }
                }
            }
            published.extend(self.step(0));
        }
        published
    }

    /// A step after `passed`. It returns the published grants.
    fn step(&mut self, passed: u64) -> Vec<Published> {
        self.now += passed;
        let mut published = Vec::new();
        loop {
            let decision = self.turns.step(self.now, &self.view);
            self.wake_at = decision.wake_at;
            published.extend(decision.grants.iter().map(|publish| self.publish(publish)));
            if self.wake_at != Some(self.now) {
                return published;
            }
        }
    }

    fn publish(&mut self, publish: &GrantUpdate) -> Published {
        let now = self.now;
        let slice = self.view.slices.iter_mut().find(|slice| slice.key == publish.slice).unwrap();
        let published = &mut slice.rows[publish.row].published;
        assert_eq!(publish.grant.turn, published.turn.wrapping_add(1));
        *published = publish.grant;
        let Grant { kind, holder, until, .. } = publish.grant;
        (publish.slice, kind, holder, until.saturating_sub(now))
    }

    fn has_turn(&mut self, slice: usize) -> bool {
        self.row(slice).published.holder != Holder::None
    }

    fn depth(&mut self, slice: usize) -> u64 {
        self.row(slice).published.depth
    }

    fn balance(&self, slice: u64) -> i64 {
        self.turns.balance(slice, 0).unwrap()
    }
}

fn turn(slice: u64, length: u64) -> Published {
    (slice, Kind::Turn, Holder::All, length)
}

fn no_turn(slice: u64) -> Published {
    (slice, Kind::Turn, Holder::None, 0)
}

/// The process has the card alone, and its own bucket limits it.
fn alone(slice: u64) -> Published {
    (slice, Kind::Alone, Holder::Slot(4), 0)
}

/// All processes launch without turns, whether the slice is alone or metered.
fn all(slice: u64) -> Published {
    (slice, Kind::Alone, Holder::All, 0)
}

fn own(slice: u64) -> Published {
    (slice, Kind::Own, Holder::All, 0)
}

/// Two slices that both wait; the first has the first turn and works.
fn two(shares: [u32; 2]) -> Desk {
    let mut desk = Desk::new(&shares);
    desk.reports(0, State::Waiting);
    desk.reports(1, State::Waiting);
    assert_eq!(desk.step(0), [no_turn(0), no_turn(1), turn(0, 5 * MS)]);
    desk.reports(0, State::Running);
    assert_eq!(desk.step(MS), []);
    desk
}

/// The same, but the second has the second turn of 20 ms and works, and the first waits. It is 6
/// ms later.
fn second_of_two(shares: [u32; 2]) -> Desk {
    let mut desk = two(shares);
    desk.works(0, 5 * MS);
    desk.reports(0, State::Waiting);
    assert_eq!(desk.step(0), [no_turn(0), turn(1, 20 * MS)]);
    desk.reports(1, State::Running);
    desk.reports(0, State::Waiting);
    desk
}

#[test]
fn a_slice_alone_has_the_card_until_another_one_starts() {
    let mut desk = Desk::new(&[30, 0]);
    desk.reports(0, State::Waiting);
    let decision = desk.turns.step(T, &desk.view);
    assert_eq!(decision.regulated, [(0, true), (1, true)]);
    let grants: Vec<_> = decision.grants.iter().map(|publish| desk.publish(publish)).collect();
    assert_eq!(grants, [no_turn(1), alone(0)]);
    desk.reports(0, State::Running);
    assert_eq!(desk.step(MS), []);
    // The other gets it when the running work has ended.
    desk.reports(1, State::Waiting);
    assert_eq!(desk.step(MS), [no_turn(0)]);
    assert_eq!(desk.step(MS), []);
    desk.reports(0, State::Waiting);
    assert_eq!(desk.step(MS), [turn(1, 20 * MS)]);
}

#[test]
fn a_soft_share_alone_is_unlimited() {
    let mut desk = Desk::new(&[30, 0]);
    desk.row(0).regime.mode = Mode::Soft;
    desk.reports(0, State::Waiting);
    assert_eq!(desk.step(0), [no_turn(1), all(0)]);
}

#[test]
fn a_pause_changes_nothing_and_a_long_one_ends_regulation() {
    let mut desk = Desk::new(&[30, 0]);
    desk.reports(0, State::Running);
    desk.step(0);
    desk.reports(0, State::Idle);
    assert_eq!(desk.step(99 * MS), []);
    assert_eq!(desk.step(2 * MS), [own(0), all(1)]);
    assert_eq!(desk.wake_at, None);
}

#[test]
fn the_next_turn_waits_for_the_end_of_running_work() {
    let mut desk = two([50, 50]);
    desk.works(0, 4 * MS);
    assert_eq!(desk.step(0), [no_turn(0)]);
    desk.works(0, 4 * MS);
    assert_eq!(desk.step(0), []);
    desk.reports(0, State::Waiting);
    assert_eq!(desk.step(0), [turn(1, 20 * MS)]);
}

#[test]
fn a_turn_that_is_given_up_goes_to_the_next_at_once() {
    let mut desk = two([50, 50]);
    desk.reports(0, State::Idle);
    assert_eq!(desk.step(MS), [no_turn(0), turn(1, 20 * MS)]);
}

#[test]
fn a_revoked_card_is_read_once_more_before_it_is_granted() {
    let mut desk = two([50, 50]);
    desk.reports(0, State::Idle);
    desk.now += MS;
    let decision = desk.turns.step(desk.now, &desk.view);
    let grants: Vec<_> = decision.grants.iter().map(|publish| desk.publish(publish)).collect();
    assert_eq!((grants, decision.wake_at), (vec![no_turn(0)], Some(desk.now)));
    // It has made a launch before it saw the revocation. The other waits for this launch.
    desk.process(0).report.state = State::Running;
    assert_eq!(desk.step(0), []);
    desk.reports(0, State::Waiting);
    assert_eq!(desk.step(MS), [turn(1, 20 * MS)]);
}

#[test]
fn a_slice_keeps_its_turn_while_one_of_its_processes_works() {
    let mut desk = two([50, 50]);
    let other = ProcessView { slot: 9, ..*desk.process(0) };
    desk.row(0).processes.push(other);
    desk.step(0);
    desk.reports(0, State::Idle);
    assert_eq!(desk.step(MS), []);
    desk.row(0).processes[1].report.state = State::Idle;
    assert_eq!(desk.step(MS), [no_turn(0), turn(1, 20 * MS)]);
}

#[test]
fn slices_that_always_want_more_never_cut_each_other() {
    for shares in [[50, 50], [90, 10]] {
        let mut desk = second_of_two(shares);
        for _ in 0..19 {
            desk.works(1, MS);
            desk.reports(0, State::Waiting);
            assert_eq!(desk.step(0), [], "{shares:?}");
        }
        desk.works(1, MS);
        assert_eq!(desk.step(0), [no_turn(1)], "{shares:?}");
    }
}

/// Two slices, of which the second has its turn since T + 2 ms and the first pauses.
fn paused(shares: [u32; 2]) -> Desk {
    let mut desk = two(shares);
    desk.reports(0, State::Idle);
    assert_eq!(desk.step(MS), [no_turn(0), turn(1, 20 * MS)]);
    desk.reports(1, State::Running);
    desk
}

#[test]
fn a_slice_that_returns_from_a_pause_ends_the_turn_of_one_that_has_had_more() {
    let mut desk = paused([50, 50]);
    desk.works(1, 9 * MS);
    assert_eq!(desk.step(0), []);
    desk.reports(0, State::Waiting);
    assert_eq!(desk.step(MS), [no_turn(1)]);
    desk.reports(1, State::Waiting);
    assert_eq!(desk.step(0), [turn(0, 20 * MS)]);
}

#[test]
fn a_slice_that_returns_from_a_pause_does_not_end_the_turn_of_one_that_has_had_less() {
    let mut desk = two([50, 50]);
    desk.works(0, 44 * MS);
    desk.step(0);
    desk.reports(0, State::Idle);
    assert_eq!(desk.step(0), [turn(1, 20 * MS)]);
    desk.reports(1, State::Running);
    desk.works(1, 9 * MS);
    desk.reports(0, State::Waiting);
    assert_eq!(desk.step(0), []);
}

#[test]
fn a_slice_that_returns_from_a_pause_ends_the_turn_of_a_lower_priority() {
    for priority in [Priority::Low, Priority::Normal, Priority::High] {
        let mut desk = two([50, 50]);
        desk.row(0).regime.priority = priority;
        // It has had much more time than the other.
        desk.works(0, 44 * MS);
        desk.step(0);
        desk.reports(0, State::Idle);
        assert_eq!(desk.step(0), [turn(1, 20 * MS)]);
        desk.row(0).regime.mode = Mode::Soft;
        desk.reports(1, State::Running);
        desk.works(1, MS);
        desk.reports(0, State::Waiting);
        let expected = if priority == Priority::High { vec![no_turn(1)] } else { vec![] };
        assert_eq!(desk.step(0), expected, "{priority:?}");
    }
}

#[test]
fn of_the_slices_that_may_have_the_card_the_highest_priority_goes_first() {
    let mut desk = Desk::new(&[10, 10]);
    desk.row(1).regime.priority = Priority::High;
    desk.reports(0, State::Waiting);
    desk.reports(1, State::Waiting);
    // It does not wait for newcomers of a lower priority.
    assert_eq!(desk.step(0), [no_turn(0), no_turn(1), turn(1, 20 * MS)]);
    desk.reports(1, State::Running);
    desk.works(1, 19 * MS);
    // It has no credit left.
    assert_eq!(desk.step(0), []);
    desk.reports(1, State::Waiting);
    assert_eq!(desk.step(MS), [no_turn(1), turn(0, 20 * MS)]);
}

#[test]
fn a_newcomer_is_next() {
    let mut desk = Desk::new(&[50, 20, 20]);
    desk.row(2).processes.clear();
    desk.reports(0, State::Waiting);
    desk.reports(1, State::Waiting);
    assert_eq!(desk.step(0), [no_turn(0), no_turn(1), no_turn(2), turn(0, 5 * MS)]);
    desk.reports(0, State::Running);
    desk.works(0, 5 * MS);
    desk.reports(0, State::Waiting);
    assert_eq!(desk.step(0), [no_turn(0), turn(1, 20 * MS)]);
    desk.reports(1, State::Running);
    desk.works(1, 20 * MS);
    desk.reports(1, State::Waiting);
    desk.row(2).processes.push(ProcessView { slot: 4, ..ProcessView::default() });
    desk.reports(2, State::Waiting);
    let [ended, next] = desk.step(0)[..] else { panic!() };
    assert_eq!((ended, next.0, next.2), (no_turn(1), 2, Holder::All));
}

#[test]
fn a_dead_holder_is_not_waited_for() {
    let mut desk = two([50, 50]);
    desk.process(0).dead = true;
    // The other is the only one then.
    assert_eq!(desk.step(MS), [no_turn(0), alone(1)]);
}

#[test]
fn a_turn_is_prolonged_for_a_holder_that_is_also_next() {
    let mut desk = second_of_two([90, 10]);
    desk.works(1, 20 * MS);
    desk.reports(1, State::Waiting);
    assert_eq!(desk.step(0), [no_turn(1), turn(0, 20 * MS)]);
    desk.reports(0, State::Running);
    desk.works(0, 18 * MS);
    assert_eq!(desk.step(0), []);
    desk.works(0, MS);
    assert_eq!(desk.step(0), [turn(0, 20 * MS)]);
    // Its heartbeat stops: it loses the turn.
    assert_eq!(desk.step(11 * MS), [no_turn(0)]);
}

#[test]
fn a_new_coordinator_continues_where_the_old_one_was_killed() {
    let mut desk = two([50, 50]);
    desk.turns = Turns::new();
    desk.works(0, 2 * MS);
    // The turn is revoked, and the other waits for its work.
    assert_eq!(desk.step(0), [no_turn(0)]);
    desk.reports(0, State::Waiting);
    assert_eq!(desk.step(MS), [turn(1, 20 * MS)]);
}

#[test]
fn a_removed_slice_is_not_waited_for() {
    let mut desk = two([50, 50]);
    desk.view.slices.remove(0);
    assert_eq!(desk.step(MS), [alone(1)]);
}

#[test]
fn a_share_that_changes_changes_the_turns() {
    let mut desk = two([50, 50]);
    desk.row(0).regime.share = 0;
    desk.row(1).regime.share = 0;
    assert_eq!(desk.step(MS), [own(0), own(1)]);
    desk.row(1).regime = Regime { share: 40, mode: Mode::Soft, priority: Priority::High };
    assert_eq!(desk.step(MS), [no_turn(0), no_turn(1)]);
    desk.reports(0, State::Waiting);
    assert_eq!(desk.step(MS), [turn(1, 20 * MS)]);
}
