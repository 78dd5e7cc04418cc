//! Tests of the page with damaged files, killed coordinators and racing readers.

use super::layout::SIZE;
use super::*;
use crate::file::FileError;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The path of a file for one test, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("grants-{name}-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn lease(number: u32, holder: Holder, until: u64) -> Grant {
    Grant { number, kind: Kind::Lease, holder, until, ..Grant::default() }
}

#[test]
fn written_grants_are_read() {
    let file = Scratch::new("round-trip");
    let page = GrantsPage::create(&file.0).unwrap();
    let view = GrantsView::open(&file.0).unwrap();
    assert_eq!((view.grant(0).kind, view.pulse()), (Kind::Own, 0));
    assert_eq!(view.regulated().load(Ordering::Relaxed), 0);

    for kind in [Kind::Own, Kind::Alone, Kind::Lease] {
        for holder in [Holder::None, Holder::Slot(0), Holder::Slot(255), Holder::All] {
            let (number, until, depth) = (u32::MAX, u64::MAX - 1, u64::MAX - 2);
            let grant = Grant { number, kind, holder, until, depth, others: 3, unblock: 4 << 32 };
            page.set(15, grant);
            assert_eq!((view.grant(15), page.grant(15)), (grant, grant));
            assert_eq!(view.number_word(15).load(Ordering::Relaxed), u32::MAX);
            assert_eq!(view.grant(14), GrantsView::open(&file.0).unwrap().grant(14));
        }
    }
    page.set_pulse(7);
    page.set_regulated(true);
    assert_eq!((view.pulse(), view.regulated().load(Ordering::Relaxed)), (7, 1));
    page.set_regulated(false);
    assert_eq!(view.regulated().load(Ordering::Relaxed), 0);
    // Rows that no page has.
    assert_eq!((view.grant(16), view.grant(usize::MAX)), (Grant::default(), Grant::default()));

    drop(page);
    assert_eq!(GrantsPage::open(&file.0).unwrap().grant(15).number, u32::MAX);
    match GrantsPage::create(&file.0) {
        Err(FileError::Io { source, .. }) => {
            assert_eq!(source.kind(), io::ErrorKind::AlreadyExists);
        }
        other => panic!("{other:?}"),
    }
}

/// Programs of other versions read and write these bytes, so the test spells them out.
#[test]
fn the_bytes_are_as_documented() {
    let file = Scratch::new("bytes");
    let page = GrantsPage::create(&file.0).unwrap();
    let mut expected = [0_u8; SIZE];
    expected[..16].copy_from_slice(b"HAMIGRA1\x01\0\0\0\0\x10\0\0");
    assert_eq!(fs::read(&file.0).unwrap(), expected);

    page.set_pulse(0x0102_0304_0506_0708);
    page.set_regulated(true);
    page.set(1, lease(0x0a0b_0c0d, Holder::Slot(0x1e1f), 0x1112_1314_1516_1718));
    let (depth, unblock) = (0x2122_2324_2526_2728, 0x3132_3334_3536_3738);
    let alone = Grant { number: 3, kind: Kind::Alone, holder: Holder::All, ..Grant::default() };
    page.set(2, Grant { depth, others: 9, unblock, ..alone });
    expected[32..41].copy_from_slice(&[8, 7, 6, 5, 4, 3, 2, 1, 1]);
    let row = [0x0d, 0x0c, 0x0b, 0x0a, 2, 0, 0x1f, 0x1e];
    expected[128..136].copy_from_slice(&row);
    expected[136..144].copy_from_slice(&[0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11]);
    expected[192..200].copy_from_slice(&[3, 0, 0, 0, 1, 0, 0xff, 0xff]);
    expected[208..216].copy_from_slice(&[0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21]);
    expected[216] = 9;
    expected[224..232].copy_from_slice(&[0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31]);
    assert_eq!(fs::read(&file.0).unwrap(), expected);
    page.set(2, lease(4, Holder::None, 0));
    expected[192..200].copy_from_slice(&[4, 0, 0, 0, 2, 0, 0xfe, 0xff]);
    expected[208..232].fill(0);
    page.set_swept_at(0x0202_0202_0202_0203);
    page.set_departed(0, 1);
    page.set_departed(255, u64::MAX);
    page.set_departed(256, 9);
    expected[48..56].copy_from_slice(&[3, 2, 2, 2, 2, 2, 2, 2]);
    expected[1088] = 1;
    expected[3128..3136].copy_from_slice(&[0xff; 8]);
    assert_eq!(fs::read(&file.0).unwrap(), expected);
}

#[test]
fn departures_are_read_as_written() {
    let file = Scratch::new("departed");
    let page = GrantsPage::create(&file.0).unwrap();
    let view = GrantsView::open(&file.0).unwrap();
    assert_eq!((view.swept_at(), view.departed(0)), (0, 0));
    page.set_departed(7, 42);
    page.set_swept_at(43);
    assert_eq!((view.swept_at(), view.departed(7), view.departed(8)), (43, 42, 0));
    assert_eq!((view.departed(SLOTS), view.departed(usize::MAX)), (0, 0));
}

#[test]
fn any_file_is_an_error_or_a_view_and_never_a_crash() {
    let file = Scratch::new("damage");
    drop(GrantsPage::create(&file.0).unwrap());
    let good = fs::read(&file.0).unwrap();
    for bit in 0..128 {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        fs::write(&file.0, bytes).unwrap();
        assert!(matches!(GrantsView::open(&file.0), Err(FileError::Damaged { .. })), "{bit}");
        assert!(matches!(GrantsPage::open(&file.0), Err(FileError::Damaged { .. })), "{bit}");
    }
    for size in [0, 15, SIZE - 1, SIZE + 1] {
        let mut bytes = good.clone();
        bytes.resize(size, 0);
        fs::write(&file.0, bytes).unwrap();
        assert!(matches!(GrantsView::open(&file.0), Err(FileError::Damaged { .. })), "{size}");
    }
    // Words that no coordinator writes are as if there were none.
    fs::write(&file.0, &good).unwrap();
    let view = GrantsView::open(&file.0).unwrap();
    let writer = fs::OpenOptions::new().write(true).open(&file.0).unwrap();
    writer.write_all_at(&[0xff; SIZE - 64], 64).unwrap();
    assert_eq!(view.grant(3).kind, Kind::Own);
    writer.write_all_at(&[2, 1], 64 + 4).unwrap();
    assert_eq!(view.grant(0).kind, Kind::Own);
}

#[test]
fn what_is_no_regular_file_is_refused_at_once() {
    let (link, file) = (Scratch::new("link"), Scratch::new("link-target"));
    drop(GrantsPage::create(&file.0).unwrap());
    std::os::unix::fs::symlink(&file.0, &link.0).unwrap();
    assert!(matches!(GrantsView::open(&link.0), Err(FileError::Io { .. })));
    assert!(matches!(GrantsPage::open(&link.0), Err(FileError::Io { .. })));

    let pipe = Scratch::new("pipe");
    let name = std::ffi::CString::new(pipe.0.to_str().unwrap()).unwrap();
    // SAFETY: the name is a C string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    assert!(matches!(GrantsView::open(&pipe.0), Err(FileError::Damaged { .. })));
}

#[test]
fn a_grant_wakes_a_waiter_with_a_read_only_mapping() {
    let file = Scratch::new("wake");
    let page = GrantsPage::create(&file.0).unwrap();
    let waiting = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let view = GrantsView::open(&file.0).unwrap();
            for seen in 0..1_000 {
                waiting.store(seen, Ordering::SeqCst);
                let began = Instant::now();
                while view.grant(2).number == seen {
                    // It ends in time only by a wake-up, or because the lease has already changed.
                    view.wait(2, seen, Duration::from_secs(60));
                    assert!(began.elapsed() < Duration::from_secs(50), "no wake-up arrived");
                }
                assert_eq!(view.grant(2), lease(seen + 1, Holder::All, u64::from(seen)));
            }
        });
        for next in 1..=1_000 {
            while waiting.load(Ordering::SeqCst) != next - 1 {
                std::thread::yield_now();
            }
            page.set(2, lease(next, Holder::All, u64::from(next - 1)));
        }
    });
}

/// `until` belongs to one lease: no process may continue its old lease until the end of the next one.
#[test]
fn a_lease_is_never_read_with_the_end_of_another() {
    let file = Scratch::new("race");
    let page = GrantsPage::create(&file.0).unwrap();
    let stop = AtomicBool::new(false);
    let mut seen = Vec::new();
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let view = GrantsView::open(&file.0).unwrap();
                    let (mut newest, mut held) = (0, 0_u64);
                    while !stop.load(Ordering::Relaxed) {
                        let grant = view.grant(0);
                        assert!(grant.number >= newest, "an older lease came back");
                        newest = grant.number;
                        if grant.holder != Holder::None && grant.number != 0 {
                            assert_eq!(grant.until, u64::from(grant.number) * 1_000);
                            assert_eq!(grant.holder, Holder::Slot(grant.number as u16 % 7));
                            held += 1;
                        }
                    }
                    held
                })
            })
            .collect();
        for next in 1..=200_000_u32 {
            page.set(0, lease(next, Holder::Slot(next as u16 % 7), u64::from(next) * 1_000));
        }
        stop.store(true, Ordering::Relaxed);
        seen.extend(readers.into_iter().map(|reader| reader.join().unwrap()));
    });
    assert!(seen.iter().all(|held| *held > 0), "no reader ever saw a lease: {seen:?}");
}

/// The coordinator is killed between the stores of a grant.
#[test]
fn an_unfinished_grant_has_no_holder() {
    let file = Scratch::new("unfinished");
    let page = GrantsPage::create(&file.0).unwrap();
    let view = GrantsView::open(&file.0).unwrap();
    page.set(0, lease(5, Holder::Slot(1), 100));
    page.row(0).unwrap().close(5);
    let grant = view.grant(0);
    assert_eq!((grant.number, grant.kind, grant.holder), (5, Kind::Lease, Holder::None));
    // The next coordinator continues from there.
    let next = GrantsPage::open(&file.0).unwrap();
    next.set(0, lease(next.grant(0).number + 1, Holder::Slot(2), 200));
    assert_eq!(view.grant(0), lease(6, Holder::Slot(2), 200));
}

#[test]
fn a_longer_lease_takes_nothing_from_its_holder() {
    let file = Scratch::new("longer");
    let page = GrantsPage::create(&file.0).unwrap();
    page.set(0, lease(1, Holder::Slot(3), 0));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let view = GrantsView::open(&file.0).unwrap();
            let mut newest = 0;
            while !stop.load(Ordering::Relaxed) {
                let grant = view.grant(0);
                assert_eq!((grant.number, grant.holder), (1, Holder::Slot(3)));
                assert!(grant.until >= newest);
                newest = grant.until;
            }
        });
        (1..50_000).for_each(|until| page.set(0, lease(1, Holder::Slot(3), until)));
        stop.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
}

#[test]
fn a_killed_coordinator_leaves_grants_that_can_be_read() {
    let file = Scratch::new("killed");
    drop(GrantsPage::create(&file.0).unwrap());
    let view = GrantsView::open(&file.0).unwrap();
    for round in 0..50_u64 {
        // SAFETY: the child only makes system calls and allocates, which glibc allows after fork.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let Ok(page) = GrantsPage::open(&file.0) else { std::process::abort() };
            let first = page.grant(0).number;
            for next in first + 1.. {
                page.set(0, lease(next, Holder::Slot(next as u16 % 7), u64::from(next) * 1_000));
            }
        }
        std::thread::sleep(Duration::from_micros(500 + 37 * round));
        let before = view.grant(0).number;
        // SAFETY: kills and reaps our own child.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        let grant = view.grant(0);
        assert!(grant.number >= before);
        match grant.holder {
            Holder::Slot(slot) if grant.number != 0 => {
                assert_eq!(slot, grant.number as u16 % 7);
                assert_eq!(grant.until, u64::from(grant.number) * 1_000);
            }
            _ => {}
        }
    }
}
