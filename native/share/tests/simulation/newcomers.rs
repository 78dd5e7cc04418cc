//! How long newcomers wait for a card that others use.

use hami_share::Regime;

use crate::sim::scene::{hard, soft};
use crate::sim::{MS, Machine, Program, S, US};

/// At many times within the others' turns.
const TRIES: u64 = 10;

/// Milliseconds of work that a slice queues while it is alone.
const ALONE_MS: u64 = 64;

fn saturate(ns: u64) -> Program {
    Program::Saturate(vec![ns])
}

/// The longest wait of any of these newcomers for its first grant, beside these running slices.
fn longest_wait(newcomers: usize, running: usize, kernel: u64) -> u64 {
    let one = |i: u64| {
        let mut machine = Machine::new(1);
        let share = 100 / (newcomers + running) as u32;
        for _ in 0..running {
            let slice = machine.slice(&[(0, soft(share.min(99)))]);
            machine.lane(slice, 0, saturate(kernel), 0);
        }
        let lanes: Vec<usize> = (0..newcomers)
            .map(|_| {
                let slice = machine.slice(&[(0, soft(share.min(99)))]);
                machine.lane(slice, 0, saturate(kernel), S + i * 7 * MS)
            })
            .collect();
        machine.run(2 * S);
        let waits = lanes.iter().map(|lane| {
            let lane = &machine.lanes[*lane];
            lane.launched.expect("launched") - lane.wanted.expect("wanted")
        });
        waits.max().unwrap_or(0)
    };
    (0..TRIES).map(one).max().unwrap_or(0)
}

/// Turns are exclusive, so of several newcomers each waits for the first kernels of those before
/// it. `-- several_newcomers --nocapture` prints the table.
#[test]
fn several_newcomers_wait_for_each_others_first_kernels() {
    println!("| kernels | running | 1 newcomer | 2 | 3 | 4 |");
    println!("|---|---|---|---|---|---|");
    for (name, kernel) in [("0.5 ms", 500 * US), ("5 ms", 5 * MS), ("50 ms", 50 * MS)] {
        for running in 0..=3 {
            let waits: Vec<u64> =
                (1..=4).map(|newcomers| longest_wait(newcomers, running, kernel)).collect();
            let cells: Vec<String> =
                waits.iter().map(|wait| format!("{:.1}", *wait as f64 / MS as f64)).collect();
            println!("| {name} | {running} | {} |", cells.join(" | "));
            for (before, wait) in waits.into_iter().enumerate() {
                // The first kernels of those before, and the work that runs when they start: what a
                // slice has queued that is alone, otherwise the rest of a turn.
                let queued = if running == 1 { ALONE_MS * MS + kernel } else { 0 };
                let kernels = before as u64 + [0, 1, 1, 1][running];
                let most = kernels * kernel.max(5 * MS + MS) + 10 * MS + queued;
                assert!(wait <= most, "{name}, {running} running, {before} before: {wait}");
                if before == 0 && running != 1 {
                    assert!(wait <= 50 * MS + kernel, "{name}, {running} running: {wait}");
                }
            }
        }
    }
}

/// The slice with a share is present when the others start, so they are metered; then it gets work.
#[test]
fn slices_without_a_share_delay_one_with_a_share_only_a_little() {
    for kernel in [20 * US, 5 * MS, 50 * MS] {
        for already in 1..=3 {
            for i in 0..TRIES {
                let mut machine = Machine::new(1);
                let capped = machine.slice(&[(0, hard(30))]);
                let idle = Program::Bursty { period: u64::MAX / 4, busy: MS };
                machine.lane(capped, 0, idle, 0);
                for _ in 0..already {
                    let free = machine.slice(&[(0, Regime::default())]);
                    machine.lane(free, 0, saturate(kernel), 500 * MS);
                }
                let begin = S + i * 7 * MS;
                let lane = machine.lane(capped, 0, saturate(5 * MS), begin);
                let mut done = begin;
                while machine.work(lane) < 5 * MS {
                    done += MS;
                    machine.run(done);
                }
                let took = done - begin;
                assert!(took <= 55 * MS + kernel, "{already} with {kernel} ns: {took}");
                if i > 0 {
                    continue;
                }
                machine.run(begin + S);
                let before = machine.work(lane);
                machine.run(begin + 11 * S);
                let share = (machine.work(lane) - before) as f64 / (10 * S) as f64 * 100.0;
                assert!((share - 30.0).abs() <= 1.0, "{already} with {kernel} ns: {share}");
            }
        }
    }
}

/// Beside an idle slice with a share, a slice without one loses nothing by being metered.
#[test]
fn a_slice_without_a_share_works_natively_beside_one_that_pauses() {
    for kernel in [20 * US, 500 * US, 5 * MS, 50 * MS] {
        let mut machine = Machine::new(1);
        let capped = machine.slice(&[(0, hard(30))]);
        machine.lane(capped, 0, Program::Bursty { period: u64::MAX / 4, busy: MS }, 0);
        let free = machine.slice(&[(0, Regime::default())]);
        let lane = machine.lane(free, 0, saturate(kernel), 0);
        machine.run(S);
        let before = machine.work(lane);
        machine.run(11 * S);
        let work = machine.work(lane) - before;
        assert!(work >= 9_950 * MS, "{kernel} ns: {work}");
    }
}
