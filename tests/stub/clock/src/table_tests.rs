//! The rule, step by step.

use super::*;

const WORD: Key = Key { space: 2, offset: 64 };
const OTHER: Key = Key { space: 2, offset: 68 };

fn empty() -> Box<Table> {
    // SAFETY: a table of zeroes is an empty one, as in a new file.
    unsafe { Box::new_zeroed().assume_init() }
}

fn with(orders: &[u64]) -> Box<Table> {
    let mut table = empty();
    for order in orders {
        table.join(7, 70 + *order as u32, *order, 0, 0).expect("room");
    }
    table
}

fn sleep(table: &mut Table, index: usize, until: u64, now: u64) {
    table.wait(index, &Wait { until, keys: &[], bitset: 0 }, now);
}

fn listen(table: &mut Table, index: usize, keys: &[Key], until: u64) {
    table.wait(index, &Wait { until, keys, bitset: u32::MAX }, 0);
}

#[test]
fn the_earliest_runs_and_at_equal_times_the_lower_order() {
    let mut table = with(&[3, 1, 2]);
    assert_eq!(table.next(), Some(1));
    sleep(&mut table, 1, 50, 0);
    assert_eq!(table.next(), Some(2));
    sleep(&mut table, 2, 50, 0);
    sleep(&mut table, 0, 49, 0);
    assert_eq!(table.next(), Some(0));
    sleep(&mut table, 0, 50, 49);
    assert_eq!(table.next(), Some(1), "all at 50");
}

#[test]
fn a_yielding_thread_goes_behind_all_ready_ones_but_not_behind_later_ones() {
    let mut table = with(&[1, 2, 3]);
    sleep(&mut table, 2, 1, 0);
    sleep(&mut table, 0, 0, 0);
    assert_eq!(table.next(), Some(1));
    sleep(&mut table, 1, 0, 0);
    assert_eq!(table.next(), Some(0), "gave way first");
}

#[test]
fn a_wake_reaches_the_longest_waiting_and_says_which_word_it_was() {
    let mut table = with(&[1, 2, 3]);
    listen(&mut table, 2, &[OTHER, WORD], NEVER);
    listen(&mut table, 0, &[WORD], 900);
    listen(&mut table, 1, &[OTHER], NEVER);
    assert_eq!(table.wake(WORD, 1, u32::MAX, 10), 1);
    assert_eq!((table.next(), table.woken(2)), (Some(2), Woken::By(1)));
    assert_eq!(table.wake(WORD, 5, u32::MAX, 10), 1, "no thread is woken twice");
    assert_eq!((table.woken(0), table.row(0).wake_at), (Woken::By(0), 10));
    assert_eq!(table.row(1).wake_at, NEVER);
}

#[test]
fn a_wake_needs_a_bit_in_common() {
    let mut table = with(&[1]);
    table.wait(0, &Wait { until: NEVER, keys: &[WORD], bitset: 0b10 }, 0);
    assert_eq!(table.wake(WORD, 1, 0b01, 0), 0);
    assert_eq!(table.wake(WORD, 1, 0b11, 0), 1);
}

#[test]
fn lateness_moves_timed_wakes_and_words_but_never_beyond_the_own_time() {
    let mut table = with(&[1, 2]);
    table.row_mut(0).late = 60;
    sleep(&mut table, 0, 100, 0);
    assert_eq!(table.row(0).wake_at, 160);
    listen(&mut table, 0, &[WORD], NEVER);
    table.wake(WORD, 1, u32::MAX, 200);
    assert_eq!(table.row(0).wake_at, 260);
    listen(&mut table, 0, &[WORD], 150);
    table.wake(WORD, 1, u32::MAX, 200);
    assert_eq!(table.row(0).wake_at, 210, "its time with its lateness was earlier");
}

#[test]
fn stopped_threads_are_skipped_and_run_first_when_they_continue() {
    let mut table = with(&[1, 2]);
    sleep(&mut table, 0, 10, 0);
    sleep(&mut table, 1, 20, 0);
    table.row_mut(0).stopped = 1;
    assert_eq!(table.next(), Some(1));
    sleep(&mut table, 1, 30, 20);
    table.row_mut(0).stopped = 0;
    assert_eq!(table.next(), Some(0));
}

#[test]
fn no_thread_runs_when_all_wait_for_each_other() {
    let mut table = with(&[1, 2]);
    listen(&mut table, 0, &[WORD], NEVER);
    listen(&mut table, 1, &[WORD], NEVER);
    assert_eq!(table.next(), None);
    table.leave(0);
    assert_eq!(table.taken(), [1]);
    assert_eq!(table.join(8, 80, 0, 0, 5), Some(0), "the room is used again");
}

#[test]
fn processes_without_a_place_come_behind_those_that_have_one_as_they_arrive() {
    let mut table = empty();
    let (first, second) = (table.arrive(), table.arrive());
    assert!(u64::from(u32::MAX >> 2) < first && first < second);
}

#[test]
fn a_full_table_is_an_error() {
    let mut table = empty();
    for thread in 0..ROWS {
        assert_eq!(table.join(1, thread as u32, 0, 0, 0), Some(thread));
    }
    assert_eq!(table.join(1, 999, 0, 0, 0), None);
}
