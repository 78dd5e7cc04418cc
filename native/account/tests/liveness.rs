//! Tests of which processes count as alive: fork, closed descriptors, removed mappings, exec, full
//! and moved accounts.

mod common;

use common::{Child, MIB, Scratch, shared, wait_for};
use hami_account::Requester::Program;
use hami_account::{Account, CARDS, Departed, Living, Refused, SLOTS, Snapshot, fork};
use hami_limits::FileError;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

const LIMIT: u64 = 64 * MIB;

fn flags() -> &'static [AtomicU32; 4] {
    // SAFETY: zero is a value of an atomic, and atomics are made for several processes.
    unsafe { shared() }
}

fn alive(scratch: &Scratch) -> Vec<bool> {
    let snapshot = Snapshot::read(&scratch.path()).unwrap();
    snapshot.processes.iter().map(|process| process.alive).collect()
}

fn close_everything() {
    // SAFETY: the child that calls this uses no descriptor afterwards.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
}

#[test]
fn a_forked_child_is_no_member_until_it_joins() {
    let scratch = Scratch::new("fork");
    let child = Child::run(|| {
        let account = Account::attach(&scratch.path()).unwrap();
        let mut inherited = Some(account.join().unwrap());
        inherited.as_ref().unwrap().charge(0, MIB, LIMIT, Program).unwrap();
        let before = fork::generation();
        let grandchild = Child::run(|| {
            assert_ne!(fork::generation(), before);
            let member = inherited.take().unwrap();
            assert_eq!(member.charge(0, MIB, LIMIT, Program), Err(Refused::Forked));
            member.uncharge(0, MIB);
            assert_eq!(member.held(0), 0);
            let own = account.join().unwrap();
            own.charge(0, 2 * MIB, LIMIT, Program).unwrap();
            drop(member);
            assert_eq!(account.used(0), 3 * MIB);
        });
        assert_eq!(grandchild.wait(), 0);
        assert_eq!(fork::generation(), before);
        // The grandchild is dead; this process is alive and keeps its bytes.
        assert_eq!(alive(&scratch), [true, false]);
        assert_eq!(inherited.unwrap().held(0), MIB);
    });
    assert_eq!(child.wait(), 0);
    assert_eq!(alive(&scratch), [false, false]);
}

#[test]
fn a_child_forked_while_others_join_inherits_no_slot() {
    let scratch = Scratch::new("fork-join");
    let child = Child::run(|| {
        let account = Account::attach_with(&scratch.path(), |_| Departed::Yes).unwrap();
        let stop = AtomicBool::new(false);
        let mut children = Vec::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        drop(account.join().unwrap());
                    }
                });
            }
            for _ in 0..200 {
                children.push(Child::run(|| std::thread::sleep(Duration::from_secs(60))));
                std::thread::sleep(Duration::from_micros(500));
            }
            stop.store(true, Ordering::Relaxed);
        });
        // All members have exited and all children live: a slot that seems alive belongs to a
        // child.
        let leaked = alive(&scratch).into_iter().filter(|alive| *alive).count();
        assert_eq!(leaked, 0, "slots that live on in forked children");
        children.into_iter().for_each(Child::kill_and_wait);
    });
    assert_eq!(child.wait(), 0);
}

#[test]
fn closing_all_descriptors_does_not_end_a_membership() {
    let scratch = Scratch::new("close-range");
    let flags = flags();
    let child = Child::run(|| {
        let account = Account::attach(&scratch.path()).unwrap();
        let member = account.join().unwrap();
        close_everything();
        member.charge(0, MIB, LIMIT, Program).unwrap();
        flags[0].store(1, Ordering::SeqCst);
        wait_for(&flags[1]);
    });
    wait_for(&flags[0]);
    assert_eq!(alive(&scratch), [true]);
    flags[1].store(1, Ordering::SeqCst);
    assert_eq!(child.wait(), 0);
    assert_eq!(alive(&scratch), [false]);
}

/// Whether a process that does `hinder` after it has attached the account notices a death.
fn notices_a_death(name: &str, hinder: impl Fn(&Scratch)) -> bool {
    let (scratch, flags) = (Scratch::new(name), flags());
    let member = Child::run(|| {
        let account = Account::attach(&scratch.path()).unwrap();
        let _member = account.join().unwrap();
        flags[0].store(1, Ordering::SeqCst);
        wait_for(&flags[1]);
    });
    wait_for(&flags[0]);
    let prober = Child::run(|| {
        let account = Account::attach(&scratch.path()).unwrap();
        hinder(&scratch);
        assert!(!account.find_dead(|_| true)[0], "the process lives");
        flags[2].store(1, Ordering::SeqCst);
        wait_for(&flags[3]);
        assert!(account.find_dead(|_| true)[0], "the process has died");
    });
    wait_for(&flags[2]);
    flags[1].store(1, Ordering::SeqCst);
    assert_eq!(member.wait(), 0);
    flags[3].store(1, Ordering::SeqCst);
    prober.wait() == 0
}

fn use_all_descriptors() {
    // SAFETY: it takes a number; the descriptors stay open.
    while unsafe { libc::dup(2) } >= 0 {}
}

#[test]
fn a_death_is_noticed_whatever_the_program_does_to_its_descriptors() {
    assert!(notices_a_death("full", |_| use_all_descriptors()));
    assert!(notices_a_death("closed", |_| close_everything()));
    let closed_and_full = |_: &Scratch| {
        close_everything();
        use_all_descriptors();
    };
    assert!(notices_a_death("closed-and-full", closed_and_full));
}

/// Maps memory at all addresses below the lowest programs, as an emulator does for its guest.
fn map_over_low_memory(_account: &Path) {
    let (start, length) = (0x1_0000 as *mut libc::c_void, 0x3f_0000);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: nothing but the lock's mapping is there.
    let map = unsafe { libc::mmap(start, length, libc::PROT_NONE, flags, -1, 0) };
    assert_eq!(map, start);
}

/// Removes the mappings of the lock that are not at such a low address.
fn unmap_high_memory(account: &Path) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    // The account itself is mapped with access.
    for line in maps.lines().filter(|line| line.contains(" ---s ")) {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [start, end] = [start, end].map(|text| usize::from_str_radix(text, 16).unwrap());
        if start >= 0x40_0000 && line.ends_with(account.to_str().unwrap()) {
            // SAFETY: a mapping without access that nothing refers to.
            assert_eq!(unsafe { libc::munmap(start as *mut libc::c_void, end - start) }, 0);
        }
    }
}

#[test]
fn a_program_that_removes_a_mapping_of_the_lock_stays_alive() {
    for remove in [map_over_low_memory, unmap_high_memory] {
        let scratch = Scratch::new("removed");
        let flags = flags();
        let child = Child::run(|| {
            let account = Account::attach(&scratch.path()).unwrap();
            let member = account.join().unwrap();
            member.charge(0, MIB, LIMIT, Program).unwrap();
            remove(&scratch.path());
            flags[0].store(1, Ordering::SeqCst);
            wait_for(&flags[1]);
        });
        wait_for(&flags[0]);
        assert_eq!(alive(&scratch), [true]);
        // Another process does not get its slot either.
        let account = Account::attach(&scratch.path()).unwrap();
        let other = account.join().unwrap();
        assert_eq!(other.charge(0, LIMIT, LIMIT, Program), Err(Refused::OverLimit));
        drop(other);
        flags[1].store(1, Ordering::SeqCst);
        assert_eq!(child.wait(), 0);
        assert!(!alive(&scratch).contains(&true));
    }
}

/// A driver frees memory of the card when the kernel removes the last mapping of its file. A file of
/// ours in /dev/shm stands for it: its pages must be free before the process counts as dead.
#[test]
fn a_process_is_alive_until_the_kernel_has_removed_its_other_mappings() {
    const PAGES: usize = 32 << 20;
    let scratch = Scratch::new("last");
    let flags = flags();
    let free = || {
        // SAFETY: statvfs is plain data for which zero is a value, and valid for the call.
        unsafe {
            let mut status: libc::statvfs = std::mem::zeroed();
            assert_eq!(libc::statvfs(c"/dev/shm".as_ptr(), &raw mut status), 0);
            status.f_bfree as usize * status.f_frsize as usize
        }
    };
    let before = free();
    let child = Child::run(|| {
        let account = Account::attach(&scratch.path()).unwrap();
        let _member = account.join().unwrap();
        // SAFETY: a new file without a name, and a new mapping, which lies between those of the lock.
        unsafe {
            let flags = libc::O_RDWR | libc::O_TMPFILE;
            let file = libc::open(c"/dev/shm".as_ptr(), flags, 0o600);
            assert!(file >= 0 && libc::ftruncate(file, PAGES as i64) == 0);
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let how = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE;
            let start = 0x2000_0000_0000_usize as *mut libc::c_void;
            let start = libc::mmap(start, PAGES, access, how, file, 0);
            assert_ne!(start, libc::MAP_FAILED);
            std::ptr::write_bytes(start.cast::<u8>(), 1, PAGES);
            libc::close(file);
        }
        flags[0].store(1, Ordering::SeqCst);
        wait_for(&flags[1]);
    });
    wait_for(&flags[0]);
    assert!(before - free() > PAGES / 2);
    child.kill();
    let deadline = Instant::now() + Duration::from_secs(20);
    while alive(&scratch) == [true] {
        assert!(Instant::now() < deadline, "still alive after its death");
    }
    assert!(before.saturating_sub(free()) < PAGES / 2, "dead before its memory was free");
    assert_eq!(child.wait(), -libc::SIGKILL);
}

/// While the program closes and opens files, joining fails or creates a member. It never mistakes
/// the program's files for the account.
#[test]
fn closing_all_descriptors_while_joining_leaves_no_half_member() {
    let scratch = Scratch::new("close-storm");
    let child = Child::run(|| {
        let account = Account::attach(&scratch.path()).unwrap();
        // The phase requested of the other thread, and the one it is in: 0 wait, 1 storm, 2 end.
        let (requested, done) = (AtomicU32::new(0), AtomicU32::new(0));
        let request = |what: u32| {
            requested.store(what, Ordering::SeqCst);
            while done.load(Ordering::SeqCst) != what {
                std::hint::spin_loop();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while requested.load(Ordering::SeqCst) != 2 {
                    let storm = requested.load(Ordering::SeqCst);
                    if storm == 1 {
                        close_everything();
                        // SAFETY: takes the numbers that were just freed, until the next round.
                        (0..2).for_each(|_| _ = unsafe { libc::open(c"/dev/zero".as_ptr(), 2) });
                    }
                    done.store(storm, Ordering::SeqCst);
                }
                done.store(2, Ordering::SeqCst);
            });
            let mut joined = 0;
            let until = Instant::now() + Duration::from_secs(2);
            while Instant::now() < until {
                request(1);
                let member = account.join();
                request(0);
                let alive = alive(&scratch).into_iter().filter(|alive| *alive).count();
                joined += alive;
                assert_eq!(alive, usize::from(member.is_ok()), "a member without a lock");
            }
            request(2);
            assert!(joined > 0);
        });
    });
    assert_eq!(child.wait(), 0);
}

#[test]
fn exec_ends_a_membership() {
    let scratch = Scratch::new("exec");
    let flags = flags();
    let child = Child::run(|| {
        let account = Account::attach(&scratch.path()).unwrap();
        let member = account.join().unwrap();
        member.charge(0, MIB, LIMIT, Program).unwrap();
        flags[0].store(1, Ordering::SeqCst);
        wait_for(&flags[1]);
        let arguments = [c"sleep".as_ptr(), c"60".as_ptr(), std::ptr::null()];
        // SAFETY: a list of C strings that ends with null.
        unsafe { libc::execv(c"/bin/sleep".as_ptr(), arguments.as_ptr()) };
    });
    wait_for(&flags[0]);
    assert_eq!(alive(&scratch), [true]);
    flags[1].store(1, Ordering::SeqCst);
    let deadline = Instant::now() + Duration::from_secs(10);
    while alive(&scratch) != [false] {
        assert!(Instant::now() < deadline, "still a member after exec");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill_and_wait();
}

#[test]
fn living_members_are_listed_with_pid_and_bytes() {
    let scratch = Scratch::new("living");
    let flags = flags();
    let account = Account::attach(&scratch.path()).unwrap();
    assert_eq!(account.living(0).count(), 0);
    let member = account.join().unwrap();
    let own = std::process::id();
    assert_eq!(account.living(0).collect::<Vec<_>>(), [Living { pid: own, bytes: 0 }]);
    member.charge(1, MIB, LIMIT, Program).unwrap();
    let child = Child::run(|| {
        let member = account.join().unwrap();
        member.charge(1, 3 * MIB, LIMIT, Program).unwrap();
        flags[0].store(1, Ordering::SeqCst);
        wait_for(&flags[1]);
    });
    wait_for(&flags[0]);
    let others = |card| -> Vec<u64> {
        let others = account.living(card).filter(|living| living.pid != own);
        others.map(|living| living.bytes).collect()
    };
    assert_eq!(others(1), [3 * MIB]);
    assert_eq!((others(0), others(CARDS)), (vec![0], vec![0]));
    child.kill_and_wait();
    // Its bytes still count for a while, but it is not alive.
    assert_eq!(account.living(1).collect::<Vec<_>>(), [Living { pid: own, bytes: MIB }]);
    assert_eq!(account.used(1), 4 * MIB);
}

/// A pid of another namespace may name another process here.
#[test]
fn members_of_another_pid_namespace_are_not_listed() {
    let scratch = Scratch::new("living-namespace");
    let account = Account::attach(&scratch.path()).unwrap();
    let flags = flags();
    let child = Child::run(|| {
        // SAFETY: no memory is passed; it sets the namespace of new children.
        if unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWPID) } != 0 {
            flags[2].store(1, Ordering::SeqCst);
            return;
        }
        let grandchild = Child::run(|| {
            let member = account.join().unwrap();
            member.charge(0, MIB, LIMIT, Program).unwrap();
            // It has a pid here as well, but only if /proc shows this namespace.
            flags[3].store(account.living(0).count() as u32, Ordering::SeqCst);
            flags[0].store(1, Ordering::SeqCst);
            wait_for(&flags[1]);
        });
        assert_eq!(grandchild.wait(), 0);
    });
    let deadline = Instant::now() + Duration::from_secs(20);
    while flags[0].load(Ordering::SeqCst) == 0 && flags[2].load(Ordering::SeqCst) == 0 {
        assert!(Instant::now() < deadline, "the process in the new namespace has not answered");
        std::thread::sleep(Duration::from_millis(1));
    }
    if flags[2].load(Ordering::SeqCst) == 1 {
        assert_eq!(child.wait(), 0);
        // SAFETY: geteuid cannot fail.
        assert_ne!(unsafe { libc::geteuid() }, 0, "root makes no PID namespace here");
        eprintln!("NOT TESTED: this user may make no PID namespace");
        return;
    }
    assert_eq!(flags[3].load(Ordering::SeqCst), 1);
    assert_eq!(alive(&scratch), [true]);
    assert_eq!(account.living(0).count(), 0);
    flags[1].store(1, Ordering::SeqCst);
    assert_eq!(child.wait(), 0);
}

#[test]
fn a_full_account_is_reported_at_once_without_waiting() {
    let scratch = Scratch::new("full-at-once");
    let account = Account::attach(&scratch.path()).unwrap();
    let members: Vec<_> = (0..SLOTS).map(|_| account.try_join().unwrap().unwrap()).collect();
    assert!(account.try_join().unwrap().is_none());
    drop(members);
    std::thread::sleep(Duration::from_millis(15));
    assert!(account.try_join().unwrap().is_some());
}

#[test]
fn a_full_account_is_an_error_until_a_slot_is_free() {
    let scratch = Scratch::new("full");
    let account = Account::attach(&scratch.path()).unwrap();
    let mut members: Vec<_> = (0..SLOTS).map(|_| account.join().unwrap()).collect();
    match account.join() {
        Err(FileError::Full { path, .. }) => assert_eq!(path, scratch.path()),
        other => panic!("{other:?}"),
    }
    members.pop();
    account.join().expect("what held nothing is free at once");
    let last = members.pop().unwrap();
    last.charge(0, MIB, LIMIT, Program).unwrap();
    drop(last);
    account.join().expect("joining waits for the grace of the dead");
}

#[test]
fn another_account_under_its_path_hides_no_death_and_cannot_be_joined() {
    let scratch = Scratch::new("replaced");
    let account = Account::attach_with(&scratch.path(), |_| Departed::Yes).unwrap();
    let member = account.join().unwrap();
    let child = Child::run(|| {
        let member = account.join().unwrap();
        member.charge(0, LIMIT, LIMIT, Program).unwrap();
    });
    assert_eq!(child.wait(), 0);
    std::fs::rename(scratch.path(), scratch.folder().join("elsewhere")).unwrap();
    Account::create(&scratch.path()).unwrap();
    assert!(account.join().is_err());
    assert_eq!(member.charge(0, LIMIT, LIMIT, Program), Ok(()));
}

#[test]
fn one_of_several_creators_wins_and_no_draft_is_left() {
    let scratch = Scratch::new("makers");
    let path = scratch.folder().join("contested");
    let made = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| match Account::create(&path) {
                Ok(()) => _ = made.fetch_add(1, Ordering::Relaxed),
                Err(FileError::Io { source, .. }) => {
                    assert_eq!(source.kind(), std::io::ErrorKind::AlreadyExists);
                    Account::attach(&path).expect("whole from its first instant");
                }
                Err(other) => panic!("{other}"),
            });
        }
    });
    assert_eq!(made.load(Ordering::Relaxed), 1);
    assert_eq!(std::fs::read_dir(scratch.folder()).unwrap().count(), 2);
}
