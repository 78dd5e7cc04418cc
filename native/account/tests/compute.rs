//! Tests of the engine times and states: read by other processes, kept after an exit, never
//! trusted.

mod common;

use common::{Child, Scratch, shared, wait_for};
use hami_account::{Account, CARDS, Compute, ComputeState, Departed, Report, SLOTS, Snapshot};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Their offset, as `lib.rs` documents it.
const BELL: u64 = 448;
const DEPARTED: u64 = 512;
const COMPUTE: u64 = 102_400;
const SIZE: u64 = 397_312;

fn flags() -> &'static [AtomicU32; 4] {
    // SAFETY: zero is a value of an atomic, and atomics are made for several processes.
    unsafe { shared() }
}

fn is_dead(account: &Account, slot: usize) -> bool {
    account.find_dead(|wanted| wanted == slot)[slot]
}

fn words_at(card: u64, slot: u64) -> u64 {
    COMPUTE + (card * SLOTS as u64 + slot) * 64
}

#[test]
fn engine_times_and_state_are_at_their_offsets_and_in_the_snapshot() {
    let scratch = Scratch::new("compute");
    let account = Account::attach(&scratch.path()).unwrap();
    let _first = account.join().unwrap();
    let member = account.join().unwrap();
    assert_eq!((member.slot(), account.high_water()), (1, 2));
    let words = member.compute(3).unwrap();
    words.set_report(Report { grant: 7, state: ComputeState::Running, ..Report::default() });
    words.used_ns.store(1_000, Ordering::Relaxed);
    words.throttled_ns.store(200, Ordering::Relaxed);
    words.debt_ns.store(30, Ordering::Relaxed);
    words.active_at.store(4, Ordering::Relaxed);
    member.wake_coordinator();

    assert_eq!(
        account.compute(1, 3).report(),
        Report { grant: 7, state: ComputeState::Running, ..Report::default() }
    );
    assert_eq!(
        account.compute(1, 2).report(),
        Report { grant: 0, state: ComputeState::Idle, ..Report::default() }
    );
    assert_eq!(account.wake_word().load(Ordering::Relaxed), 1);
    let file = std::fs::File::open(scratch.path()).unwrap();
    let mut bytes = [0; 64];
    file.read_exact_at(&mut bytes, words_at(3, 1)).unwrap();
    let numbers: Vec<u64> =
        bytes.chunks_exact(8).map(|b| u64::from_ne_bytes(b.try_into().unwrap())).collect();
    assert_eq!(numbers, [7 << 32 | 2, 1_000, 200, 30, 4, 0, 0, 0]);
    file.read_exact_at(&mut bytes[..4], BELL).unwrap();
    assert_eq!(bytes[..4], 1_u32.to_ne_bytes());

    let snapshot = Snapshot::read(&scratch.path()).unwrap();
    let mut expected = [Compute::default(); CARDS];
    assert_eq!(snapshot.processes[0].compute, expected);
    expected[3] = Compute { used_ns: 1_000, throttled_ns: 200, debt_ns: 30, active_at: 4 };
    assert_eq!(snapshot.processes[1].compute, expected);
    assert_eq!((snapshot.used_ns[3], snapshot.throttled_ns[3]), (1_000, 200));
    assert_eq!(snapshot.used_ns.iter().sum::<u64>(), 1_000);
    assert!(member.compute(CARDS).is_none());
}

#[test]
fn a_forked_child_writes_nothing_for_its_parent() {
    let scratch = Scratch::new("compute-fork");
    let child = Child::run(|| {
        let account = Account::attach(&scratch.path()).unwrap();
        let member = account.join().unwrap();
        let grandchild = Child::run(|| assert!(member.compute(0).is_none()));
        assert_eq!(grandchild.wait(), 0);
        assert!(member.compute(0).is_some());
    });
    assert_eq!(child.wait(), 0);
}

/// The times of a dead process stay in the sums, its state is cleared, and the next process in its
/// slot starts at zero.
#[test]
fn the_times_of_a_dead_process_are_kept_and_its_state_is_not() {
    let scratch = Scratch::new("compute-departed");
    let account = Account::attach_with(&scratch.path(), |_| Departed::Yes).unwrap();
    let flags = flags();
    for round in 1..=3_u64 {
        flags[0].store(0, Ordering::SeqCst);
        let child = Child::run(|| {
            let account = Account::attach(&scratch.path()).unwrap();
            let member = account.join().unwrap();
            for card in [0, CARDS - 1] {
                let words = member.compute(card).unwrap();
                assert_eq!(
                    words.report(),
                    Report { grant: 0, state: ComputeState::Idle, ..Report::default() }
                );
                assert_eq!(words.used_ns.fetch_add(100, Ordering::Relaxed), 0);
                words.throttled_ns.store(10, Ordering::Relaxed);
                words.debt_ns.store(5, Ordering::Relaxed);
                words.active_at.store(1, Ordering::Relaxed);
                words.set_report(Report {
                    grant: 9,
                    state: ComputeState::Running,
                    ..Report::default()
                });
            }
            flags[0].store(1, Ordering::SeqCst);
            wait_for(&flags[1]);
        });
        wait_for(&flags[0]);
        assert!(!is_dead(&account, 0));
        let sums = |snapshot: &Snapshot| (snapshot.used_ns[15], snapshot.throttled_ns[15]);
        assert_eq!(sums(&Snapshot::read(&scratch.path()).unwrap()), (round * 100, round * 10));
        child.kill_and_wait();
        assert!(is_dead(&account, 0));
        // Nothing is lost, neither before the slot is reaped nor by reaping it.
        assert_eq!(sums(&Snapshot::read(&scratch.path()).unwrap()), (round * 100, round * 10));
        let deadline = Instant::now() + Duration::from_secs(10);
        while is_dead(&account, 0) {
            assert!(Instant::now() < deadline, "it is not reaped");
            account.reap_dead();
        }
        let snapshot = Snapshot::read(&scratch.path()).unwrap();
        assert_eq!(sums(&snapshot), (round * 100, round * 10));
        assert_eq!((snapshot.used_ns[0], snapshot.used_ns[1]), (round * 100, 0));
        assert!(snapshot.processes.is_empty() && account.holder(0).is_none());
        let words = account.compute(0, 15);
        assert_eq!(
            words.report(),
            Report { grant: 0, state: ComputeState::Idle, ..Report::default() }
        );
        for word in [&words.used_ns, &words.throttled_ns, &words.debt_ns, &words.active_at] {
            assert_eq!(word.load(Ordering::Relaxed), 0);
        }
    }
}

#[test]
fn a_signal_wakes_a_waiter_in_another_process() {
    let scratch = Scratch::new("wake");
    let flags = flags();
    let child = Child::run(|| {
        let account = Account::attach(&scratch.path()).unwrap();
        for seen in 0..1_000 {
            flags[0].store(seen + 1, Ordering::SeqCst);
            while account.wake_word().load(Ordering::SeqCst) == seen {
                // Without a wake-up the child's alarm ends this test.
                hami_limits::futex::wait(account.wake_word(), seen, Duration::from_secs(60));
            }
        }
    });
    let account = Account::attach(&scratch.path()).unwrap();
    let member = account.join().unwrap();
    let deadline = Instant::now() + Duration::from_secs(50);
    for signal in 1..=1_000 {
        while flags[0].load(Ordering::SeqCst) != signal {
            assert!(Instant::now() < deadline, "it still waits for signal {signal}");
            std::hint::spin_loop();
        }
        member.wake_coordinator();
    }
    assert_eq!(child.wait(), 0);
}

#[test]
fn invalid_values_are_read_without_harm() {
    let scratch = Scratch::new("compute-hostile");
    let account = Account::attach(&scratch.path()).unwrap();
    let _member = account.join().unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(scratch.path()).unwrap();
    file.write_all_at(&vec![0xff; (SIZE - COMPUTE) as usize], COMPUTE).unwrap();
    file.write_all_at(&[0xff; 256], DEPARTED).unwrap();
    let snapshot = Snapshot::read(&scratch.path()).unwrap();
    assert_eq!(snapshot.used_ns, [u64::MAX; CARDS]);
    assert_eq!(snapshot.throttled_ns, [u64::MAX; CARDS]);
    let report = account.compute(0, 0).report();
    assert_eq!(
        (report.grant, report.state, report.is_stalled),
        (u32::MAX, ComputeState::Idle, true)
    );
    // A free slot is not dead.
    assert!(!is_dead(&account, 1));
    assert!(account.holder(0).is_some());
    assert!(account.holder(1).is_none() && account.holder(SLOTS).is_none());
    file.write_all_at(&[0xff; 4], 64).unwrap();
    assert_eq!(account.high_water(), SLOTS);
}
