//! A process is killed at each named step: its bytes come back, not too early, and no process is
//! stuck.
#![cfg(debug_assertions)]

mod common;

use common::{Child, MIB, Scratch, shared, wait_for};
use hami_account::Requester::{Library, Program};
use hami_account::steps::{Step, set_hook};
use hami_account::{Account, Dead, Departed, Member, Refused, Snapshot};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const LIMIT: u64 = 64 * MIB;
/// How far the account's clock, which counts milliseconds, may be off.
const CLOCK: Duration = Duration::from_millis(2);

/// The memory that the processes of one test share.
struct Shared {
    /// Set when the process that stays in the middle of a charge has got there.
    published: AtomicU32,
    joined: AtomicU32,
}

// The actions of the hooks, set in the child that runs them.
static KILL_AT: AtomicU64 = AtomicU64::new(u64::MAX);
static PUBLISHED: OnceLock<&AtomicU32> = OnceLock::new();

fn kill_here(step: Step) {
    if step as u64 == KILL_AT.load(Ordering::Relaxed) {
        // SAFETY: ends this child.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
}

fn kill_at(step: Step) {
    KILL_AT.store(step as u64, Ordering::Relaxed);
    set_hook(Some(kill_here));
}

fn stay_published(step: Step) {
    if step == Step::Published {
        PUBLISHED.get().unwrap().store(1, Ordering::SeqCst);
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    }
}

fn driver_is_done(_: &Dead) -> Departed {
    Departed::Yes
}

fn driver_still_lists_it(_: &Dead) -> Departed {
    Departed::No
}

fn shared_flags() -> &'static Shared {
    // SAFETY: zero is a value of each field, and atomics are made for several processes.
    unsafe { shared() }
}

/// Retries until the charge is granted, as a program would.
fn charge_soon(member: &Member, card: usize, bytes: u64) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while let Err(refused) = member.charge(card, bytes, LIMIT, Program) {
        assert!(Instant::now() < deadline, "still {refused:?} after ten seconds");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A child that joins, does `before`, and is killed at `step` of `after`.
fn die_at(
    path: &std::path::Path,
    step: Step,
    before: impl FnOnce(&Member),
    after: impl FnOnce(&Member),
) {
    let child = Child::run(|| {
        let account = Account::attach_with(path, driver_is_done).unwrap();
        let member = account.join().unwrap();
        before(&member);
        kill_at(step);
        after(&member);
    });
    assert_eq!(child.wait(), -libc::SIGKILL, "{step:?} was never reached");
}

fn assert_clean(path: &std::path::Path, used: u64) {
    let account = Account::attach(path).unwrap();
    assert_eq!((account.used(0), Snapshot::read(path).unwrap().anomalies), (used, 0));
}

#[test]
fn killed_while_joining() {
    for step in [Step::SlotLocked, Step::SlotTaken] {
        let scratch = Scratch::new("joining");
        let child = Child::run(|| {
            let account = Account::attach(&scratch.path()).unwrap();
            kill_at(step);
            let _ = account.join();
        });
        assert_eq!(child.wait(), -libc::SIGKILL);
        let account = Account::attach(&scratch.path()).unwrap();
        let member = account.join().unwrap();
        assert_eq!(member.charge(0, LIMIT, LIMIT, Program), Ok(()), "{step:?}");
    }
}

/// The driver was never called, so the bytes may be used at once: one call is enough.
#[test]
fn killed_before_the_commit() {
    for step in [Step::Published, Step::Summing, Step::BeforeCommit] {
        let scratch = Scratch::new("before-commit");
        let account = Account::attach_with(&scratch.path(), driver_still_lists_it).unwrap();
        let member = account.join().unwrap();
        die_at(
            &scratch.path(),
            step,
            |_| {},
            |member| {
                let _ = member.charge(0, LIMIT / 2, LIMIT, Program);
            },
        );
        assert_eq!(member.charge(0, LIMIT, LIMIT, Program), Ok(()), "{step:?}");
        assert_clean(&scratch.path(), LIMIT);
    }
}

/// The driver may have been called, so the bytes count until it has freed them.
#[test]
fn killed_after_the_commit() {
    static DRIVER_IS_DONE: AtomicBool = AtomicBool::new(false);
    for step in [Step::Committed, Step::BeforeUncharge, Step::Uncharged] {
        DRIVER_IS_DONE.store(false, Ordering::SeqCst);
        let scratch = Scratch::new("after-commit");
        let ask_driver = |_: &_| {
            let done = DRIVER_IS_DONE.load(Ordering::SeqCst);
            if done { Departed::Yes } else { Departed::No }
        };
        let account = Account::attach_with(&scratch.path(), ask_driver).unwrap();
        let member = account.join().unwrap();
        die_at(
            &scratch.path(),
            step,
            |member| member.charge(0, MIB, LIMIT, Program).unwrap(),
            |member| {
                let _ = member.charge(0, LIMIT / 2, LIMIT, Program);
                member.uncharge(0, MIB);
            },
        );
        let counted = match step {
            Step::Committed | Step::BeforeUncharge => LIMIT / 2 + MIB,
            _ => LIMIT / 2,
        };
        let until = Instant::now() + Account::GRACE + Duration::from_millis(100);
        while Instant::now() < until {
            let refused = member.charge(0, LIMIT - counted + 512, LIMIT, Library);
            assert_eq!(refused, Err(Refused::OverLimit));
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_clean(&scratch.path(), counted);
        DRIVER_IS_DONE.store(true, Ordering::SeqCst);
        charge_soon(&member, 0, LIMIT);
        assert_clean(&scratch.path(), LIMIT);
    }
}

#[test]
fn without_an_oracle_the_bytes_come_back_after_the_grace_time() {
    let scratch = Scratch::new("grace");
    let account = Account::attach(&scratch.path()).unwrap();
    let member = account.join().unwrap();
    die_at(
        &scratch.path(),
        Step::BeforeUncharge,
        |member| {
            member.charge(0, LIMIT, LIMIT, Program).unwrap();
        },
        |member| member.uncharge(0, LIMIT),
    );
    let noticed = Instant::now();
    charge_soon(&member, 0, 512);
    assert!(noticed.elapsed() + CLOCK >= Account::GRACE, "released too early");
}

/// Brings the victim into the slow path: another process stays in the middle of a charge that
/// leaves no room, and is killed after the victim.
fn killed_beside_another(step: Step) {
    let scratch = Scratch::new("beside");
    let path = scratch.path();
    let flags = shared_flags();
    let survivor = Account::attach_with(&path, driver_still_lists_it).unwrap();
    let survivor = survivor.join().unwrap();
    let beside = Child::run(|| {
        let account = Account::attach(&path).unwrap();
        let member = account.join().unwrap();
        PUBLISHED.set(&flags.published).unwrap();
        set_hook(Some(stay_published));
        let _ = member.charge(0, LIMIT, LIMIT, Program);
    });
    wait_for(&flags.published);
    die_at(
        &path,
        step,
        |_| {},
        |member| {
            let _ = member.charge(0, LIMIT / 2, LIMIT, Program);
        },
    );
    // Neither the other process nor the victim has committed anything.
    assert_eq!(survivor.charge(0, 512, LIMIT, Program), Ok(()), "{step:?}");
    survivor.uncharge(0, 512);
    beside.kill_and_wait();
    // Before it unlocks, the victim has committed, and the driver still lists it.
    let left = if step == Step::BeforeSlowUnlock { LIMIT / 2 } else { LIMIT };
    assert_eq!(survivor.charge(0, left, LIMIT, Program), Ok(()), "{step:?}");
    assert_clean(&path, LIMIT);
}

#[test]
fn killed_before_the_withdrawal() {
    killed_beside_another(Step::BeforeWithdraw);
}

#[test]
fn killed_while_proving_a_refusal() {
    killed_beside_another(Step::Counted);
}

#[test]
fn killed_with_the_slow_lock() {
    killed_beside_another(Step::SlowLocked);
    killed_beside_another(Step::BeforeSlowUnlock);
}

/// A process dies, and then its reapers, each a step later. The survivor gets all the bytes.
#[test]
fn killed_while_reaping() {
    let scratch = Scratch::new("reaping");
    let account = Account::attach_with(&scratch.path(), driver_is_done).unwrap();
    let member = account.join().unwrap();
    let hold_two_cards = |member: &Member| {
        member.charge(1, LIMIT, LIMIT, Program).unwrap();
        member.charge(2, LIMIT, LIMIT, Program).unwrap();
    };
    die_at(&scratch.path(), Step::BeforeCommit, hold_two_cards, |member| {
        let _ = member.charge(0, LIMIT / 2, LIMIT, Program);
    });
    // A member and another process reap in different ways.
    for step in [Step::Reaping, Step::TentativeDropped] {
        let reaper = Child::run(|| {
            let account = Account::attach_with(&scratch.path(), driver_is_done).unwrap();
            kill_at(step);
            loop {
                account.reap_dead();
            }
        });
        assert_eq!(reaper.wait(), -libc::SIGKILL, "{step:?}");
    }
    for step in [Step::CardCleared, Step::BeforeFree] {
        let reaper = Child::run(|| {
            let account = Account::attach_with(&scratch.path(), driver_is_done).unwrap();
            kill_at(step);
            let member = account.join().unwrap();
            loop {
                member.reap_dead();
            }
        });
        assert_eq!(reaper.wait(), -libc::SIGKILL, "{step:?}");
    }
    for card in [0, 1, 2] {
        charge_soon(&member, card, LIMIT);
    }
    assert_clean(&scratch.path(), LIMIT);
    // The last reaper died after the words and before the slot.
    while account.used(0) == LIMIT && Snapshot::read(&scratch.path()).unwrap().processes.len() > 1 {
        account.reap_dead();
    }
}

/// Reapers race for the slots of dead processes while new processes join. A late reaper must not
/// take the bytes of a new process.
#[test]
fn a_slot_with_a_new_process_is_not_reaped() {
    let scratch = Scratch::new("moving-in");
    let path = scratch.path();
    let flags = shared_flags();
    let lost = &flags.published;
    let tenants: Vec<Child> = (0..4)
        .map(|_| {
            Child::run(|| {
                let account = Account::attach_with(&path, driver_is_done).unwrap();
                for _ in 0..500 {
                    // Dropping the member is a death: the slot keeps its bytes.
                    let member = account.join().unwrap();
                    member.charge(0, 512, LIMIT, Program).unwrap();
                    account.reap_dead();
                    std::thread::sleep(Duration::from_micros(100));
                    lost.fetch_add(u32::from(member.held(0) != 512), Ordering::SeqCst);
                }
            })
        })
        .collect();
    let exits: Vec<i32> = tenants.into_iter().map(Child::wait).collect();
    assert_eq!(exits, [0; 4]);
    assert_eq!(lost.load(Ordering::SeqCst), 0, "a living process lost what it held");
    let account = Account::attach_with(&path, driver_is_done).unwrap();
    let member = account.join().unwrap();
    charge_soon(&member, 0, LIMIT);
}

/// Every child is killed at another moment, and all its bytes are released each time.
#[test]
fn killed_at_any_time() {
    let scratch = Scratch::new("any-time");
    let path = scratch.path();
    let account = Account::attach_with(&path, driver_is_done).unwrap();
    let member = account.join().unwrap();
    for round in 0..200_u64 {
        let flags = shared_flags();
        let victims: Vec<Child> = (0..2)
            .map(|i| {
                let (path, flags) = (&path, &flags);
                Child::run(move || {
                    let account = Account::attach_with(path, driver_is_done).unwrap();
                    let member = account.join().unwrap();
                    flags.joined.fetch_add(1, Ordering::SeqCst);
                    loop {
                        if member.charge(0, LIMIT / 2 + i * MIB, LIMIT, Program).is_ok() {
                            member.uncharge(0, LIMIT / 2 + i * MIB);
                        }
                    }
                })
            })
            .collect();
        wait_for(&flags.joined);
        std::thread::sleep(Duration::from_micros(17 * round));
        victims.into_iter().for_each(Child::kill_and_wait);
        charge_soon(&member, 0, LIMIT);
        assert_clean(&path, LIMIT);
        member.uncharge(0, LIMIT);
    }
}
