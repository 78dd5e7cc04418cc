//! Shares of programs that always want more, and of programs that do not.

use hami_share::{Mode, Priority, Regime};

use crate::sim::scene::{hard, jain, p95_of_seconds, play, soft};
use crate::sim::scenes;
use crate::sim::{MS, Machine, Program, S, US};

/// Long enough for the errors to converge. `-- every_slice --nocapture` prints the table for this
/// time.
const SECONDS: u64 = 20;

#[test]
fn every_slice_gets_its_share_and_little_work_is_lost() {
    let mut wrong = Vec::new();
    println!("| scene | error, points | of native work, % | of the card, % | first grant, ms |");
    println!("|---|---|---|---|---|");
    for scene in scenes::all() {
        let outcome = play(&scene, SECONDS);
        println!("{}", outcome.row(&scene));
        let errors = outcome.shares.iter().zip(&scene.slices).map(|(got, slice)| got - slice.2);
        let wants_all = scene.slices.iter().map(|slice| slice.2).sum::<f64>() > 99.0;
        if errors.into_iter().any(|error| error.abs() > 1.0)
            || (wants_all && outcome.total() < 98.5)
        {
            wrong.push(format!(
                "{}: {:.2?} kept {:.2}",
                scene.name,
                outcome.shares,
                outcome.kept()
            ));
        }
        let equal = scene.slices.windows(2).all(|pair| pair[0].2.total_cmp(&pair[1].2).is_eq());
        if equal && jain(&outcome.processes) < 0.999 {
            wrong.push(format!("{}: Jain {:.4}", scene.name, jain(&outcome.processes)));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn alone_each_second_is_within_two_points() {
    for share in [10, 25, 30, 50, 75, 90] {
        for kernel in [20 * US, 500 * US, 5 * MS] {
            let mut machine = Machine::new(1);
            let slice = machine.slice(&[(0, hard(share))]);
            let lane = machine.lane(slice, 0, Program::Saturate(vec![kernel]), 0);
            machine.run(41 * S);
            let error = p95_of_seconds(&machine, lane, f64::from(share));
            assert!(error <= 2.0, "{share} % with kernels of {kernel} ns: {error}");
        }
    }
}

#[test]
fn processes_of_one_slice_get_similar_parts_whatever_their_kernels() {
    let mut machine = Machine::new(1);
    let slice = machine.slice(&[(0, hard(40))]);
    let other = machine.slice(&[(0, soft(60))]);
    let kernels = [20 * US, MS, 5 * MS, 30 * MS];
    let lanes = kernels.map(|ns| machine.lane(slice, 0, Program::Saturate(vec![ns]), 0));
    // One starts later: the time before is not owed to it.
    let late = machine.lane(slice, 0, Program::Saturate(vec![MS]), 20 * S);
    machine.lane(other, 0, Program::Saturate(vec![MS]), 0);
    machine.run(20 * S);
    let before = lanes.map(|lane| machine.work(lane));
    assert!(jain(&before) >= 0.95, "{before:?}");
    machine.run(40 * S);
    let mut after: Vec<u64> = (0..4).map(|i| machine.work(lanes[i]) - before[i]).collect();
    after.push(machine.work(late));
    assert!(jain(&after) >= 0.95, "{after:?}");
}

#[test]
fn a_burst_below_the_share_is_not_slowed() {
    let mut machine = Machine::new(1);
    let slice = machine.slice(&[(0, hard(30))]);
    let lane = machine.lane(slice, 0, Program::Bursty { period: 100 * MS, busy: 10 * MS }, 50 * MS);
    machine.run(20 * S);
    // A bucket starts empty.
    let bursts = &machine.lanes[lane].running.bursts[2..];
    let slowed: u64 = bursts.iter().map(|burst| burst - 10 * MS).sum();
    assert!(bursts.len() > 190 && slowed <= bursts.len() as u64 * 100 * US, "{slowed}");
}

#[test]
fn a_loop_that_waits_for_each_kernel_gets_its_share_beside_another() {
    // It is billed for its short pauses, and for the time that a handover takes. In longer ones it loses its turn, and ends the other's when
    // it returns.
    let loops = [(2 * MS, 50 * US, 29.0), (5 * MS, 100 * US, 29.5), (2 * MS, 400 * US, 26.5)];
    for (kernel, gap, expected) in loops {
        let mut machine = Machine::new(1);
        let a = machine.slice(&[(0, hard(30))]);
        let b = machine.slice(&[(0, hard(70))]);
        let sync = machine.lane(a, 0, Program::Sync { kernel, gap }, 0);
        machine.lane(b, 0, Program::Saturate(vec![MS]), 0);
        machine.run(21 * S);
        let share = (machine.work(sync)) as f64 / (21 * S) as f64 * 100.0;
        assert!((share - expected).abs() <= 1.0, "{kernel} ns every {gap} ns: {share}");
    }
}

#[test]
fn a_soft_slice_is_owed_nothing_for_its_pauses() {
    let mut machine = Machine::new(1);
    let a = machine.slice(&[(0, soft(50))]);
    let b = machine.slice(&[(0, soft(50))]);
    let steady = machine.lane(a, 0, Program::Saturate(vec![MS]), 0);
    let late = machine.lane(b, 0, Program::Saturate(vec![MS]), 10 * S);
    machine.run(10 * S);
    let before = machine.work(steady);
    assert!(before > 99 * S / 10, "{before}");
    machine.run(11 * S);
    let (steady, late) = (machine.work(steady) - before, machine.work(late));
    assert!(steady.abs_diff(late) < 30 * MS, "{steady} {late}");
}

#[test]
fn a_low_priority_gets_the_time_that_higher_ones_leave() {
    let mut machine = Machine::new(1);
    let high = Regime { share: 40, mode: Mode::Hard, priority: Priority::High };
    let low = Regime { share: 90, mode: Mode::Soft, priority: Priority::Low };
    let a = machine.slice(&[(0, low)]);
    let b = machine.slice(&[(0, high)]);
    let c = machine.slice(&[(0, hard(30))]);
    let lanes = [a, b, c].map(|slice| machine.lane(slice, 0, Program::Saturate(vec![MS]), 0));
    machine.run(20 * S);
    let shares = lanes.map(|lane| machine.work(lane) as f64 / (20 * S) as f64 * 100.0);
    for (share, expected) in shares.iter().zip([29.5, 40.0, 30.0]) {
        assert!((share - expected).abs() <= 1.0, "{shares:?}");
    }
}
