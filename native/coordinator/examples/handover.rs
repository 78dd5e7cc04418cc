//! Measures a handover: `cargo run --release -p hami-coordinator --example handover`.
//!
//! It prints, one line each: the time from a signal to the grant that answers it (published: for a
//! process that polls; awake: for a process that sleeps), and the CPU time of the coordinator while
//! slices take leases, while all are idle, and while a sweeper lists the processes of idle slices.

#[path = "../tests/common/mod.rs"]
mod common;

use common::processes::Child;
use common::{CARD, Player, Runtime, now, player, stage};
use hami_account::{Account, ComputeState};
use hami_limits::grants::Kind;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const FOR_EVER: Duration = Duration::from_secs(3600);
const ROUNDS: usize = 2_000;

fn main() {
    latency("published", |_, _| std::hint::spin_loop());
    latency("awake", |player, seen| player.view.wait(0, seen, Duration::from_secs(1)));
    for slices in [2, 4, 10, 100] {
        usage(&format!("{slices} active slices"), slices, true);
    }
    usage("50 idle slices", 50, false);
    usage("100 idle slices", 100, false);
    swept(50);
}

/// Two processes wait one after the other, and are idle again at once: each gets a lease
/// immediately.
fn latency(name: &str, wait: impl Fn(&Player, u32)) {
    let runtime = Runtime::new("latency");
    let directories = [runtime.slice("first", Some(50)), runtime.slice("second", Some(50))];
    let coordinator = runtime.coordinator(FOR_EVER);
    let accounts = directories.each_ref().map(|d| Account::attach(&d.join("account")).unwrap());
    let members = [accounts[0].join().unwrap(), accounts[1].join().unwrap()];
    let stage = stage();
    let players =
        [0, 1].map(|index| Player::new(&directories[index], &members[index], index, stage));
    let mut took = Vec::new();
    for round in 0..ROUNDS {
        let player = &players[round % 2];
        let mut grant = player.view.grant(0);
        let signalled = now();
        player.report(grant.number, ComputeState::Waiting);
        while player.may_until(grant).is_none() && now() - signalled < 1_000_000_000 {
            wait(player, grant.number);
            grant = player.view.grant(0);
        }
        let answered = now();
        // The first is alone as long as no other was active.
        if grant.kind == Kind::Lease {
            took.push(answered - signalled);
        }
        player.report(grant.number, ComputeState::Running);
        player.report(grant.number, ComputeState::Idle);
        std::thread::sleep(Duration::from_micros(300));
    }
    coordinator.kill_and_wait();
    took.sort_unstable();
    let at = |rank: usize| took.get(took.len() * rank / 100).copied().unwrap_or_default() / 1_000;
    println!("signal to grant, {name}: median {} us, p99 {} us, n {}", at(50), at(99), took.len());
}

fn usage(name: &str, slices: usize, active: bool) {
    let runtime = Runtime::new("usage");
    let stage = stage();
    let directories: Vec<_> =
        (0..slices).map(|slice| runtime.slice(&slice.to_string(), Some(20))).collect();
    let players: Vec<_> = if active {
        directories.iter().enumerate().map(|(i, slice)| player(slice, i, stage)).collect()
    } else {
        Vec::new()
    };
    measure(&runtime, name);
    drop(players);
}

/// Slices with one process each and without shares, while a sweep arrives every 100 ms.
fn swept(slices: usize) {
    let runtime = Runtime::new("swept");
    let members: Vec<_> = (0..slices)
        .map(|slice| {
            let path = runtime.slice(&slice.to_string(), None).join("account");
            Child::run(move || {
                let account = Account::attach(&path).unwrap();
                let _member = account.join().unwrap();
                std::thread::sleep(FOR_EVER);
            })
        })
        .collect();
    let listed: Vec<String> = members.iter().map(|child| listed(child.pid())).collect();
    let listed = listed.join(",");
    let (file, aside) = (runtime.path().join("sweep"), runtime.path().join(".sweep"));
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !end.load(Ordering::Relaxed) {
                let started_at = now();
                let text =
                    format!(r#"{{"version":1,"started_at":{started_at},"processes":[{listed}]}}"#);
                std::fs::write(&aside, text).unwrap();
                std::fs::rename(&aside, &file).unwrap();
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        measure(&runtime, &format!("{slices} idle slices with a process each, and a sweeper"));
        end.store(true, Ordering::Relaxed);
    });
    drop(members);
}

/// A process as a sweep lists it.
fn listed(pid: i32) -> String {
    let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino());
    format!(
        r#"{{"pid":{pid},"pid_in_namespace":{pid},"namespace":{{"device":0,"inode":{namespace}}},"start_time":1,"running":true,"memory":{{"{CARD}":1000000}}}}"#
    )
}

/// The coordinator of a runtime directory, for five seconds.
fn measure(runtime: &Runtime, name: &str) {
    let coordinator = runtime.coordinator(FOR_EVER);
    std::thread::sleep(Duration::from_millis(500));
    let (ran, slept, began) = (cpu(coordinator.pid()), sleeps(coordinator.pid()), now());
    std::thread::sleep(Duration::from_secs(5));
    let seconds = (now() - began) as f64 / 1e9;
    let percent = (cpu(coordinator.pid()) - ran) / seconds * 100.0;
    let wakes = (sleeps(coordinator.pid()) - slept) as f64 / seconds;
    println!("coordinator, {name}: {percent:.2} % of a CPU, {wakes:.0} wake-ups/s");
    coordinator.kill_and_wait();
}

/// The CPU time of a process in seconds, by the scheduler's count.
fn cpu(pid: i32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    let ns: f64 = text.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or_default();
    ns / 1e9
}

/// How often it went to sleep.
fn sleeps(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let count = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or_default()
}
