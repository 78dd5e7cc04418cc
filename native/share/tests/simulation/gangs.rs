//! Slices on several cards, whose kernels wait for each other.

use hami_share::Regime;

use crate::sim::scene::{hard, soft};
use crate::sim::{MS, Machine, Program, S, US};

fn meet(group: u64, ns: u64) -> Program {
    Program::Meet { ns, group, members: 2 }
}

/// A slice with one process on each of two cards, whose kernels meet; starts 3 ms apart.
fn gang(machine: &mut Machine, regime: Regime, group: u64, ns: u64, start: u64) -> [usize; 2] {
    let slice = machine.slice(&[(0, regime), (1, regime)]);
    let first = machine.lane(slice, 0, meet(group, ns), start);
    [first, machine.lane(slice, 1, meet(group, ns), start + 3 * MS)]
}

fn shares(machine: &Machine, lanes: &[usize], seconds: u64) -> Vec<f64> {
    let percent = |lane: &usize| machine.work(*lane) as f64 / (seconds * S) as f64 * 100.0;
    lanes.iter().map(percent).collect()
}

#[test]
fn two_slices_whose_kernels_wait_for_each_other_never_deadlock() {
    for (a, b) in [(30, 70), (50, 50), (10, 90)] {
        for regime in [hard, soft] {
            for ns in [200 * US, 3 * MS] {
                let mut machine = Machine::new(2);
                let lanes = [
                    gang(&mut machine, regime(a), 1, ns, 0),
                    gang(&mut machine, regime(b), 2, ns, 7 * MS),
                ]
                .concat();
                machine.run(20 * S);
                let got = shares(&machine, &lanes, 20);
                let total: f64 = got.iter().sum::<f64>() / 2.0;
                assert!(total > 95.0, "{a}/{b} {ns} {got:.2?}");
                for (got, share) in got.iter().zip([a, a, b, b]) {
                    assert!((got - f64::from(share)).abs() <= 2.0, "{a}/{b} {ns} {got:.2?}");
                }
            }
        }
    }
}

#[test]
fn slices_of_one_card_use_the_time_that_a_slice_of_two_leaves() {
    let mut machine = Machine::new(2);
    let both = gang(&mut machine, soft(50), 1, MS, 0);
    let lanes = [0, 1].map(|card| {
        let slice = machine.slice(&[(card, soft(50))]);
        machine.lane(slice, 0, Program::Saturate(vec![MS]), 0)
    });
    machine.run(20 * S);
    let got = shares(&machine, &[both[0], both[1], lanes[0], lanes[1]], 20);
    for share in &got {
        assert!((share - 50.0).abs() <= 2.0, "{got:.2?}");
    }
}

#[test]
fn a_slice_alone_on_two_cards_keeps_its_share() {
    let mut machine = Machine::new(2);
    let lanes = gang(&mut machine, hard(30), 1, MS, 0);
    machine.run(20 * S);
    let got = shares(&machine, &lanes, 20);
    assert!(got.iter().all(|share| (share - 30.0).abs() <= 1.0), "{got:.2?}");
}

#[test]
fn one_card_busy_for_long_does_not_idle_the_other() {
    let mut machine = Machine::new(2);
    let both = gang(&mut machine, soft(50), 1, MS, 0);
    let slow = machine.slice(&[(0, soft(50))]);
    machine.lane(slow, 0, Program::Saturate(vec![200 * MS]), 0);
    let other = machine.slice(&[(1, soft(50))]);
    let lane = machine.lane(other, 0, Program::Saturate(vec![MS]), 0);
    machine.run(20 * S);
    let got = shares(&machine, &[both[1], lane], 20);
    assert!(got[0] > 30.0 && got[0] + got[1] > 90.0, "{got:.2?}");
}

#[test]
fn a_kernel_without_end_on_one_of_two_cards_does_not_stop_the_others() {
    for regime in [hard, soft] {
        let mut machine = Machine::new(2);
        let slices = [0, 1].map(|_| machine.slice(&[(0, regime(50)), (1, regime(50))]));
        machine.lane(slices[0], 0, Program::Long { at: S, ns: 1_000 * S }, 0);
        let beside = machine.lane(slices[0], 1, Program::Saturate(vec![MS]), 0);
        let others = [0, 1].map(|r| machine.lane(slices[1], r, Program::Saturate(vec![MS]), 0));
        machine.run(6 * S);
        let lanes = [beside, others[0], others[1]];
        let before = lanes.map(|lane| machine.work(lane));
        machine.run(26 * S);
        let got: Vec<f64> = lanes
            .iter()
            .zip(before)
            .map(|(lane, before)| (machine.work(*lane) - before) as f64 / (20 * S) as f64 * 100.0)
            .collect();
        // On its card the others get half of their time; on the other card a turn ends with both.
        for (share, least) in got.iter().zip([38.0, 20.0, 45.0]) {
            assert!(*share > least, "{got:.1?}");
        }
    }
}
