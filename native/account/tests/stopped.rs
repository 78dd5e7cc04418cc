//! A process is stopped (SIGSTOP) at each named step: it delays no other, makes no request fail that
//! fits beside the committed bytes, and takes nothing that is not its own when it continues.
#![cfg(debug_assertions)]

mod common;

use common::{Child, MIB, Scratch, shared};
use hami_account::Requester::{Library, Program};
use hami_account::steps::{Step, set_hook};
use hami_account::{Account, Departed, Member, Refused, Snapshot};
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const LIMIT: u64 = 64 * MIB;

static STOP_AT: AtomicU64 = AtomicU64::new(u64::MAX);

/// Stops this process the first time that it gets to the step.
fn stop_here(step: Step) {
    let once =
        STOP_AT.compare_exchange(step as u64, u64::MAX, Ordering::Relaxed, Ordering::Relaxed);
    if once.is_ok() {
        // SAFETY: stops this child until its parent lets it continue.
        unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
    }
}

/// A child that joins and then does `then`; it stops at `step` of that. It has stopped on return.
fn stopped_at(path: &Path, step: Step, then: impl FnOnce(&Member)) -> Child {
    let child = Child::run(|| {
        let account = Account::attach_with(path, |_| Departed::Yes).unwrap();
        let member = account.join().unwrap();
        STOP_AT.store(step as u64, Ordering::Relaxed);
        set_hook(Some(stop_here));
        then(&member);
        assert_eq!(STOP_AT.load(Ordering::Relaxed), u64::MAX, "{step:?} was never reached");
    });
    child.wait_until_stopped();
    child
}

/// Charges, and returns for how long that took.
fn charged_in(member: &Member, bytes: u64) -> Duration {
    let begin = Instant::now();
    assert_eq!(member.charge(0, bytes, LIMIT, Program), Ok(()));
    begin.elapsed()
}

/// Far more than the 50 ms that are allowed, and less than the deadline of a charge.
fn assert_prompt(took: Duration, step: Step) {
    println!("{step:?}: {took:?}");
    assert!(took < Duration::from_millis(500), "{step:?}: {took:?}");
}

fn set(flag: &AtomicU32) {
    flag.store(1, Ordering::SeqCst);
}

#[test]
fn a_request_that_is_stopped_delays_no_other() {
    for step in [Step::Published, Step::Summing, Step::BeforeCommit] {
        let scratch = Scratch::new("stopped");
        let account = Account::attach(&scratch.path()).unwrap();
        let member = account.join().unwrap();
        // SAFETY: zero is a value of the flag, and atomics are made for several processes.
        let granted: &AtomicU32 = unsafe { shared() };
        let stopped = stopped_at(&scratch.path(), step, |member| {
            if member.charge(0, LIMIT, LIMIT, Program).is_ok() {
                set(granted);
            }
        });
        assert_prompt(charged_in(&member, LIMIT), step);
        stopped.signal(libc::SIGCONT);
        assert_eq!(stopped.wait(), 0);
        assert_eq!(granted.load(Ordering::SeqCst), 0, "{step:?}: the limit was exceeded");
        assert_eq!(Snapshot::read(&scratch.path()).unwrap().used[0], LIMIT);
    }
}

/// Another process is stopped in the middle of a request for everything, so the victim gets to the
/// slow path before it is stopped itself.
#[test]
fn a_request_that_is_stopped_in_the_slow_path_delays_no_other() {
    let steps = [
        Step::BeforeWithdraw,
        Step::Counted,
        Step::SlowLocked,
        Step::Published,
        Step::Revoked,
        Step::BeforeCommit,
        Step::BeforeSlowUnlock,
    ];
    for step in steps {
        let scratch = Scratch::new("stopped-slowly");
        let path = scratch.path();
        let account = Account::attach(&path).unwrap();
        let member = account.join().unwrap();
        let beside = stopped_at(&path, Step::Published, |member| {
            let _ = member.charge(0, LIMIT, LIMIT, Program);
        });
        // SAFETY: as above.
        let granted: &AtomicU32 = unsafe { shared() };
        let stopped = stopped_at(&path, step, |member| {
            if member.charge(0, LIMIT / 2, LIMIT, Program).is_ok() {
                set(granted);
            }
        });
        // Before it unlocks, it has committed.
        let room = if step == Step::BeforeSlowUnlock { LIMIT / 2 } else { LIMIT };
        assert_prompt(charged_in(&member, room), step);
        for child in [stopped, beside] {
            child.signal(libc::SIGCONT);
            assert_eq!(child.wait(), 0);
        }
        let granted = granted.load(Ordering::SeqCst) == 1;
        assert_eq!(granted, room < LIMIT, "{step:?}: the limit was exceeded, or memory is lost");
    }
}

/// A process that holds everything dies, and the process that reaps it is stopped. Another one gets
/// all the bytes at once, and a third one joins.
#[test]
fn a_stopped_reaper_delays_no_other() {
    for step in [Step::Reaping, Step::TentativeDropped, Step::CardCleared, Step::BeforeFree] {
        let scratch = Scratch::new("stopped-reaper");
        let path = scratch.path();
        let account = Account::attach_with(&path, |_| Departed::Yes).unwrap();
        let member = account.join().unwrap();
        let reaper = stopped_at(&path, step, |member| {
            let dead = Child::run(|| {
                let member = member.account().join().unwrap();
                assert_eq!(member.slot(), 2);
                member.charge(0, LIMIT / 2, LIMIT, Program).unwrap();
                member.charge(1, LIMIT / 2, LIMIT, Program).unwrap();
            });
            assert_eq!(dead.wait(), 0);
            let _ = member.charge(0, LIMIT, LIMIT, Program);
        });
        assert_prompt(charged_in(&member, LIMIT), step);
        let newcomer = account.join().unwrap();
        assert_eq!(newcomer.slot(), 3, "the stopped process would clear its words");
        newcomer.charge(1, LIMIT, LIMIT, Program).unwrap();
        reaper.signal(libc::SIGCONT);
        assert_eq!(reaper.wait(), 0);
        assert_eq!((member.held(0), newcomer.held(1)), (LIMIT, LIMIT), "{step:?}");
        assert_eq!(account.join().unwrap().slot(), 2, "{step:?}: the slot is free again");
        assert_eq!(Snapshot::read(&path).unwrap().anomalies, 0);
    }
}

/// The first process to notice a death starts the grace period; a request waits for its end.
#[test]
fn a_request_waits_for_the_memory_of_the_dead_alone() {
    let scratch = Scratch::new("waits");
    let account = Account::attach(&scratch.path()).unwrap();
    let member = account.join().unwrap();
    let dead = Child::run(|| {
        let member = account.join().unwrap();
        member.charge(0, LIMIT / 2, LIMIT, Program).unwrap();
    });
    assert_eq!(dead.wait(), 0);
    // It fits beside the dead process, and so does not wait.
    assert!(charged_in(&member, LIMIT / 2) < Account::GRACE / 2);
    // More than the limit is not worth waiting for.
    let begin = Instant::now();
    assert_eq!(member.charge(0, LIMIT, LIMIT, Program), Err(Refused::OverLimit));
    assert!(begin.elapsed() < Account::GRACE / 2);
    let waited = begin.elapsed() + charged_in(&member, LIMIT / 2);
    let clock = Duration::from_millis(2);
    assert!(waited + clock >= Account::GRACE, "released too early, after {waited:?}");
}

#[test]
fn a_request_waits_for_the_memory_of_the_dead_for_two_seconds() {
    let scratch = Scratch::new("waits-long");
    let account = Account::attach_with(&scratch.path(), |_| Departed::No).unwrap();
    let member = account.join().unwrap();
    let dead = Child::run(|| {
        let member = account.join().unwrap();
        member.charge(0, LIMIT / 2, LIMIT, Program).unwrap();
    });
    assert_eq!(dead.wait(), 0);
    let begin = Instant::now();
    assert_eq!(member.charge(0, LIMIT, LIMIT, Library), Err(Refused::OverLimit));
    assert!(begin.elapsed() < Member::DEPARTURE / 2, "only the program's own requests wait");
    let seen = || (account.in_use(0), Snapshot::read(&scratch.path()).unwrap().used[0]);
    assert_eq!(seen(), (0, 0), "a request waits for it");
    assert_eq!(member.charge(0, LIMIT, LIMIT, Program), Err(Refused::OverLimit));
    assert!(begin.elapsed() >= Member::DEPARTURE);
    assert_eq!(seen(), (LIMIT / 2, LIMIT / 2), "the driver does not free it");
    assert_eq!(Snapshot::read(&scratch.path()).unwrap().refusals[0], 1);
}

/// Any one thread's request is revoked with those of the other threads of its process; all of them
/// are granted in the end.
#[test]
fn threads_of_a_revoked_process_all_get_their_memory() {
    let scratch = Scratch::new("threads");
    let path = scratch.path();
    let account = Account::attach(&path).unwrap();
    let member = account.join().unwrap();
    let threads = Child::run(|| {
        let account = Account::attach(&path).unwrap();
        let member = account.join().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        member.charge(0, LIMIT / 8, LIMIT, Program).unwrap();
                        member.uncharge(0, LIMIT / 8);
                    }
                });
            }
        });
    });
    // Half of the limit is always free for either of the two processes.
    while threads.is_alive() {
        member.charge(0, LIMIT / 2, LIMIT, Program).unwrap();
        member.uncharge(0, LIMIT / 2);
        threads.signal(libc::SIGSTOP);
        threads.wait_until_stopped();
        member.charge(0, LIMIT / 2, LIMIT, Program).unwrap();
        member.uncharge(0, LIMIT / 2);
        threads.signal(libc::SIGCONT);
        std::thread::sleep(Duration::from_micros(300));
    }
    assert_eq!(threads.wait(), 0);
    let snapshot = Snapshot::read(&path).unwrap();
    assert_eq!((snapshot.used[0], snapshot.anomalies, snapshot.refusals[0]), (0, 0, 0));
}
