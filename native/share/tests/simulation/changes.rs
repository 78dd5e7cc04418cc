//! Slices that start, change and misbehave while others work.

use hami_share::Regime;

use crate::sim::scene::{hard, soft};
use crate::sim::{MS, Machine, Program, S, Spec, US};

fn saturate(ns: u64) -> Program {
    Program::Saturate(vec![ns])
}

/// How long a lane waited for its first grant.
fn first_grant(machine: &Machine, lane: usize) -> u64 {
    let lane = &machine.lanes[lane];
    lane.launched.expect("launched") - lane.wanted.expect("wanted")
}

fn share(machine: &mut Machine, lane: usize, from: u64, to: u64) -> f64 {
    machine.run(from);
    let before = machine.work(lane);
    machine.run(to);
    (machine.work(lane) - before) as f64 / (to - from) as f64 * 100.0
}

#[test]
fn a_newcomer_is_served_soon() {
    for kernel in [20 * US, 5 * MS, 50 * MS] {
        for regime in [hard, soft] {
            for already in 1..=3 {
                // At many times within the others' turns.
                for i in 0..40 {
                    let mut machine = Machine::new(1);
                    for _ in 0..already {
                        let slice = machine.slice(&[(0, regime(25))]);
                        machine.lane(slice, 0, saturate(kernel), 0);
                    }
                    let slice = machine.slice(&[(0, regime(25))]);
                    let lane = machine.lane(slice, 0, saturate(kernel), S + i * 3 * MS);
                    machine.run(2 * S);
                    let wait = first_grant(&machine, lane);
                    // A slice that is alone has up to 64 ms of work queued.
                    let most =
                        if already == 1 { 64 * MS + 2 * kernel + 6 * MS } else { 50 * MS + kernel };
                    assert!(wait <= most, "{already} with {kernel} ns: {wait}");
                }
            }
        }
    }
}

#[test]
fn several_newcomers_at_once_are_all_served_soon() {
    for i in 0..40 {
        let mut machine = Machine::new(1);
        let slice = machine.slice(&[(0, soft(25))]);
        machine.lane(slice, 0, saturate(500 * US), 0);
        let lanes = [0; 3].map(|_| {
            let slice = machine.slice(&[(0, soft(25))]);
            machine.lane(slice, 0, saturate(500 * US), S + i * MS)
        });
        machine.run(2 * S);
        for lane in lanes {
            // The slice that was alone has up to 64 ms of work queued.
            assert!(first_grant(&machine, lane) <= 90 * MS, "{}", first_grant(&machine, lane));
        }
    }
}

#[test]
fn a_new_share_holds_at_once() {
    let mut machine = Machine::new(1);
    let (a, b) = (machine.slice(&[(0, hard(30))]), machine.slice(&[(0, Regime::default())]));
    let lane = machine.lane(a, 0, saturate(MS), 0);
    machine.lane(b, 0, saturate(MS), 0);
    machine.at(5 * S, Spec::Share(a, 60));
    machine.at(10 * S, Spec::Share(a, 10));
    assert!((share(&mut machine, lane, S, 5 * S) - 30.0).abs() < 1.0);
    assert!((share(&mut machine, lane, 5_100 * MS, 10 * S) - 60.0).abs() < 1.0);
    assert!((share(&mut machine, lane, 10_100 * MS, 15 * S) - 10.0).abs() < 1.0);
}

#[test]
fn a_killed_holder_costs_the_others_one_turn() {
    for i in 0..30 {
        let mut machine = Machine::new(1);
        let slices = [50, 50].map(|share| machine.slice(&[(0, hard(share))]));
        let lanes = slices.map(|slice| machine.lane(slice, 0, saturate(MS), 0));
        let kill = S + i * 2 * MS;
        machine.at(kill, Spec::Kill(lanes[0]));
        // The other is then alone, at its own share.
        let got = share(&mut machine, lanes[1], kill, kill + S);
        assert!(got >= 50.0 - 2.0, "killed at {kill}: {got}");
    }
}

#[test]
fn a_stopped_slice_costs_the_others_one_deadline_and_continues() {
    for i in 0..30 {
        let mut machine = Machine::new(1);
        let slices = [40, 30, 30].map(|share| machine.slice(&[(0, soft(share))]));
        let lanes = slices.map(|slice| machine.lane(slice, 0, saturate(MS), 0));
        let stop = S + i * 2 * MS;
        machine.at(stop, Spec::Stop(lanes[0]));
        machine.at(stop + 5 * S, Spec::Continue(lanes[0]));
        let before = [1, 2].map(|i| {
            machine.run(stop);
            machine.work(lanes[i])
        });
        machine.run(stop + S);
        let after: u64 = [1, 2].iter().zip(before).map(|(i, b)| machine.work(lanes[*i]) - b).sum();
        // The rest of its turn, 50 ms of silence, and the handover to the second.
        assert!(after >= S - 90 * MS, "stopped at {stop}: {after}");
        let back = share(&mut machine, lanes[0], stop + 6 * S, stop + 9 * S);
        assert!((back - 40.0).abs() <= 1.0, "stopped at {stop}: {back}");
    }
}

#[test]
fn a_kernel_of_two_seconds_is_paid_back() {
    for regime in [hard, soft] {
        let mut machine = Machine::new(1);
        let slices = [50, 50].map(|share| machine.slice(&[(0, regime(share))]));
        let long = machine.lane(slices[0], 0, Program::Long { at: 3 * S, ns: 2 * S }, 0);
        machine.lane(slices[1], 0, saturate(MS), 0);
        assert!(share(&mut machine, long, 3 * S, 5 * S) > 95.0);
        assert!(share(&mut machine, long, 5_200 * MS, 6_800 * MS) < 2.0);
        let whole = machine.work(long) as f64;
        machine.run(30 * S);
        let share = machine.work(long) as f64 / (30 * S) as f64 * 100.0;
        assert!((share - 50.0).abs() <= 1.0, "{whole} {share}");
    }
}

#[test]
fn a_kernel_of_two_seconds_is_paid_back_alone() {
    let mut machine = Machine::new(1);
    let slice = machine.slice(&[(0, hard(30))]);
    let lane = machine.lane(slice, 0, Program::Long { at: 3 * S, ns: 2 * S }, 0);
    machine.run(5_200 * MS);
    assert!(machine.lanes[lane].debt(machine.now) > 1_300 * MS as i64);
    machine.run(30 * S);
    let share = machine.work(lane) as f64 / (30 * S) as f64 * 100.0;
    assert!((share - 30.0).abs() <= 0.5, "{share}");
}

#[test]
fn a_kernel_without_end_delays_the_others_for_four_seconds_once() {
    let mut machine = Machine::new(1);
    let slices = [50, 50].map(|share| machine.slice(&[(0, soft(share))]));
    machine.lane(slices[0], 0, Program::Long { at: S, ns: 1_000 * S }, 0);
    let other = machine.lane(slices[1], 0, saturate(MS), 0);
    assert!(share(&mut machine, other, 2 * S, 5 * S) < 2.0);
    // From then on the driver shares the card between the two.
    assert!(share(&mut machine, other, 6 * S, 16 * S) > 47.0);
}

#[test]
fn without_the_coordinator_each_process_limits_itself() {
    let mut machine = Machine::new(1);
    let slices = [30, 40].map(|share| machine.slice(&[(0, hard(share))]));
    let lanes = slices.map(|slice| machine.lane(slice, 0, saturate(MS), 0));
    machine.at(5 * S, Spec::KillCoordinator);
    machine.at(10 * S, Spec::StartCoordinator);
    machine.run(5 * S);
    let before = lanes.map(|lane| machine.work(lane));
    machine.run(5 * S + 100 * MS);
    for (lane, before) in lanes.iter().zip(before) {
        assert!(machine.work(*lane) > before, "each program continues");
    }
    let share_of = share(&mut machine, lanes[0], 11 * S, 20 * S);
    assert!((share_of - 30.0).abs() <= 1.0, "{share_of}");
}

#[test]
fn a_coordinator_that_is_killed_repeatedly_does_no_harm() {
    let mut machine = Machine::new(1);
    let slices = [30, 70].map(|share| machine.slice(&[(0, hard(share))]));
    let lanes = slices.map(|slice| machine.lane(slice, 0, saturate(MS), 0));
    for i in 1..100 {
        machine.at(i * 200 * MS + i * MS, Spec::KillCoordinator);
        machine.at(i * 200 * MS + i * MS + 5 * MS, Spec::StartCoordinator);
    }
    let got = share(&mut machine, lanes[0], S, 20 * S);
    assert!((got - 30.0).abs() <= 2.0, "{got}");
    let got = machine.work(lanes[1]) as f64 / (20 * S) as f64 * 100.0;
    assert!((got - 70.0).abs() <= 3.0, "{got}");
}
