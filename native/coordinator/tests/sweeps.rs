//! Tests of departures: what the coordinator writes into the grants pages for dead processes, given
//! what the sweeper has listed. The pages are read as bytes, by their documented layout.

mod common;

use common::processes::Child;
use common::{Runtime, now, wait_until};
use hami_account::{Account, ProcessIdentity};
use std::fmt::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

const FOR_EVER: Duration = Duration::from_secs(3600);
const MS: u64 = 1_000_000;
/// A process that is not on the list is free within some ticks; this is longer.
const LONG_ENOUGH: Duration = Duration::from_millis(300);

/// A process of a slice, as the account names it.
struct Process {
    child: Child,
    slot: usize,
    identity: ProcessIdentity,
    joined_at: u64,
}

fn joined(slice: &Path) -> Process {
    let account = Account::attach(&slice.join("account")).unwrap();
    let path = slice.join("account");
    let child = Child::run(|| {
        let account = Account::attach(&path).unwrap();
        let _member = account.join().unwrap();
        loop {
            std::thread::sleep(FOR_EVER);
        }
    });
    let pid = child.pid() as u32;
    let find = || (0..8).find(|slot| account.holder(*slot).is_some_and(|holder| holder.pid == pid));
    wait_until(|| find().is_some(), || "it does not join".into());
    let slot = find().unwrap();
    let identity = account.holder(slot).unwrap();
    Process { child, slot, identity, joined_at: account.joined_at(slot) }
}

/// A process on NVML's list.
#[derive(Clone, Copy)]
struct Listed(u32, Option<ProcessIdentity>, bool);

/// A sweep that starts now, written as the sweeper writes it.
fn sweep(runtime: &Runtime, listed: &[Listed]) -> u64 {
    let started_at = now();
    write_sweep(runtime, &document(started_at, listed));
    started_at
}

fn document(started_at: u64, listed: &[Listed]) -> String {
    let mut rows = Vec::new();
    for Listed(pid, identity, running) in listed {
        let mut row = format!(r#"{{"pid":{pid},"running":{running},"#);
        match identity {
            Some(ProcessIdentity { pid, start_time, pid_namespace }) => write!(
                row,
                r#""pid_in_namespace":{pid},"start_time":{start_time},
                   "namespace":{{"device":4,"inode":{pid_namespace}}}}}"#
            ),
            None => write!(row, r#""pid_in_namespace":0,"start_time":null,"namespace":null}}"#),
        }
        .unwrap();
        rows.push(row);
    }
    let rows = rows.join(",");
    format!(r#"{{"version":1,"started_at":{started_at},"processes":[{rows}]}}"#)
}

fn write_sweep(runtime: &Runtime, text: &str) {
    let aside = runtime.path().join(".sweep.1");
    std::fs::write(&aside, text).unwrap();
    std::fs::rename(aside, runtime.path().join("sweep")).unwrap();
}

fn word(slice: &Path, at: usize) -> u64 {
    let page = std::fs::read(slice.join("grants")).unwrap();
    u64::from_le_bytes(page[at..at + 8].try_into().unwrap())
}

fn swept_at(slice: &Path) -> u64 {
    word(slice, 48)
}

fn is_freed(slice: &Path, process: &Process) -> bool {
    word(slice, 1088 + 8 * process.slot) == process.joined_at
}

/// Sweeps until this is true.
fn sweep_until(runtime: &Runtime, listed: &[Listed], done: impl Fn() -> bool) {
    wait_until(
        || {
            sweep(runtime, listed);
            std::thread::sleep(Duration::from_millis(10));
            done()
        },
        || "the sweeps had no effect".into(),
    );
}

/// Sweeps for a while.
fn sweep_for(runtime: &Runtime, listed: &[Listed], time: Duration) {
    let until = now() + time.as_nanos() as u64;
    sweep_until(runtime, listed, || now() >= until);
}

/// Without a share: nobody needs leases, and nobody else probes the processes of such a slice.
#[test]
fn memory_is_free_when_no_sweep_lists_the_process_any_more() {
    let runtime = Runtime::new("departed");
    let slice = runtime.slice("slice", None);
    let (first, second) = (joined(&slice), joined(&slice));
    let _coordinator = runtime.coordinator(FOR_EVER);
    let listed = [first.identity, second.identity].map(|identity| Listed(1, Some(identity), true));
    sweep_until(&runtime, &listed, || swept_at(&slice) != 0);
    assert_eq!(word(&slice, 1088 + 8 * first.slot), 0);

    first.child.kill();
    let dead = [Listed(1, Some(first.identity), false), listed[1]];
    sweep_for(&runtime, &dead, Duration::from_secs(1));
    assert!(!is_freed(&slice, &first), "the driver still holds its memory");
    sweep_until(&runtime, &dead[1..], || is_freed(&slice, &first));
    assert!(!is_freed(&slice, &second), "it lives");
}

#[test]
fn a_sweep_that_started_before_the_death_shows_nothing() {
    let runtime = Runtime::new("stale");
    let slice = runtime.slice("slice", None);
    let process = joined(&slice);
    let _coordinator = runtime.coordinator(FOR_EVER);
    sweep_until(&runtime, &[], || swept_at(&slice) != 0);
    let before = now();
    process.child.kill();
    // The file is new, and what it shows is old.
    wait_until(
        || {
            write_sweep(&runtime, &document(before, &[]));
            // On a machine that stands still for so long, it is too old to be read at all.
            swept_at(&slice) == before || now() - before > 500 * MS
        },
        || "it is not read".into(),
    );
    std::thread::sleep(LONG_ENOUGH);
    assert!(!is_freed(&slice, &process));
    sweep_until(&runtime, &[], || is_freed(&slice, &process));
}

/// After exec the process has the same number and start time, but its entry is dead.
#[test]
fn after_exec_the_grace_period_decides() {
    let runtime = Runtime::new("exec");
    let slice = runtime.slice("slice", None);
    let process = joined(&slice);
    let _coordinator = runtime.coordinator(FOR_EVER);
    let listed = [Listed(1, Some(process.identity), true)];
    sweep_until(&runtime, &listed, || swept_at(&slice) != 0);
    let begin = now();
    process.child.kill();
    sweep_until(&runtime, &listed, || is_freed(&slice, &process));
    let took = now() - begin;
    assert!(took >= 750 * MS, "it was free after {took} ns");
}

/// It died between two sweeps: then nobody can say which process of which slice it was.
#[test]
fn a_listed_process_that_was_never_seen_alive_may_be_any_that_has_died_since() {
    let runtime = Runtime::new("unknown");
    let slice = runtime.slice("slice", None);
    let (old, new) = (joined(&slice), joined(&slice));
    let _coordinator = runtime.coordinator(FOR_EVER);
    sweep_until(&runtime, &[], || swept_at(&slice) != 0);
    old.child.kill();
    let listed = [Listed(77, None, false)];
    sweep_for(&runtime, &listed, Duration::from_secs(1));
    assert!(!is_freed(&slice, &old), "it may be the unknown process");

    // This one was seen alive when the unknown one was dead.
    new.child.kill();
    sweep_until(&runtime, &listed, || is_freed(&slice, &new));
    assert!(!is_freed(&slice, &old));
    sweep_until(&runtime, &[], || is_freed(&slice, &old));
}

#[test]
fn a_damaged_file_is_ignored() {
    let runtime = Runtime::new("damaged-sweep");
    let slice = runtime.slice("slice", None);
    let process = joined(&slice);
    let _coordinator = runtime.coordinator(FOR_EVER);
    sweep_until(&runtime, &[], || swept_at(&slice) != 0);
    process.child.kill();
    std::thread::sleep(LONG_ENOUGH);
    let good = document(now(), &[]);
    let future = document(now() + 1_000_000 * MS, &[]);
    let large = format!("{good}{}", " ".repeat(5 << 20));
    let mut damaged = vec![String::new(), "{}".into(), "[]".into(), "\0".into(), future, large];
    damaged.push(good.replace("\"version\":1", "\"version\":2"));
    damaged.push(good.replace("[]", r#"[{"pid":-1}]"#));
    damaged.push(good[..good.len() - 1].into());
    for text in damaged {
        write_sweep(&runtime, &text);
        std::thread::sleep(Duration::from_millis(150));
        assert!(!is_freed(&slice, &process), "{}", text.trim());
    }
    let _ = std::fs::remove_file(runtime.path().join("sweep"));
    std::os::unix::fs::symlink("/dev/zero", runtime.path().join("sweep")).unwrap();
    std::thread::sleep(Duration::from_millis(150));
    let started = sweep(&runtime, &[]);
    wait_until(|| swept_at(&slice) == started, || "a good file is not read after it".into());
    sweep_until(&runtime, &[], || is_freed(&slice, &process));
}

/// The processes of a slice write its account. If a slot has the numbers of a process of another
/// slice, it gets that process's answer, and the other slice does not change.
#[test]
fn false_numbers_in_an_account_harm_only_its_slice() {
    let runtime = Runtime::new("false");
    let (honest, other) = (runtime.slice("honest", None), runtime.slice("other", None));
    let process = joined(&honest);
    let _liar = joined(&other);
    // The records from byte 36864 on, 256 bytes each: taken, pid, start time, namespace.
    let path = other.join("account");
    let mut bytes = std::fs::read(&path).unwrap();
    let ProcessIdentity { pid, start_time, pid_namespace } = process.identity;
    for slot in 1..256 {
        let record = &mut bytes[36_864 + 256 * slot..][..48];
        record[..4].copy_from_slice(&1_u32.to_ne_bytes());
        record[4..8].copy_from_slice(&pid.to_ne_bytes());
        record[8..16].copy_from_slice(&start_time.to_ne_bytes());
        record[16..24].copy_from_slice(&pid_namespace.to_ne_bytes());
        record[40..48].copy_from_slice(&process.joined_at.to_ne_bytes());
    }
    bytes[64..68].copy_from_slice(&u32::MAX.to_ne_bytes());
    std::fs::write(&path, bytes).unwrap();
    let _coordinator = runtime.coordinator(FOR_EVER);
    let alive = [Listed(1, Some(process.identity), true)];
    sweep_until(&runtime, &alive, || swept_at(&honest) != 0 && swept_at(&other) != 0);
    sweep_until(&runtime, &[], || word(&other, 1088 + 8 * 255) == process.joined_at);
    assert!(!is_freed(&honest, &process), "it lives");
    process.child.kill();
    sweep_until(&runtime, &[], || is_freed(&honest, &process));
}

#[test]
fn a_truncated_file_of_one_slice_delays_no_other() {
    for file in ["account", "grants", "limits"] {
        let runtime = Runtime::new(&format!("truncated-{file}"));
        let (bad, good) = (runtime.slice("a-bad", None), runtime.slice("good", None));
        let (_lost, process) = (joined(&bad), joined(&good));
        let coordinator = runtime.coordinator(FOR_EVER);
        sweep_until(&runtime, &[], || swept_at(&bad) != 0 && swept_at(&good) != 0);
        std::fs::OpenOptions::new().write(true).open(bad.join(file)).unwrap().set_len(0).unwrap();
        process.child.kill();
        sweep_until(&runtime, &[], || is_freed(&good, &process));
        assert!(coordinator.is_alive());
    }
}

/// The kernel looks through all locks of a file for each one that is probed. A slice with so many
/// of them that this takes long is left out.
#[test]
fn thousands_of_locks_in_one_slice_delay_no_other() {
    let runtime = Runtime::new("locks");
    let (bad, good) = (runtime.slice("a-bad", None), runtime.slice("good", None));
    let process = joined(&good);
    let account =
        std::fs::OpenOptions::new().read(true).write(true).open(bad.join("account")).unwrap();
    for at in (0..20_000).rev() {
        // SAFETY: all zeroes are a valid request.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        (lock.l_type, lock.l_start, lock.l_len) = (libc::F_WRLCK as _, 10_000 + 2 * at, 1);
        // SAFETY: an open file and a valid request.
        assert_eq!(unsafe { libc::fcntl(account.as_raw_fd(), libc::F_OFD_SETLK, &lock) }, 0);
    }
    // All slots seem to be taken.
    let path = bad.join("account");
    let mut bytes = std::fs::read(&path).unwrap();
    for slot in 0..256 {
        let record = &mut bytes[36_864 + 256 * slot..][..8];
        record[..4].copy_from_slice(&1_u32.to_ne_bytes());
        record[4..].copy_from_slice(&1_u32.to_ne_bytes());
    }
    bytes[64..68].copy_from_slice(&256_u32.to_ne_bytes());
    account.write_all_at(&bytes, 0).unwrap();
    let _coordinator = runtime.coordinator(FOR_EVER);
    // The word "regulated" of a slice that may not launch any more.
    sweep_until(&runtime, &[], || word(&bad, 40) as u32 == 1);
    process.child.kill();
    sweep_until(&runtime, &[], || is_freed(&good, &process));
}

/// A process in a time namespace reads another start time than the sweeper.
#[test]
fn a_listed_process_is_recognised_with_another_start_time() {
    let runtime = Runtime::new("times");
    let slice = runtime.slice("slice", None);
    let process = joined(&slice);
    let _coordinator = runtime.coordinator(FOR_EVER);
    let start_time = process.identity.start_time + 100_000;
    let seen = ProcessIdentity { start_time, ..process.identity };
    sweep_until(&runtime, &[Listed(1, Some(seen), true)], || swept_at(&slice) != 0);
    process.child.kill();
    let dead = [Listed(1, Some(seen), false)];
    sweep_for(&runtime, &dead, LONG_ENOUGH);
    assert!(!is_freed(&slice, &process), "the driver still holds its memory");
    sweep_until(&runtime, &[], || is_freed(&slice, &process));
}

/// A slot is removed and made again under its name, for the next container.
#[test]
fn a_rebuilt_slice_is_opened_again() {
    let runtime = Runtime::new("rebuilt");
    let slice = runtime.slice("slice", None);
    let _coordinator = runtime.coordinator(FOR_EVER);
    sweep_until(&runtime, &[], || swept_at(&slice) != 0);
    for round in 0..8 {
        // In a directory aside, so that the name never lacks a slice.
        let next = runtime.slice(&format!("next-{round}"), None);
        let old = runtime.path().join("old");
        std::fs::rename(&slice, &old).unwrap();
        std::fs::rename(&next, &slice).unwrap();
        std::fs::remove_dir_all(&old).unwrap();
        sweep_until(&runtime, &[], || swept_at(&slice) != 0);
        // And in place, where the file system may use the inode again.
        std::fs::remove_dir_all(&slice).unwrap();
        runtime.slice("slice", None);
        sweep_until(&runtime, &[], || swept_at(&slice) != 0);
    }
}
