//! Tests of single rules, with exact times. tests/simulation tests how the rules work together.

mod deaths;
mod metered;
mod waits;

use super::*;
use crate::prng::Prng;
use crate::{Mode, Priority, Regime};

const T: u64 = 1_000_000 * MS;

/// The files of some slices on card 7, each with one process, and a coordinator for them.
struct Desk {
    turns: Turns,
    view: View,
    now: u64,
    wake_at: Option<u64>,
}

impl Desk {
    fn new(shares: &[u32]) -> Self {
        let slices = shares.iter().enumerate().map(|(key, share)| {
            let regime = Regime { share: *share, ..Regime::default() };
            let processes = vec![ProcessView { slot: 4, ..ProcessView::default() }];
            let row = SliceCardView { card: 7, regime, processes, ..SliceCardView::default() };
            SliceView { key: key as u64, rows: vec![row] }
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

    /// The process of a slice reports a state, having seen the published grant.
    fn reports(&mut self, slice: usize, state: State) {
        let (turn, now) = (self.row(slice).published.turn, self.now);
        let process = self.process(slice);
        (process.state, process.turn, process.active_at) = (state, turn, now);
    }

    /// The process of a slice works until `now`, and its meter has checked it.
    fn works(&mut self, slice: usize, ns: u64) {
        self.now += ns;
        let now = self.now;
        let process = self.process(slice);
        process.used_ns += ns;
        process.active_at = now;
    }

    /// A step after `passed`. It returns the published grants: slice, kind, holder and the turn's
    /// length.
    fn step(&mut self, passed: u64) -> Vec<(u64, Kind, Holder, u64)> {
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

    fn publish(&mut self, publish: &GrantUpdate) -> (u64, Kind, Holder, u64) {
        let now = self.now;
        let slice = self.view.slices.iter_mut().find(|slice| slice.key == publish.slice).unwrap();
        let published = &mut slice.rows[publish.row].published;
        assert_eq!(publish.grant.turn, published.turn.wrapping_add(1));
        *published = publish.grant;
        let Grant { kind, holder, until, .. } = publish.grant;
        (publish.slice, kind, holder, until.saturating_sub(now))
    }
}

const ME: Holder = Holder::Slot(4);

fn turn(slice: u64, length: u64) -> (u64, Kind, Holder, u64) {
    (slice, Kind::Turn, ME, length)
}

fn no_turn(slice: u64) -> (u64, Kind, Holder, u64) {
    (slice, Kind::Turn, Holder::None, 0)
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

fn metered(slice: u64) -> (u64, Kind, Holder, u64) {
    (slice, Kind::Alone, Holder::All, 0)
}

fn own(slice: u64) -> (u64, Kind, Holder, u64) {
    (slice, Kind::Own, Holder::All, 0)
}

#[test]
fn a_slice_alone_has_the_card_until_another_one_starts() {
    let mut desk = Desk::new(&[30, 0]);
    desk.reports(0, State::Waiting);
    let decision = desk.turns.step(T, &desk.view);
    assert_eq!(decision.regulated, [(0, true), (1, true)]);
    let grants: Vec<_> = decision.grants.iter().map(|publish| desk.publish(publish)).collect();
    assert_eq!(grants, [no_turn(1), (0, Kind::Alone, ME, 0)]);
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
fn a_pause_changes_nothing_and_a_long_one_ends_regulation() {
    let mut desk = Desk::new(&[30, 0]);
    desk.reports(0, State::Running);
    desk.step(0);
    desk.reports(0, State::Idle);
    assert_eq!(desk.step(99 * MS), []);
    assert_eq!(desk.step(2 * MS), [own(0), metered(1)]);
    assert_eq!(desk.wake_at, None);
}

#[test]
fn the_next_turn_waits_for_the_end_of_running_work() {
    let mut desk = two([50, 50]);
    desk.works(0, 4 * MS);
    assert_eq!(desk.step(3 * MS), []);
    desk.works(0, 2 * MS);
    assert_eq!(desk.step(0), []);
    desk.reports(0, State::Waiting);
    assert_eq!(desk.step(0), [turn(1, 20 * MS)]);
}

#[test]
fn a_turn_that_is_given_up_goes_to_the_next_at_once() {
    let mut desk = two([50, 50]);
    desk.reports(0, State::Idle);
    assert_eq!(desk.step(MS), [no_turn(0), turn(1, 20 * MS)]);
    // The first returns; the second has had the shortest turn by then, and more than its part.
    desk.reports(1, State::Running);
    desk.reports(0, State::Waiting);
    assert_eq!(desk.step(MS), []);
    desk.works(1, 4 * MS);
    assert_eq!(desk.step(0), [no_turn(1)]);
}

#[test]
fn a_revoked_card_is_read_once_more_before_it_is_granted() {
    let mut desk = two([50, 50]);
    desk.reports(0, State::Idle);
    desk.now += MS;
    let decision = desk.turns.step(desk.now, &desk.view);
    let grants: Vec<_> = decision.grants.iter().map(|publish| desk.publish(publish)).collect();
    assert_eq!((grants, decision.wake_at), (vec![no_turn(0)], Some(desk.now)));
    // It has launched before it saw the revocation: the other waits for that.
    desk.process(0).state = State::Running;
    assert_eq!(desk.step(0), []);
    desk.reports(0, State::Waiting);
    assert_eq!(desk.step(MS), [turn(1, 20 * MS)]);
}

#[test]
fn a_process_with_nothing_to_do_passes_its_turn_on_within_the_slice() {
    let mut desk = two([50, 50]);
    let other = ProcessView { slot: 9, ..*desk.process(0) };
    desk.row(0).processes.push(ProcessView { state: State::Waiting, ..other });
    desk.view.slices.truncate(1);
    desk.row(0).processes[0].state = State::Idle;
    let now_has = (0, Kind::Turn, Holder::Slot(9), 20 * MS);
    assert_eq!(desk.step(MS), [no_turn(0), now_has]);
}

#[test]
fn a_slice_that_always_waits_cuts_no_turn_short() {
    let mut desk = two([50, 50]);
    desk.works(0, 5 * MS);
    desk.reports(0, State::Waiting);
    assert_eq!(desk.step(0), [turn(1, 20 * MS)]);
    desk.reports(1, State::Running);
    for _ in 0..9 {
        desk.works(1, 2 * MS);
        assert_eq!(desk.step(0), []);
    }
}

#[test]
fn a_dead_holder_is_not_waited_for() {
    let mut desk = two([50, 50]);
    desk.process(0).dead = true;
    // The other is the only one then.
    assert_eq!(desk.step(MS), [no_turn(0), (1, Kind::Alone, ME, 0)]);
}

#[test]
fn a_process_that_does_not_respond_gets_no_turns_until_it_does() {
    let mut desk = Desk::new(&[50, 25, 25]);
    (0..3).for_each(|slice| desk.reports(slice, State::Waiting));
    desk.process(2).active_at = 0;
    assert_eq!(desk.step(0), [no_turn(0), no_turn(1), no_turn(2), turn(0, 5 * MS)]);
    assert_eq!(desk.step(5 * MS), [turn(1, 5 * MS)]);
    // Now only the third may be alive, and at the next step it is the only one.
    assert_eq!(desk.step(5 * MS), [turn(2, 20 * MS)]);
    assert_eq!(desk.step(MS), [(2, Kind::Alone, ME, 0)]);
    desk.reports(0, State::Waiting);
    desk.reports(2, State::Running);
    assert_eq!(desk.step(MS), [no_turn(2)]);
    desk.reports(2, State::Waiting);
    assert_eq!(desk.step(MS), [turn(0, 20 * MS)]);
}

#[test]
fn a_stopped_process_is_waited_for_fifty_milliseconds_and_a_long_kernel_for_four_seconds() {
    for (heartbeat, patience) in [(false, 50 * MS), (true, 4_000 * MS)] {
        let mut desk = two([50, 50]);
        let began = desk.now;
        while desk.row(1).published.holder == Holder::None {
            assert!(desk.now - began < patience + 20 * MS, "heartbeat: {heartbeat}");
            if heartbeat {
                desk.process(0).active_at = desk.now;
            }
            desk.step(MS);
        }
        assert!(desk.now - began >= patience, "heartbeat: {heartbeat}");
    }
}

#[test]
fn a_turn_is_prolonged_only_for_a_holder_that_works() {
    let mut desk = two([90, 10]);
    desk.works(0, 4 * MS);
    desk.reports(0, State::Waiting);
    desk.step(MS);
    desk.reports(1, State::Running);
    desk.works(1, 20 * MS);
    desk.reports(1, State::Waiting);
    assert_eq!(desk.step(0), [turn(0, 20 * MS)]);
    desk.reports(0, State::Running);
    desk.works(0, 19 * MS);
    assert_eq!(desk.step(0), [turn(0, 20 * MS)]);
    // Its heartbeat stops: the turn expires.
    assert_eq!(desk.step(19 * MS), [turn(0, 20 * MS)]);
    assert_eq!(desk.step(19 * MS), [turn(0, 20 * MS)]);
    assert_eq!(desk.step(19 * MS), []);
}

#[test]
fn a_new_coordinator_continues_where_the_old_one_was_killed() {
    let mut desk = two([50, 50]);
    desk.turns = Turns::new();
    desk.works(0, 2 * MS);
    // The turn is revoked, and its work is waited for.
    assert_eq!(desk.step(0), [no_turn(0)]);
    desk.reports(0, State::Waiting);
    assert_eq!(desk.step(MS).len(), 1);
}

#[test]
fn a_removed_slice_is_not_waited_for() {
    let mut desk = two([50, 50]);
    desk.view.slices.remove(0);
    assert_eq!(desk.step(MS), [(1, Kind::Alone, ME, 0)]);
}

#[test]
fn no_more_is_billed_than_time_has_passed() {
    let mut desk = two([50, 50]);
    let balance = |desk: &Desk| desk.turns.balance(0, 0).unwrap();
    let before = balance(&desk);
    desk.process(0).used_ns = u64::MAX / 2;
    desk.step(2 * MS);
    // 3 ms have passed since its turn began.
    assert_eq!(balance(&desk) - before, MS as i64 - 3 * MS as i64);
    // Another process in the slot, and the first one's time in the account's sums.
    desk.process(0).used_ns = 0;
    desk.row(0).departed_ns = u64::MAX / 2;
    desk.step(0);
    assert_eq!(balance(&desk) - before, MS as i64 - 3 * MS as i64);
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

/// With random bytes in the files there is no panic, turn numbers have no gaps, no card has two
/// holders, and soon nothing is left to publish.
#[test]
fn garbage_in_the_files_breaks_no_rule() {
    for seed in 0..60 {
        let mut prng = Prng::new(seed);
        let mut desk = Desk::new(&[30, 0, 60, 10]);
        let wild = |prng: &mut Prng, value: u64| match prng.below(30) {
            0 => u64::MAX,
            1 => 0,
            2 => prng.next(),
            _ => value + prng.below(3 * MS),
        };
        for (key, slice) in desk.view.slices.iter_mut().enumerate() {
            let mut second = slice.rows[0].clone();
            second.card = 8;
            second.published.turn = u32::MAX - 2;
            if key % 2 == 0 {
                slice.rows.push(second);
            }
        }
        let mut looks = 0;
        for _ in 0..1_500 {
            desk.now += prng.below(6 * MS);
            let now = desk.now;
            let row = prng.below(4) as usize;
            let rows = &mut desk.view.slices[row].rows;
            let at = prng.below(rows.len() as u64) as usize;
            let row = &mut rows[at];
            if prng.below(100) == 0 {
                row.regime.share = prng.below(110) as u32;
            }
            if prng.below(50) == 0 {
                let slot = prng.below(4) as u16 + 4;
                row.processes.retain(|process| process.slot != slot);
                row.processes.push(ProcessView { slot, ..ProcessView::default() });
            }
            let turn = row.published.turn;
            for process in &mut row.processes {
                (_, process.state) = State::from_word(prng.below(4));
                process.turn = if prng.below(10) == 0 { prng.next() as u32 } else { turn };
                process.active_at = wild(&mut prng, now);
                process.used_ns = wild(&mut prng, process.used_ns.min(1 << 60));
                process.dead = prng.below(40) == 0;
            }
            desk.step(0);
            assert!(desk.wake_at.is_none_or(|wake_at| wake_at > now));
            for card in [7, 8] {
                let rows = desk.view.slices.iter().flat_map(|slice| &slice.rows);
                let usable = rows.filter(|row| row.card == card).map(|row| row.published);
                let usable = usable.filter(|grant| match grant.kind {
                    Kind::Own => false,
                    Kind::Alone => true,
                    Kind::Turn => grant.holder != Holder::None && grant.until > now,
                });
                let is_metered =
                    |grant: &Grant| (grant.kind, grant.holder) == (Kind::Alone, Holder::All);
                let (metered, held): (Vec<_>, Vec<_>) = usable.partition(is_metered);
                let sharers = metered.len().min(1) + held.len();
                assert!(sharers <= 1, "seed {seed}, card {card}: {metered:?} {held:?}");
            }
            // A process that it skips may change the next step.
            while !desk.step(0).is_empty() {
                looks += 1;
            }
        }
        assert!(looks < 300, "seed {seed}: {looks}");
    }
}
