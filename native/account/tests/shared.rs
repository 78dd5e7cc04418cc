//! Tests of memory that one process has exported and others have imported: it is charged once, and as
//! long as any of them has it.

mod common;

use common::{Child, MIB, Random, Scratch, shared, wait_for};
use hami_account::{Account, Departed, Import};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
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

fn attach(scratch: &Scratch) -> Account {
    Account::attach_with(&scratch.path(), |_| Departed::Yes).unwrap()
}

/// A process that has 8 MiB of card 1 exported, and frees them at signal 1. Then it waits.
fn owner(scratch: &Scratch, flags: &'static [AtomicU32; 8]) -> Child {
    let child = Child::run(|| {
        let account = attach(scratch);
        let member = account.join().unwrap();
        member.charge(1, 8 * MIB, LIMIT).unwrap();
        assert!(member.share(KEY, 1, 8 * MIB));
        assert!(member.share(KEY, 1, 8 * MIB), "a second handle of the same memory");
        flags[0].store(1, Ordering::SeqCst);
        wait_for(&flags[1]);
        if !member.free_shared(KEY) {
            member.uncharge(1, 8 * MIB);
        }
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
    let (scratch, flags) = (Scratch::new("import"), flags());
    let owner = owner(&scratch, flags);
    let account = attach(&scratch);
    let member = account.join().unwrap();
    assert_eq!(member.import(KEY), Import::Charged);
    assert_eq!(member.import(KEY + 1), Import::Unknown, "nobody has exported it");
    assert_eq!(account.used(1), 8 * MIB);
    member.close_import(KEY);
    assert_eq!(account.used(1), 8 * MIB);
    flags[1].store(1, Ordering::SeqCst);
    wait_for(&flags[2]);
    assert_eq!(account.used(1), 0);
    assert_eq!(member.import(KEY), Import::Unknown, "the owner has freed it");
    owner.kill_and_wait();
}

#[test]
fn what_its_owner_frees_is_charged_until_the_last_import_is_closed() {
    let (scratch, flags) = (Scratch::new("freed"), flags());
    let owner = owner(&scratch, flags);
    let account = attach(&scratch);
    let member = account.join().unwrap();
    assert_eq!(member.import(KEY), Import::Charged);
    flags[1].store(1, Ordering::SeqCst);
    wait_for(&flags[2]);
    assert_eq!(account.used(1), 8 * MIB);
    assert!(member.charge(1, LIMIT - 7 * MIB, LIMIT).is_err());
    member.close_import(KEY);
    assert_eq!(account.used(1), 0);
    member.charge(1, LIMIT, LIMIT).unwrap();
    owner.kill_and_wait();
}

#[test]
fn what_a_dead_owner_had_is_charged_until_the_last_import_is_closed() {
    let (scratch, flags) = (Scratch::new("dead"), flags());
    let owner = owner(&scratch, flags);
    let account = attach(&scratch);
    let member = account.join().unwrap();
    assert_eq!(member.import(KEY), Import::Charged);
    owner.kill_and_wait();
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(11));
        assert_eq!(used(&account), 8 * MIB);
    }
    // It can not be waited for.
    let begin = Instant::now();
    assert!(member.charge(1, LIMIT, LIMIT).is_err());
    assert!(begin.elapsed() < Duration::from_secs(1));
    member.charge(1, LIMIT - 8 * MIB, LIMIT).unwrap();
    member.close_import(KEY);
    assert_eq!(account.used(1), LIMIT - 8 * MIB);
    wait_until_used(&account, LIMIT - 8 * MIB);
}

#[test]
fn an_import_ends_with_its_process() {
    let (scratch, flags) = (Scratch::new("importer"), flags());
    let owner = owner(&scratch, flags);
    let importer = Child::run(|| {
        let account = attach(&scratch);
        let member = account.join().unwrap();
        assert_eq!(member.import(KEY), Import::Charged);
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
    let (scratch, flags) = (Scratch::new("two"), flags());
    let owner = owner(&scratch, flags);
    let importers = [3, 4].map(|ready| {
        let child = Child::run(|| {
            let account = attach(&scratch);
            let member = account.join().unwrap();
            assert_eq!(member.import(KEY), Import::Charged);
            flags[ready].store(1, Ordering::SeqCst);
            wait_for(&flags[ready + 2]);
            member.close_import(KEY);
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
    let scratch = Scratch::new("many");
    let account = attach(&scratch);
    let member = account.join().unwrap();
    member.charge(0, 5000 * 512, LIMIT).unwrap();
    for key in HANDLE + 1..=HANDLE + 4096 {
        assert!(member.share(key, 0, 512));
    }
    assert!(!member.share(HANDLE + 4097, 0, 512));
    for key in HANDLE + 1..=HANDLE + 4096 {
        assert!(!member.free_shared(key), "nobody has imported it");
    }
    assert!(member.share(HANDLE + 4097, 0, 512));
}

/// Owners export and free, importers import and close, and all are killed at times. In the end
/// nothing stays charged; in between the account has at least what a survivor holds.
#[test]
fn nothing_is_lost_when_owners_and_importers_race_and_die() {
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
                        member.charge(0, MIB, 1024 * MIB).unwrap();
                        member.share(key, 0, MIB);
                        exported.store(key, Ordering::SeqCst);
                        for _ in 0..random.below(200) {
                            std::hint::spin_loop();
                        }
                        if !member.free_shared(key) {
                            member.uncharge(0, MIB);
                        }
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
                        if key != 0 && member.import(key) == Import::Charged {
                            assert!(account.used(0) >= MIB);
                            member.close_import(key);
                        }
                    }
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(20));
        for child in owners.into_iter().chain(importers) {
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

/// A key of a descriptor.
const DESCRIPTOR: u64 = 1 << 62;

#[test]
fn what_a_descriptor_keeps_is_charged_until_the_last_one_is_closed() {
    let (scratch, flags) = (Scratch::new("descriptor"), flags());
    let owner = Child::run(|| {
        let account = attach(&scratch);
        let member = account.join().unwrap();
        member.charge(1, 8 * MIB, LIMIT).unwrap();
        assert!(member.share(DESCRIPTOR, 1, 8 * MIB));
        assert!(member.free_shared(DESCRIPTOR), "its descriptor may be open");
        flags[0].store(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_secs(60));
    });
    wait_for(&flags[0]);
    let account = attach(&scratch);
    let member = account.join().unwrap();
    assert!(account.may_be_kept_by_descriptors());
    assert!(!account.release_closed(|| None), "which descriptors are open is not known");
    assert!(!account.release_closed(|| Some(vec![7, DESCRIPTOR])));
    assert!(account.may_be_kept_by_descriptors());
    assert_eq!(member.import(DESCRIPTOR), Import::Charged);
    assert!(!account.release_closed(|| panic!("importers keep it")));
    assert!(!account.may_be_kept_by_descriptors());
    assert_eq!(account.used(1), 8 * MIB);
    member.close_import(DESCRIPTOR);
    assert_eq!(account.used(1), 8 * MIB);
    assert!(account.release_closed(|| Some(vec![7])));
    assert_eq!(account.used(1), 0);
    assert_eq!(member.import(DESCRIPTOR), Import::Unknown);
    assert!(!account.release_closed(|| panic!("there is nothing to look for")));
    owner.kill_and_wait();
}

#[test]
fn the_size_of_a_descriptor_s_memory_is_known_when_its_owner_has_died() {
    let (scratch, flags) = (Scratch::new("orphan"), flags());
    let owner = Child::run(|| {
        let account = attach(&scratch);
        let member = account.join().unwrap();
        member.charge(1, 8 * MIB, LIMIT).unwrap();
        assert!(member.share(DESCRIPTOR, 1, 8 * MIB));
        flags[0].store(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_secs(60));
    });
    wait_for(&flags[0]);
    owner.kill_and_wait();
    let account = attach(&scratch);
    wait_until_used(&account, 0);
    let member = account.join().unwrap();
    assert_eq!(member.import(DESCRIPTOR), Import::Uncharged(8 * MIB));
    assert!(account.release_closed(|| Some(vec![])));
    assert_eq!(member.import(DESCRIPTOR), Import::Unknown);
}

/// Two processes that have imported from each other die at once. The driver may not have freed their
/// memory yet, so it is not available, and a request for it waits.
#[test]
fn memory_that_only_dead_processes_have_imported_comes_back() {
    let (scratch, flags) = (Scratch::new("both"), flags());
    let children = [0_usize, 1].map(|number| {
        Child::run(|| {
            let account = attach(&scratch);
            let member = account.join().unwrap();
            member.charge(1, 8 * MIB, LIMIT).unwrap();
            member.share(HANDLE + number as u64, 1, 8 * MIB);
            flags[number].store(1, Ordering::SeqCst);
            wait_for(&flags[1 - number]);
            assert_eq!(member.import(HANDLE + 1 - number as u64), Import::Charged);
            flags[number + 2].store(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_secs(60));
        })
    });
    wait_for(&flags[2]);
    wait_for(&flags[3]);
    let account = attach(&scratch);
    let member = account.join().unwrap();
    assert!(member.charge(1, LIMIT, LIMIT).is_err());
    for child in children {
        child.kill_and_wait();
    }
    member.charge(1, LIMIT, LIMIT).unwrap();
}
