//! Tests of memory that one process has exported and others have imported: it is charged once, and as
//! long as any of them has it, or a descriptor keeps it.

mod common;

use common::{Child, MIB, Random, Scratch, shared, wait_for};
use hami_account::Requester::Program;
use hami_account::descriptor::{self, Mark};
use hami_account::{Account, Departed, Snapshot};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const LIMIT: u64 = 64 * MIB;
/// The highest bit says that it is of a handle.
const KEY: u64 = HANDLE | 0x1234_5678_9abc_def0;
const HANDLE: u64 = 1 << 63;

/// Signals between the processes of a test.
fn flags() -> &'static [AtomicU32; 8] {
    // SAFETY: zero is a value of an atomic, and atomics are made for several processes.
    unsafe { shared() }
}

/// One test at a time: a child of another one would inherit an open descriptor, and keep it.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn attach(scratch: &Scratch) -> Account {
    Account::attach_with(&scratch.path(), |_| Departed::Yes).unwrap()
}

/// A process that has 8 MiB of card 1 exported, and frees them at signal 1. Then it waits.
fn owner(scratch: &Scratch, flags: &'static [AtomicU32; 8]) -> Child {
    let child = Child::run(|| {
        let account = attach(scratch);
        let member = account.join().unwrap();
        member.charge(1, 8 * MIB, LIMIT, Program).unwrap();
        assert!(member.share(KEY, 1, 8 * MIB, None));
        assert_eq!(member.held(1), 0);
        flags[0].store(1, Ordering::SeqCst);
        wait_for(&flags[1]);
        assert!(member.close_shared(KEY));
        flags[2].store(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_secs(60));
    });
    wait_for(&flags[0]);
    child
}

fn used(account: &Account) -> u64 {
    account.reap_dead();
    account.used(1)
}

fn wait_until_used(account: &Account, bytes: u64) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while used(account) != bytes {
        assert!(Instant::now() < deadline, "{} bytes are used", account.used(1));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_import_costs_nothing_while_the_owner_has_the_memory() {
    let _alone = alone();
    let (scratch, flags) = (Scratch::new("import"), flags());
    let owner = owner(&scratch, flags);
    let account = attach(&scratch);
    let member = account.join().unwrap();
    assert!(member.import(KEY));
    assert!(!member.import(KEY + 1), "nobody has exported it");
    assert_eq!(account.used(1), 8 * MIB);
    assert!(member.close_shared(KEY));
    assert_eq!(account.used(1), 8 * MIB);
    flags[1].store(1, Ordering::SeqCst);
    wait_for(&flags[2]);
    assert_eq!(account.used(1), 0);
    assert!(!member.import(KEY), "the owner has freed it");
    owner.kill_and_wait();
}

#[test]
fn what_its_owner_frees_is_charged_until_the_last_import_is_closed() {
    let _alone = alone();
    let (scratch, flags) = (Scratch::new("freed"), flags());
    let owner = owner(&scratch, flags);
    let account = attach(&scratch);
    let member = account.join().unwrap();
    assert!(member.import(KEY));
    flags[1].store(1, Ordering::SeqCst);
    wait_for(&flags[2]);
    assert_eq!(account.used(1), 8 * MIB);
    assert!(member.charge(1, LIMIT - 7 * MIB, LIMIT, Program).is_err());
    assert!(member.close_shared(KEY));
    assert_eq!(account.used(1), 0);
    member.charge(1, LIMIT, LIMIT, Program).unwrap();
    owner.kill_and_wait();
}

#[test]
fn what_a_dead_owner_had_is_charged_until_the_last_import_is_closed() {
    let _alone = alone();
    let (scratch, flags) = (Scratch::new("dead"), flags());
    let owner = owner(&scratch, flags);
    let account = attach(&scratch);
    let member = account.join().unwrap();
    assert!(member.import(KEY));
    owner.kill_and_wait();
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(11));
        assert_eq!(used(&account), 8 * MIB);
    }
    // It can not be waited for.
    let begin = Instant::now();
    assert!(member.charge(1, LIMIT, LIMIT, Program).is_err());
    assert!(begin.elapsed() < Duration::from_secs(1));
    member.charge(1, LIMIT - 8 * MIB, LIMIT, Program).unwrap();
    assert!(member.close_shared(KEY));
    assert_eq!(account.used(1), LIMIT - 8 * MIB);
    wait_until_used(&account, LIMIT - 8 * MIB);
}

#[test]
fn an_import_ends_with_its_process() {
    let _alone = alone();
    let (scratch, flags) = (Scratch::new("importer"), flags());
    let owner = owner(&scratch, flags);
    let importer = Child::run(|| {
        let account = attach(&scratch);
        let member = account.join().unwrap();
        assert!(member.import(KEY));
        flags[3].store(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_secs(60));
    });
    wait_for(&flags[3]);
    owner.kill_and_wait();
    let account = attach(&scratch);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(used(&account), 8 * MIB);
    importer.kill_and_wait();
    wait_until_used(&account, 0);
}

#[test]
fn of_two_importers_the_last_one_releases_the_memory() {
    let _alone = alone();
    let (scratch, flags) = (Scratch::new("two"), flags());
    let owner = owner(&scratch, flags);
    let importers = [3, 4].map(|ready| {
        let child = Child::run(|| {
            let account = attach(&scratch);
            let member = account.join().unwrap();
            assert!(member.import(KEY));
            flags[ready].store(1, Ordering::SeqCst);
            wait_for(&flags[ready + 2]);
            assert!(member.close_shared(KEY));
            flags[ready + 2].store(2, Ordering::SeqCst);
            std::thread::sleep(Duration::from_secs(60));
        });
        wait_for(&flags[ready]);
        child
    });
    flags[1].store(1, Ordering::SeqCst);
    wait_for(&flags[2]);
    let account = attach(&scratch);
    assert_eq!(account.used(1), 8 * MIB);
    flags[5].store(1, Ordering::SeqCst);
    while flags[5].load(Ordering::SeqCst) != 2 {
        std::thread::yield_now();
    }
    assert_eq!(account.used(1), 8 * MIB);
    flags[6].store(1, Ordering::SeqCst);
    wait_until_used(&account, 0);
    drop((owner, importers));
}

#[test]
fn an_account_has_room_for_4096_exports_and_none_is_lost() {
    let _alone = alone();
    let scratch = Scratch::new("many");
    let account = attach(&scratch);
    let member = account.join().unwrap();
    member.charge(0, 4097 * 512, LIMIT, Program).unwrap();
    for key in HANDLE + 1..=HANDLE + 4096 {
        assert!(member.share(key, 0, 512, None));
    }
    assert!(!member.share(HANDLE + 4097, 0, 512, None));
    assert_eq!((member.held(0), account.used(0)), (512, 4097 * 512));
    for key in HANDLE + 1..=HANDLE + 4096 {
        assert!(member.close_shared(key));
    }
    assert_eq!(account.used(0), 512);
    assert!(member.share(HANDLE + 4097, 0, 512, None));
    assert!(!member.close_shared(HANDLE + 4098));
}

#[test]
fn a_snapshot_shows_shared_memory_once() {
    let _alone = alone();
    let (scratch, flags) = (Scratch::new("snapshot"), flags());
    let owner = owner(&scratch, flags);
    let account = attach(&scratch);
    let member = account.join().unwrap();
    assert!(member.import(KEY));
    let seen = || {
        let read = Snapshot::read(&scratch.path()).unwrap();
        let of_processes: Vec<u64> = read.processes.iter().map(|it| it.memory[1]).collect();
        (read.used[1], of_processes)
    };
    assert_eq!(seen(), (8 * MIB, vec![8 * MIB, 0]));
    flags[1].store(1, Ordering::SeqCst);
    wait_for(&flags[2]);
    assert_eq!(seen(), (8 * MIB, vec![0, 8 * MIB]));
    owner.kill_and_wait();
}

/// Owners export and free, importers import and close, and all are killed at times. In the end
/// nothing stays charged; in between the account has at least what a survivor holds.
#[test]
fn nothing_is_lost_when_owners_and_importers_race_and_die() {
    let _alone = alone();
    let scratch = Scratch::new("storm");
    // SAFETY: as in `flags`.
    let exported: &'static AtomicU64 = unsafe { shared() };
    for round in 0..30 {
        let owners: Vec<Child> = (0..3)
            .map(|number| {
                Child::run(|| {
                    let account = attach(&scratch);
                    let member = account.join().unwrap();
                    let mut random = Random::new(round * 10 + number);
                    for turn in 0.. {
                        let key = HANDLE + 1 + number * 1_000_000 + turn;
                        member.charge(0, MIB, 1024 * MIB, Program).unwrap();
                        assert!(member.share(key, 0, MIB, None));
                        exported.store(key, Ordering::SeqCst);
                        for _ in 0..random.below(200) {
                            std::hint::spin_loop();
                        }
                        assert!(account.used(0) >= MIB);
                        assert!(member.close_shared(key));
                    }
                })
            })
            .collect();
        let importers: Vec<Child> = (0..3)
            .map(|_| {
                Child::run(|| {
                    let account = attach(&scratch);
                    let member = account.join().unwrap();
                    loop {
                        let key = exported.load(Ordering::SeqCst);
                        if key != 0 && member.import(key) {
                            assert!(account.used(0) >= MIB);
                            assert!(member.close_shared(key), "others cleared it");
                        }
                    }
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(20));
        for child in owners.into_iter().chain(importers) {
            assert!(child.is_alive(), "an assertion failed there");
            child.kill_and_wait();
        }
        let account = attach(&scratch);
        let deadline = Instant::now() + Duration::from_secs(20);
        while account.used(0) != 0 {
            account.reap_dead();
            assert!(Instant::now() < deadline, "{} bytes are left", account.used(0));
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A request is refused only if it never fits. While exports move units, a sum may have them twice.
#[test]
fn a_request_that_fits_is_granted_while_others_export() {
    let _alone = alone();
    let scratch = Scratch::new("moving");
    let exporters: Vec<Child> = (0..2)
        .map(|number| {
            Child::run(|| {
                let account = attach(&scratch);
                let member = account.join().unwrap();
                for turn in 0.. {
                    let key = HANDLE + 1 + number * 1_000_000 + turn;
                    member.charge(0, 8 * MIB, LIMIT, Program).unwrap();
                    assert!(member.share(key, 0, 8 * MIB, None));
                    assert!(member.close_shared(key));
                }
            })
        })
        .collect();
    let account = attach(&scratch);
    let member = account.join().unwrap();
    for _ in 0..20_000 {
        member.charge(0, LIMIT - 16 * MIB, LIMIT, Program).unwrap();
        assert!(account.used(0) <= LIMIT + 16 * MIB);
        member.uncharge(0, LIMIT - 16 * MIB);
    }
    for child in exporters {
        assert!(child.is_alive(), "a request was refused there");
        child.kill_and_wait();
    }
}

// Descriptors.

/// The file of a driver's descriptors, and one that is marked.
struct Marked {
    path: PathBuf,
    file: File,
    mark: Mark,
}

fn marked(scratch: &Scratch, key: u64) -> Marked {
    let path = scratch.folder().join("driver");
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).truncate(false).open(&path).unwrap();
    let mark = descriptor::mark(file.as_raw_fd(), key).unwrap();
    Marked { path, file, mark }
}

#[test]
fn what_a_descriptor_keeps_is_charged_until_the_last_one_is_closed() {
    let _alone = alone();
    let (scratch, flags) = (Scratch::new("descriptor"), flags());
    let key = descriptor::new_key().unwrap();
    let Marked { file, mark, .. } = marked(&scratch, key);
    let exporter = Child::run(|| {
        let account = attach(&scratch);
        let member = account.join().unwrap();
        member.charge(1, 8 * MIB, LIMIT, Program).unwrap();
        assert!(member.share(key, 1, 8 * MIB, Some(&mark)));
        flags[0].store(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_secs(60));
    });
    wait_for(&flags[0]);
    exporter.kill_and_wait();
    let account = attach(&scratch);
    let member = account.join().unwrap();
    // Nobody holds it, and the descriptor is open.
    assert!(member.charge(1, LIMIT, LIMIT, Program).is_err());
    assert_eq!(used(&account), 8 * MIB);
    let copy = file.try_clone().unwrap();
    drop(file);
    assert_eq!(descriptor::key_of(copy.as_raw_fd()), Some(key));
    assert!(member.import(key));
    drop(copy);
    assert!(member.charge(1, LIMIT, LIMIT, Program).is_err());
    assert_eq!(account.used(1), 8 * MIB);
    assert!(member.close_shared(key));
    assert_eq!(account.used(1), 8 * MIB, "nothing is looked up at a release");
    member.charge(1, LIMIT, LIMIT, Program).unwrap();
    assert!(!member.import(key));
}

#[test]
fn a_query_sees_that_a_descriptor_was_closed() {
    let _alone = alone();
    let scratch = Scratch::new("query");
    let account = attach(&scratch);
    let member = account.join().unwrap();
    let key = descriptor::new_key().unwrap();
    let Marked { file, mark, .. } = marked(&scratch, key);
    member.charge(1, 8 * MIB, LIMIT, Program).unwrap();
    assert!(member.share(key, 1, 8 * MIB, Some(&mark)));
    assert!(member.close_shared(key));
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(20));
        member.reap_dead();
        assert_eq!(account.used(1), 8 * MIB);
    }
    drop(file);
    std::thread::sleep(Duration::from_millis(20));
    member.reap_dead();
    assert_eq!(account.used(1), 0);
}

#[test]
fn what_a_dead_process_had_exported_is_released_from_outside() {
    let _alone = alone();
    let (scratch, flags) = (Scratch::new("outside"), flags());
    let key = descriptor::new_key().unwrap();
    let exporter = Child::run(|| {
        let account = attach(&scratch);
        let member = account.join().unwrap();
        let Marked { file, mark, .. } = marked(&scratch, key);
        member.charge(1, 8 * MIB, LIMIT, Program).unwrap();
        assert!(member.share(key, 1, 8 * MIB, Some(&mark)));
        flags[0].store(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_secs(60));
        drop(file);
    });
    wait_for(&flags[0]);
    exporter.kill_and_wait();
    let account = attach(&scratch);
    wait_until_used(&account, 0);
    assert_eq!(Snapshot::read(&scratch.path()).unwrap().processes, []);
}

#[test]
fn what_cannot_be_looked_up_is_charged_while_a_process_lives_that_had_it() {
    let _alone = alone();
    let (scratch, flags) = (Scratch::new("unseen"), flags());
    let key = descriptor::new_key().unwrap();
    let exporter = Child::run(|| {
        let account = attach(&scratch);
        let member = account.join().unwrap();
        member.charge(1, 8 * MIB, LIMIT, Program).unwrap();
        assert!(member.share(key, 1, 8 * MIB, None));
        assert!(member.close_shared(key));
        flags[0].store(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_secs(60));
    });
    wait_for(&flags[0]);
    let account = attach(&scratch);
    let member = account.join().unwrap();
    assert!(member.charge(1, LIMIT, LIMIT, Program).is_err());
    exporter.kill_and_wait();
    member.charge(1, LIMIT, LIMIT, Program).unwrap();
}

#[test]
fn another_file_at_the_same_path_proves_nothing() {
    let _alone = alone();
    let scratch = Scratch::new("replaced");
    let account = attach(&scratch);
    let member = account.join().unwrap();
    let key = descriptor::new_key().unwrap();
    let Marked { path, file, mark } = marked(&scratch, key);
    member.charge(1, 8 * MIB, LIMIT, Program).unwrap();
    assert!(member.share(key, 1, 8 * MIB, Some(&mark)));
    assert!(member.close_shared(key));
    std::fs::rename(&path, scratch.folder().join("moved")).unwrap();
    assert!(member.charge(1, LIMIT, LIMIT, Program).is_err(), "the file is not there");
    File::create(&path).unwrap();
    assert!(member.charge(1, LIMIT, LIMIT, Program).is_err(), "it is another file");
    drop(file);
    assert!(member.charge(1, LIMIT, LIMIT, Program).is_err());
    std::fs::rename(scratch.folder().join("moved"), &path).unwrap();
    member.charge(1, LIMIT, LIMIT, Program).unwrap();
}

/// A list of locks that changes while it is read may lack one; the kernel's answer for one position
/// does not.
#[test]
fn an_open_descriptor_is_seen_while_others_take_and_drop_locks() {
    let _alone = alone();
    let scratch = Scratch::new("locks");
    let account = attach(&scratch);
    let member = account.join().unwrap();
    let key = descriptor::new_key().unwrap();
    let path = scratch.folder().join("driver");
    File::create(&path).unwrap();
    // Before there is a descriptor that it would inherit.
    let busy = Child::run(|| {
        let mut options = File::options();
        let other = options.read(true).write(true).open(&path).unwrap();
        loop {
            let mut lock = libc::flock {
                l_type: libc::F_WRLCK as i16,
                l_whence: 0,
                l_start: 0,
                l_len: 1,
                l_pid: 0,
            };
            // SAFETY: a local variable.
            unsafe { libc::fcntl(other.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
            lock.l_type = libc::F_UNLCK as i16;
            // SAFETY: as above.
            unsafe { libc::fcntl(other.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
        }
    });
    let Marked { file, mark, .. } = marked(&scratch, key);
    member.charge(1, 8 * MIB, LIMIT, Program).unwrap();
    assert!(member.share(key, 1, 8 * MIB, Some(&mark)));
    assert!(member.close_shared(key));
    for _ in 0..3000 {
        assert!(member.charge(1, LIMIT, LIMIT, Program).is_err());
    }
    assert!(busy.is_alive());
    drop(file);
    member.charge(1, LIMIT, LIMIT, Program).unwrap();
}

/// Two processes that have imported from each other die at once. The driver may not have freed their
/// memory yet, so it is not available, and a request for it waits.
#[test]
fn memory_that_only_dead_processes_have_imported_comes_back() {
    let _alone = alone();
    let (scratch, flags) = (Scratch::new("both"), flags());
    let children = [0_usize, 1].map(|number| {
        Child::run(|| {
            let account = attach(&scratch);
            let member = account.join().unwrap();
            member.charge(1, 8 * MIB, LIMIT, Program).unwrap();
            assert!(member.share(HANDLE + number as u64, 1, 8 * MIB, None));
            flags[number].store(1, Ordering::SeqCst);
            wait_for(&flags[1 - number]);
            assert!(member.import(HANDLE + 1 - number as u64));
            flags[number + 2].store(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_secs(60));
        })
    });
    wait_for(&flags[2]);
    wait_for(&flags[3]);
    let account = attach(&scratch);
    let member = account.join().unwrap();
    assert!(member.charge(1, LIMIT, LIMIT, Program).is_err());
    for child in children {
        child.kill_and_wait();
    }
    member.charge(1, LIMIT, LIMIT, Program).unwrap();
}

/// The entries that a sum reads, as the layout has them.
fn read_by_sums(scratch: &Scratch) -> u16 {
    let bytes = std::fs::read(scratch.path()).unwrap();
    u16::from_le_bytes([bytes[1024], bytes[1025]])
}

#[test]
fn sums_read_no_empty_entries_behind_the_last_one_in_use() {
    let _alone = alone();
    let scratch = Scratch::new("sums");
    let account = attach(&scratch);
    let member = account.join().unwrap();
    let share = |key: u64| {
        member.charge(1, 512, LIMIT, Program).unwrap();
        assert!(member.share(HANDLE | key, 1, 512, None));
    };
    (1..=4000).for_each(share);
    assert_eq!((read_by_sums(&scratch), account.used(1)), (4000, 4000 * 512));
    for key in (1..=3999).rev().filter(|key| *key != 7) {
        assert!(member.close_shared(HANDLE | key));
    }
    assert_eq!((read_by_sums(&scratch), account.used(1)), (4000, 2 * 512));
    let last = 4000;
    assert!(member.close_shared(HANDLE | last));
    assert_eq!((read_by_sums(&scratch), account.used(1)), (7, 512));
    share(1);
    assert_eq!((read_by_sums(&scratch), account.used(1)), (7, 2 * 512));
    for key in [7, 1] {
        assert!(member.close_shared(HANDLE | key));
    }
    assert_eq!((read_by_sums(&scratch), account.used(1)), (0, 0));
}
