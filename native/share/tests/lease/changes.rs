//! Several cards, gangs, and slices that start, change, end and misbehave while others work.

use hami_share::{Priority, Regime};

use crate::machine::Machine;
use crate::program::{Program, kernels};
use crate::scenes::{hard, soft};
use crate::{MS, S, US};

fn machine() -> Machine {
    Machine::new(false)
}

/// Percent of a card that each process has between two times.
fn shares<const N: usize>(machine: &mut Machine, of: [usize; N], from: u64, to: u64) -> [f64; N] {
    machine.run(from);
    let before = of.map(|p| machine.work(p));
    machine.run(to);
    let mut shares = [0.0; N];
    for (i, p) in of.into_iter().enumerate() {
        shares[i] = (machine.work(p) - before[i]) as f64 / (to - from) as f64 * 100.0;
    }
    shares
}

fn assert_near(got: &[f64], expected: &[f64], most: f64) {
    let mut pairs = got.iter().zip(expected);
    assert!(pairs.all(|(got, expected)| (got - expected).abs() <= most), "{got:.2?} {expected:?}");
}

/// When a process first works after `start`, and 5 ms of its work are done.
fn done(machine: &mut Machine, p: usize, start: u64) -> u64 {
    let mut now = start;
    while machine.work(p) < 5 * MS {
        now += MS;
        machine.run(now);
    }
    now - start
}

/// Two processes whose kernels wait for each other, on cards 0 and 1.
fn pair(machine: &mut Machine, slices: [(usize, usize); 2], group: u64, ns: u64) -> [usize; 2] {
    let program = Program::Meet { ns, group, members: 2 };
    slices.map(|(slice, row)| machine.process_on(slice, row, std::slice::from_ref(&program), 0))
}

#[test]
fn two_pairs_on_two_cards_get_their_shares() {
    for regime in [hard as fn(u32) -> Regime, soft] {
        for (a, b) in [(30, 70), (50, 50), (10, 90)] {
            for ns in [200 * US, 3 * MS] {
                for gang in [None, Some(5)] {
                    let mut machine = machine();
                    // One slice of both cards, or a gang of two slices.
                    let first = if gang.is_some() {
                        [0, 1].map(|card| (machine.slice_on(gang, &[(card, regime(a))]), 0))
                    } else {
                        let slice = machine.slice_on(None, &[(0, regime(a)), (1, regime(a))]);
                        [(slice, 0), (slice, 1)]
                    };
                    let slice = machine.slice_on(None, &[(0, regime(b)), (1, regime(b))]);
                    let first = pair(&mut machine, first, 1, ns);
                    let second = pair(&mut machine, [(slice, 0), (slice, 1)], 2, ns);
                    let of = [first[0], first[1], second[0], second[1]];
                    let got = shares(&mut machine, of, S, 21 * S);
                    println!("{a}/{b}, {ns} ns, gang {gang:?}: {got:.1?}");
                    let expected = [a, a, b, b].map(f64::from);
                    // When a lease ends, one card may have kernels that wait for launches on the other.
                    assert_near(&got, &expected, if ns < MS { 5.5 } else { 2.0 });
                }
            }
        }
    }
}

#[test]
fn slices_of_one_card_use_the_time_that_a_slice_of_two_leaves() {
    let mut machine = machine();
    let slice = machine.slice_on(None, &[(0, soft(50)), (1, soft(50))]);
    let both = pair(&mut machine, [(slice, 0), (slice, 1)], 1, MS);
    let others = [0, 1].map(|card| {
        let slice = machine.slice_on(None, &[(card, soft(50))]);
        machine.process(slice, &[kernels(MS)], 0)
    });
    let got = shares(&mut machine, [both[0], both[1], others[0], others[1]], S, 21 * S);
    println!("{got:.1?}");
    assert_near(&got, &[50.0; 4], 2.0);
}

#[test]
fn a_hard_slice_alone_on_two_cards_keeps_its_share() {
    let mut machine = machine();
    let slice = machine.slice_on(None, &[(0, hard(30)), (1, hard(30))]);
    let both = pair(&mut machine, [(slice, 0), (slice, 1)], 1, MS);
    let got = shares(&mut machine, both, S, 21 * S);
    println!("{got:.1?}");
    assert_near(&got, &[30.0; 2], 1.5);
}

#[test]
fn one_card_busy_for_long_does_not_idle_the_other() {
    let mut machine = machine();
    let slice = machine.slice_on(None, &[(0, soft(50)), (1, soft(50))]);
    let both = pair(&mut machine, [(slice, 0), (slice, 1)], 1, MS);
    let slow = machine.slice(soft(50));
    machine.process(slow, &[kernels(200 * MS)], 0);
    let other = machine.slice_on(None, &[(1, soft(50))]);
    let other = machine.process(other, &[kernels(MS)], 0);
    let got = shares(&mut machine, [both[1], other], S, 21 * S);
    println!("{got:.1?}");
    assert!(got[0] > 30.0 && got[0] + got[1] > 90.0, "{got:.1?}");
}

#[test]
fn ten_processes_of_a_slice_get_its_share() {
    for (regime, beside) in
        [(hard(30), None), (hard(30), Some(soft(70))), (soft(30), Some(hard(70)))]
    {
        let mut machine = machine();
        let slice = machine.slice(regime);
        let ten = [(); 10].map(|()| machine.process(slice, &[kernels(MS)], 0));
        if let Some(beside) = beside {
            let slice = machine.slice(beside);
            machine.process(slice, &[kernels(500 * US)], 0);
        }
        let got = shares(&mut machine, ten, S, 31 * S);
        println!("{regime:?} beside {beside:?}: {:.2} as {got:.1?}", got.iter().sum::<f64>());
        assert_near(&[got.iter().sum()], &[30.0], 1.5);
        assert!(got.iter().all(|share| *share > 1.5), "{got:.1?}");
    }
}

#[test]
fn a_newcomer_is_served_soon() {
    for kernel in [20 * US, 5 * MS, 50 * MS] {
        for regime in [hard, soft] {
            for already in 1..=3 {
                let mut waits = [0; 3];
                // At many times within the others' leases.
                for i in 0..20 {
                    let mut machine = machine();
                    for _ in 0..already {
                        let slice = machine.slice(regime(25));
                        machine.process(slice, &[kernels(kernel)], 0);
                    }
                    let slice = machine.slice(regime(25));
                    let start = S + i * 7 * MS;
                    let p = machine.process(slice, &[kernels(kernel)], start);
                    waits[already - 1] = waits[already - 1].max(done(&mut machine, p, start));
                }
                println!("{kernel} ns beside {already}: {waits:?}");
                // A slice that is alone has up to 64 ms of work queued.
                let queued = if already == 1 { 70 * MS } else { 50 * MS };
                let most = queued + 3 * kernel + 10 * MS;
                assert!(waits[already - 1] <= most, "{already} with {kernel} ns: {waits:?}");
            }
        }
    }
}

/// Programs without a share have launched without admission, and may have queued any amount.
#[test]
fn a_newcomer_does_not_wait_for_a_queue_from_before() {
    for (kernel, others) in [(20 * US, 1), (5 * MS, 1), (50 * MS, 1), (5 * MS, 3)] {
        let mut machine = machine();
        for _ in 0..others {
            let slice = machine.slice(hard(0));
            machine.process(slice, &[kernels(kernel)], 0);
        }
        let slice = machine.slice(hard(30));
        let p = machine.process(slice, &[kernels(MS)], S);
        let wait = done(&mut machine, p, S);
        let got = shares(&mut machine, [p], 60 * S, 90 * S);
        println!("{kernel} ns of {others}: {} ms, then {got:.1?}", wait / MS);
        assert!(wait <= 60 * MS * others, "{kernel} {wait}");
        assert_near(&got, &[30.0], 1.5);
    }
}

#[test]
fn a_slice_without_a_share_loses_little_beside_one_that_pauses() {
    for kernel in [20 * US, 500 * US, 5 * MS, 50 * MS] {
        let mut machine = machine();
        let slice = machine.slice(hard(30));
        machine.process(slice, &[Program::Bursty { period: u64::MAX / 8, busy: MS }], 0);
        let slice = machine.slice(hard(0));
        let p = machine.process(slice, &[kernels(kernel)], 0);
        let got = shares(&mut machine, [p], S, 11 * S);
        println!("{kernel} ns: {got:.2?}");
        assert!(got[0] >= 99.0, "{kernel} ns: {got:.2?}");
    }
}

#[test]
fn a_dead_process_holds_nothing() {
    for i in 0..20 {
        let mut machine = machine();
        let [a, b] = [50, 50].map(|share| {
            let slice = machine.slice(hard(share));
            machine.process(slice, &[kernels(MS)], 0)
        });
        let at = S + i * 2 * MS;
        machine.kill(a, at);
        // The other is alone then, at its own share.
        let got = shares(&mut machine, [b], at, at + S);
        assert!(got[0] >= 48.0, "killed at {at}: {got:.1?}");
    }
}

#[test]
fn a_stopped_program_continues_with_its_share() {
    let mut machine = machine();
    let [a, b] = [40, 60].map(|share| {
        let slice = machine.slice(soft(share));
        machine.process(slice, &[kernels(MS)], 0)
    });
    machine.stop_and_continue(a, 3 * S, 5 * S, 6 * S);
    let got = shares(&mut machine, [b], 5 * S, 6 * S);
    assert!(got[0] >= 93.0, "{got:.1?}");
    let got = shares(&mut machine, [a, b], 9 * S, 19 * S);
    assert_near(&got, &[40.0, 60.0], 1.0);
}

#[test]
fn a_new_share_holds_at_once() {
    let mut machine = machine();
    let (a, b) = (machine.slice(hard(30)), machine.slice(hard(0)));
    let p = machine.process(a, &[kernels(MS)], 0);
    machine.process(b, &[kernels(MS)], 0);
    for (second, share) in [(2, 30), (6, 60), (10, 10)] {
        machine.run(second * S);
        machine.share(a, hard(share));
        let got = shares(&mut machine, [p], second * S + 100 * MS, (second + 4) * S);
        assert_near(&got, &[f64::from(share)], 1.0);
    }
}

#[test]
fn a_coordinator_that_is_replaced_does_no_harm() {
    // Without grants for a second, each program keeps to its own share by itself, and the driver
    // shares the card.
    for (gap, most) in [(5 * MS, 2.0), (S, 9.0)] {
        let mut machine = machine();
        let of = [30, 70].map(|share| {
            let slice = machine.slice(hard(share));
            machine.process(slice, &[kernels(MS)], 0)
        });
        for i in 1..15 {
            machine.replace_coordinator(i * (2 * gap).max(201 * MS), gap);
        }
        let got = shares(&mut machine, of, S, 31 * S);
        println!("{gap} ns: {got:.1?}");
        assert_near(&got, &[30.0, 70.0], most);
    }
}

/// The driver shares the card with it after a while, in which it is billed.
#[test]
fn a_kernel_without_end_delays_the_others_once() {
    let mut machine = machine();
    let endless = machine.slice(soft(50));
    machine.process(endless, &[kernels(1_000 * S)], 0);
    let slice = machine.slice(soft(50));
    let p = machine.process(slice, &[kernels(MS)], 0);
    let got = shares(&mut machine, [p], 6 * S, 16 * S);
    assert!(got[0] > 30.0, "{got:.1?}");
}

#[test]
fn a_kernel_of_two_seconds_is_paid_back() {
    for regime in [hard, soft] {
        let mut machine = machine();
        let long = machine.slice(regime(50));
        let long = machine.process(long, &[Program::Steps { ns: 2 * S, kernels: 1, host: MS }], 0);
        let slice = machine.slice(regime(50));
        let p = machine.process(slice, &[kernels(MS)], 0);
        let got = shares(&mut machine, [long, p], 6 * S, 46 * S);
        println!("{got:.1?}");
        assert_near(&got, &[50.0, 50.0], 3.0);
    }
}

#[test]
fn a_hard_share_of_a_high_priority_is_a_ceiling() {
    let mut machine = machine();
    let low = Regime { priority: Priority::Low, ..soft(90) };
    let high = Regime { priority: Priority::High, ..hard(40) };
    let of = [low, high, hard(30)].map(|regime| {
        let slice = machine.slice(regime);
        machine.process(slice, &[kernels(MS)], 0)
    });
    let got = shares(&mut machine, of, S, 21 * S);
    println!("{got:.1?}");
    assert_near(&got, &[29.5, 40.0, 30.0], 1.5);
}

#[test]
fn a_kernel_without_end_on_one_of_two_cards_does_not_stop_the_others() {
    for regime in [hard, soft] {
        let mut machine = machine();
        let both = [0, 1].map(|_| machine.slice_on(None, &[(0, regime(50)), (1, regime(50))]));
        machine.process_on(both[0], 0, &[kernels(1_000 * S)], 0);
        let beside = machine.process_on(both[0], 1, &[kernels(MS)], 0);
        let others = [0, 1].map(|row| machine.process_on(both[1], row, &[kernels(MS)], 0));
        let got = shares(&mut machine, [beside, others[0], others[1]], 6 * S, 26 * S);
        println!("{got:.1?}");
        // A hard slice owes for the kernel, and so has no lease on its other card.
        assert!(got[1] > 20.0 && got[2] > 45.0, "{got:.1?}");
        assert!(got[0] > 20.0 || regime(50) == hard(50), "{got:.1?}");
    }
}
