//! Races between processes, checked against a ledger that knows nothing of the account.
//!
//! Without the injected yields, wrong schemes pass these tests; with equal sizes only, several more
//! do. The neighbour that requests far too much is what made small requests fail.
#![cfg(debug_assertions)]

mod common;

use common::{Barrier, Child, Ledger, MIB, Random, Scratch, shared, yield_now};
use hami_account::Requester::Program;
use hami_account::steps::{Step, set_hook};
use hami_account::{Account, Member, Refused, Snapshot};
use std::cell::RefCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const ROUNDS: u64 = 10_000;
/// After this time a process ends its rounds early, because the machine is busy.
const MOST: Duration = Duration::from_secs(20);

/// The numbers of a process's rounds, until [`MOST`] has passed.
fn in_time() -> impl Iterator<Item = u64> {
    let start = Instant::now();
    (0..ROUNDS).take_while(move |_| start.elapsed() < MOST)
}

struct Shared {
    ledger: Ledger,
    barrier: Barrier,
    /// Per process, the size of this round's request if it was refused.
    refused: [AtomicU64; 8],
    over: AtomicU64,
    /// The most that was granted at one instant.
    peak: AtomicU64,
    false_refusals: AtomicU64,
    granted: AtomicU64,
    refusals: AtomicU64,
    /// Charges whose deadline passed, as it may on a crowded machine.
    busy: AtomicU64,
    stop: AtomicU32,
}

thread_local! {
    static RANDOM: RefCell<Random> = RefCell::new(Random::new(u64::from(std::process::id())));
}

/// Yields the processor at the worst moments. The words between which it yields are random; the
/// rest happens each time.
fn yield_at_the_worst_time(step: Step) {
    let one_in = match step {
        Step::Published | Step::BeforeWithdraw => 1,
        Step::BeforeCommit | Step::Counted | Step::SlowLocked | Step::BeforeSlowUnlock => 4,
        Step::Summing => 32,
        _ => return,
    };
    if RANDOM.with_borrow_mut(|random| random.below(one_in)) == 0 {
        yield_now();
    }
}

/// Runs `body` in `count` processes at once, beside a neighbour that requests far too much.
fn race(name: &str, count: usize, limit: u64, body: fn(&Member, &'static Shared, usize, u64)) {
    let scratch = Scratch::new(name);
    let account = Account::attach(&scratch.path()).unwrap();
    // SAFETY: zero is a value of each field, and each is made for several processes.
    let shared: &'static Shared = unsafe { shared() };
    shared.ledger.init();
    shared.barrier.init(count as u32);
    let neighbour = Child::run(|| {
        let member = account.join().unwrap();
        set_hook(Some(yield_at_the_worst_time));
        while shared.stop.load(Ordering::Relaxed) == 0 {
            let granted = request(&member, shared, limit + MIB, limit);
            shared.over.fetch_add(u64::from(granted), Ordering::Relaxed);
        }
    });
    let workers: Vec<Child> = (0..count)
        .map(|me| {
            let account = &account;
            Child::run(move || {
                let member = account.join().unwrap();
                set_hook(Some(yield_at_the_worst_time));
                shared.barrier.wait();
                body(&member, shared, me, limit);
            })
        })
        .collect();
    let exits: Vec<i32> = workers.into_iter().map(Child::wait).collect();
    shared.stop.store(1, Ordering::Relaxed);
    assert_eq!(neighbour.wait(), 0);
    assert!(exits.iter().all(|exit| *exit == 0), "{exits:?}");

    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (granted, refusals) = (count(&shared.granted), count(&shared.refusals));
    println!("{name}: {granted} granted, {refusals} refused, {} busy", count(&shared.busy));
    assert_eq!(count(&shared.over), 0, "the limit was exceeded");
    assert_eq!(count(&shared.false_refusals), 0, "refused what fits, of {refusals} refusals");
    let account = Snapshot::read(&scratch.path()).unwrap();
    assert_eq!((account.used[0], account.anomalies), (0, 0));
    assert!((count(&shared.peak)..=limit).contains(&account.peak[0]), "{}", account.peak[0]);
}

/// Whether the request fits. A charge that timed out does not tell, so it is repeated.
fn request(member: &Member, shared: &Shared, size: u64, limit: u64) -> bool {
    loop {
        let charged = member.charge(0, size, limit, Program);
        if charged != Err(Refused::Busy) {
            return charged.is_ok();
        }
        shared.busy.fetch_add(1, Ordering::Relaxed);
    }
}

/// All processes request at the same instant and keep what they get. Nothing is released in the
/// meantime, so a refused request must still not fit at the end, which the ledger shows.
fn rounds(
    member: &Member,
    shared: &Shared,
    me: usize,
    limit: u64,
    size: impl Fn(&mut Random) -> u64,
) {
    let mut random = Random::new(me as u64 + 1);
    let start = Instant::now();
    for round in 1..=ROUNDS {
        let size = size(&mut random);
        shared.barrier.wait();
        let granted = request(member, shared, size, limit);
        if granted {
            enter(shared, size, limit);
        }
        shared.refused[me].store(if granted { 0 } else { size }, Ordering::SeqCst);
        shared.barrier.wait();
        if me == 0 {
            let held = shared.ledger.with(|held| *held);
            for refused in shared.refused.iter().map(|r| r.load(Ordering::SeqCst)) {
                if refused > 0 {
                    shared.refusals.fetch_add(1, Ordering::Relaxed);
                    let fits = u64::from(held + refused <= limit);
                    shared.false_refusals.fetch_add(fits, Ordering::Relaxed);
                }
            }
            let is_last = round == ROUNDS || start.elapsed() > MOST;
            shared.stop.store(u32::from(is_last), Ordering::SeqCst);
        }
        shared.barrier.wait();
        if granted {
            shared.ledger.with(|held| *held -= size);
            member.uncharge(0, size);
        }
        if shared.stop.load(Ordering::SeqCst) == 1 {
            break;
        }
    }
}

/// Enters a granted request. Bytes leave the ledger before they leave the account, so the ledger
/// never holds more than the account should.
fn enter(shared: &Shared, size: u64, limit: u64) {
    shared.granted.fetch_add(1, Ordering::Relaxed);
    let held = shared.ledger.with(|held| {
        *held += size;
        *held
    });
    shared.over.fetch_add(u64::from(held > limit), Ordering::Relaxed);
    shared.peak.fetch_max(held, Ordering::Relaxed);
}

fn equal_sizes(member: &Member, shared: &Shared, me: usize, limit: u64) {
    rounds(member, shared, me, limit, |_| MIB);
}

fn mixed_sizes(member: &Member, shared: &Shared, me: usize, limit: u64) {
    rounds(member, shared, me, limit, |random| match random.below(4) {
        0 => 512,
        1 => 512 * (1 + random.below(2048)),
        2 => MIB,
        _ => 3 * MIB,
    });
}

#[test]
fn two_request_the_last_room() {
    race("last-2", 2, MIB, equal_sizes);
}

#[test]
fn eight_request_where_one_four_or_seven_fit() {
    for fit in [1, 4, 7] {
        race(&format!("last-8-{fit}"), 8, fit * MIB, equal_sizes);
    }
}

#[test]
fn two_request_mixed_sizes() {
    race("mixed-2", 2, 3 * MIB, mixed_sizes);
}

#[test]
fn eight_request_mixed_sizes() {
    race("mixed-8", 8, 6 * MIB, mixed_sizes);
}

/// The ledger decides first, so that at every instant everything in the account fits. Every request
/// that it admits must be granted, while other processes come and go.
fn admitted(member: &Member, shared: &Shared, me: usize, limit: u64) {
    let mut random = Random::new(me as u64 + 1);
    for _ in in_time() {
        let size = if random.below(2) == 0 { 2 * MIB } else { 512 * (1 + random.below(4096)) };
        let fits = shared.ledger.with(|held| {
            let fits = *held + size <= limit;
            *held += if fits { size } else { 0 };
            fits
        });
        if !fits {
            yield_now();
            continue;
        }
        if request(member, shared, size, limit) {
            shared.granted.fetch_add(1, Ordering::Relaxed);
            member.uncharge(0, size);
        } else {
            shared.refusals.fetch_add(1, Ordering::Relaxed);
            shared.false_refusals.fetch_add(1, Ordering::Relaxed);
        }
        shared.ledger.with(|held| *held -= size);
    }
}

#[test]
fn a_request_that_fits_throughout_is_granted() {
    race("admitted-2", 2, 3 * MIB, admitted);
    race("admitted-8", 8, 4 * MIB, admitted);
}

/// All processes charge as fast as possible; the only rule is that the limit is never exceeded.
fn greedy(member: &Member, shared: &Shared, me: usize, limit: u64) {
    let mut random = Random::new(me as u64 + 1);
    for _ in in_time() {
        let size = 512 * (1 + random.below(limit / 512));
        if request(member, shared, size, limit) {
            enter(shared, size, limit);
            shared.ledger.with(|held| *held -= size);
            member.uncharge(0, size);
        } else {
            shared.refusals.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn the_limit_is_never_exceeded() {
    race("greedy-2", 2, 3 * MIB, greedy);
    race("greedy-8", 8, 3 * MIB, greedy);
}

/// The process that holds the bytes that move.
static HOLDER: OnceLock<&AtomicU64> = OnceLock::new();

/// Lets the bytes move while they are being summed.
fn wait_for_the_next_holder(step: Step) {
    let Some(holder) = HOLDER.get().filter(|_| step == Step::Summing) else { return };
    let now = holder.load(Ordering::SeqCst);
    for _ in 0..20 {
        if holder.load(Ordering::SeqCst) != now {
            return;
        }
        yield_now();
    }
}

/// Two processes pass the same bytes to and fro; the bytes leave one word before they enter the
/// other. A third requests the rest, and is interrupted between any two words that it reads.
fn passed_on(member: &Member, shared: &'static Shared, me: usize, limit: u64) {
    let rest = MIB;
    let turn = &shared.refused[0];
    let holder = HOLDER.get_or_init(|| &shared.refused[1]);
    if me == 0 {
        set_hook(Some(wait_for_the_next_holder));
        for _ in in_time() {
            charge_what_fits(member, shared, rest, limit);
            member.uncharge(0, rest);
        }
        shared.stop.store(1, Ordering::SeqCst);
        return;
    }
    set_hook(None);
    while shared.stop.load(Ordering::SeqCst) == 0 {
        if turn.load(Ordering::SeqCst) == me as u64 - 1 {
            charge_what_fits(member, shared, limit - rest, limit);
            holder.store(me as u64, Ordering::SeqCst);
            yield_now();
            member.uncharge(0, limit - rest);
            turn.store(2 - me as u64, Ordering::SeqCst);
        }
        yield_now();
    }
}

fn charge_what_fits(member: &Member, shared: &Shared, size: u64, limit: u64) {
    let granted = request(member, shared, size, limit);
    shared.granted.fetch_add(u64::from(granted), Ordering::Relaxed);
    shared.refusals.fetch_add(u64::from(!granted), Ordering::Relaxed);
    shared.false_refusals.fetch_add(u64::from(!granted), Ordering::Relaxed);
}

#[test]
fn bytes_that_move_while_they_are_summed_are_not_counted_twice() {
    race("passed-on", 3, 4 * MIB, passed_on);
}
