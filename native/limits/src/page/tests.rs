//! Tests of the page with damaged files, killed writers and racing readers.

use super::layout::{Contents, PAGE, copy_at, decode, encode_copy, encode_page};
use super::*;
use crate::file::FileError;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// The path of a file for one test, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("limits-{name}-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn row(uuid: &str, memory_limit: Option<u64>, share: Option<u32>) -> Row {
    Row { memory_limit, share, ..Row::new(uuid) }
}

const GANG: Option<Gang> = Some([9; 16]);

/// A row that has a value for everything.
fn full() -> Row {
    Row {
        context_memory: Some(5 << 30),
        injected_memory: Some(NO_LIMIT - 1),
        injected_share: Some(100),
        ..row("GPU-a", Some(3), Some(30))
    }
}

fn hard(share: u32) -> Regime {
    Regime { share, ..Regime::default() }
}

fn two_rows() -> Vec<Row> {
    vec![row("GPU-a", Some(4096 * MIB), Some(30)), row("MIG-b", None, None)]
}

#[test]
fn written_values_are_read() {
    let file = Scratch::new("round-trip");
    let mut page = LimitsPage::create(&file.0, None, &two_rows()).unwrap();
    assert_eq!(page.rows().unwrap(), two_rows());
    let view = LimitsView::open(&file.0).unwrap();
    assert_eq!(view.rows(), two_rows());
    assert_eq!(view.row_of("MIG-b"), Some(1));
    assert_eq!(view.row_of("GPU-c"), None);
    assert_eq!((view.memory_limit(0), view.regime(0)), (4096 * MIB, hard(30)));
    assert_eq!((view.memory_limit(1), view.regime(1)), (NO_LIMIT, hard(0)));
    // A row that no page has: nothing is allowed there.
    assert_eq!((view.memory_limit(2), view.memory_limit(usize::MAX)), (0, 0));
    assert_eq!((view.regime(2), view.regime(usize::MAX)), (hard(0), hard(0)));

    page.set_memory_limits(&[("GPU-a", Some(MIB))]).unwrap();
    page.set_regimes(&[("MIG-b", hard(100))]).unwrap();
    assert_eq!((view.memory_limit(0), view.regime(1)), (MIB, hard(100)));
    page.set_memory_limits(&[("GPU-a", Some(2)), ("MIG-b", Some(3))]).unwrap();
    assert_eq!((view.memory_limit(0), view.memory_limit(1)), (2, 3));
    let half_known = [("GPU-a", Some(5)), ("GPU-x", Some(6))];
    assert!(matches!(page.set_memory_limits(&half_known), Err(FileError::Invalid(_))));
    assert_eq!(view.memory_limit(0), 2);
    page.set_memory_limits(&[("MIG-b", None)]).unwrap();
    page.set_memory_limits(&[("GPU-a", None)]).unwrap();
    assert_eq!(view.memory_limit(0), NO_LIMIT);
    page.append(row("GPU-c", Some(7), None)).unwrap();
    assert_eq!(LimitsPage::open(&file.0).unwrap().rows().unwrap()[2], row("GPU-c", Some(7), None));
}

#[test]
fn every_share_mode_and_priority_is_read_as_written() {
    let file = Scratch::new("regimes");
    let mut page = LimitsPage::create(&file.0, None, &two_rows()).unwrap();
    let view = LimitsView::open(&file.0).unwrap();
    for share in [0, 1, 99, 100] {
        for mode in [Mode::Hard, Mode::Soft] {
            for priority in [Priority::Low, Priority::Normal, Priority::High] {
                let regime = Regime { share, mode, priority };
                page.set_regimes(&[("GPU-a", hard(7)), ("MIG-b", regime)]).unwrap();
                assert_eq!((view.regime(0), view.regime(1)), (hard(7), regime));
                let row = &page.rows().unwrap()[1];
                assert_eq!(row.share, (share != 0).then_some(share));
                assert_eq!((row.mode, row.priority), (mode, priority));
            }
        }
    }
}

#[test]
fn it_is_regulated_while_a_share_leaves_others_something() {
    let file = Scratch::new("regulated");
    let unlimited = [row("GPU-a", None, None), row("GPU-b", None, Some(100))];
    let mut page = LimitsPage::create(&file.0, None, &unlimited).unwrap();
    let view = LimitsView::open(&file.0).unwrap();
    let regulated = || view.regulated().load(Ordering::Relaxed);
    assert_eq!(regulated(), 0);
    page.set_regimes(&[("GPU-b", hard(99))]).unwrap();
    assert_eq!(regulated(), 1);
    page.set_regimes(&[("GPU-a", hard(1)), ("GPU-b", hard(100))]).unwrap();
    assert_eq!(regulated(), 1);
    page.set_regimes(&[("GPU-a", hard(0))]).unwrap();
    assert_eq!(regulated(), 0);
    page.append(row("GPU-c", None, Some(50))).unwrap();
    assert_eq!(regulated(), 1);
    drop(page);
    std::fs::remove_file(&file.0).unwrap();
    LimitsPage::create(&file.0, None, &two_rows()).unwrap();
    assert_eq!(LimitsView::open(&file.0).unwrap().regulated().load(Ordering::Relaxed), 1);
}

#[test]
fn an_invalid_value_is_refused_and_changes_nothing() {
    let file = Scratch::new("refused");
    let mut page = LimitsPage::create(&file.0, None, &two_rows()).unwrap();
    let invalid = |result: Result<(), FileError>| match result {
        Err(FileError::Invalid(e)) => (e.field, e.value),
        other => panic!("{other:?}"),
    };
    let named = |field: &str, value: &str| (field.to_owned(), value.to_owned());
    assert_eq!(invalid(page.set_memory_limits(&[("GPU-x", Some(1))])), named("uuid", "GPU-x"));
    assert_eq!(invalid(page.set_memory_limits(&[("GPU-a", Some(0))])), named("memory_limit", "0"));
    assert_eq!(
        invalid(page.set_memory_limits(&[("GPU-a", Some(u64::MAX))])),
        named("memory_limit", "18446744073709551615")
    );
    assert_eq!(invalid(page.set_regimes(&[("GPU-a", hard(101))])), named("share", "101"));
    let half_known = [("GPU-a", hard(5)), ("GPU-x", hard(6))];
    assert_eq!(invalid(page.set_regimes(&half_known)), named("uuid", "GPU-x"));
    for uuid in ["", "GPU-a", "GPU a", "GPU-é", &"x".repeat(64)] {
        assert_eq!(invalid(page.append(row(uuid, None, None))), named("uuid", uuid));
    }
    for i in 2..16 {
        page.append(row(&format!("GPU-{i}"), None, None)).unwrap();
    }
    assert_eq!(invalid(page.append(row("GPU-16", None, None))), named("rows", "17"));
    assert_eq!(page.rows().unwrap().len(), 16);
    assert_eq!(page.rows().unwrap()[..2], two_rows());

    match LimitsPage::create(&file.0, None, &two_rows()) {
        Err(FileError::Io { source, .. }) => {
            assert_eq!(source.kind(), io::ErrorKind::AlreadyExists);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_flipped_bit_anywhere_is_found_or_without_effect() {
    let mut page = encode_page([7; 16], GANG, &[full(), two_rows()[1].clone()]);
    let copy = encode_copy(&page, 2, GANG, &[row("GPU-old", Some(1), None)]);
    page[copy_at(1)..].copy_from_slice(&copy);
    let whole = decode(&page).unwrap();
    for bit in 0..page.len() * 8 {
        let mut damaged = page.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        match decode(&damaged) {
            Err(_) => {}
            // The other copy is complete too: it was in force one update earlier.
            Ok(contents) if bit == super::layout::ACTIVE * 8 => assert_eq!(contents.active, 1),
            // A hint, which the next change corrects.
            Ok(contents) if bit == super::layout::REGULATED * 8 => assert_eq!(contents, whole),
            Ok(contents) => assert_eq!(contents, whole, "bit {bit}"),
        }
    }
}

#[test]
fn a_uuid_without_an_end_is_an_error() {
    let page = encode_page([7; 16], None, &[row(&"G".repeat(64), None, None)]);
    assert_eq!(decode(&page), Err("one of its rows is invalid"));
}

#[test]
fn every_value_is_read_as_written() {
    let file = Scratch::new("full");
    let rows = [full(), row("GPU-b", None, None)];
    let page = LimitsPage::create(&file.0, GANG, &rows).unwrap();
    assert_eq!((page.gang().unwrap(), page.rows().unwrap()), (GANG, rows.to_vec()));
    let view = LimitsView::open(&file.0).unwrap();
    assert_eq!((view.gang(), view.rows()), (GANG, &rows[..]));
}

#[test]
fn injected_values_and_context_memory_are_checked() {
    let file = Scratch::new("injected");
    let mut page = LimitsPage::create(&file.0, None, &two_rows()).unwrap();
    let mut refused = |row: Row| match page.append(row) {
        Err(FileError::Invalid(e)) => (e.field, e.value),
        other => panic!("{other:?}"),
    };
    let named = |field: &str, value: &str| (field.to_owned(), value.to_owned());
    let row = || Row::new("GPU-c");
    let memory = |bytes| Row { injected_memory: Some(bytes), ..row() };
    assert_eq!(refused(memory(0)), named("injected_memory", "0"));
    assert_eq!(refused(memory(NO_LIMIT)), named("injected_memory", &NO_LIMIT.to_string()));
    for share in [0, 101] {
        let of = Row { injected_share: Some(share), ..row() };
        assert_eq!(refused(of), named("injected_share", &share.to_string()));
    }
    assert_eq!(refused(Row { context_memory: Some(0), ..row() }), named("context_memory", "0"));
    assert_eq!(page.rows().unwrap(), two_rows());
}

#[test]
fn any_file_is_an_error_or_a_view_and_never_a_crash() {
    let file = Scratch::new("damage");
    let good = encode_page([7; 16], None, &two_rows());
    // xorshift: the same damage in every run.
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed as usize
    };
    let mut views = 0;
    for round in 0..40 {
        let mut bytes = good.clone();
        match round % 4 {
            0 => bytes.truncate(random() % PAGE),
            1 => bytes.extend([0; 5]),
            2 => bytes.iter_mut().for_each(|b| *b = random() as u8),
            _ => (0..=random() % 3).for_each(|_| bytes[random() % PAGE] = random() as u8),
        }
        fs::write(&file.0, &bytes).unwrap();
        match LimitsView::open(&file.0) {
            Ok(view) => {
                views += 1;
                (0..17).for_each(|i| _ = (view.memory_limit(i), view.regime(i)));
            }
            Err(FileError::Damaged { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    assert!(views < 20, "most damage must be found");

    // Damage after the page was opened: whatever is read, the index stays inside the page.
    fs::write(&file.0, good).unwrap();
    let view = LimitsView::open(&file.0).unwrap();
    let writer = fs::OpenOptions::new().write(true).open(&file.0).unwrap();
    writer.write_all_at(&[0xff; PAGE], 0).unwrap();
    assert_eq!((view.memory_limit(15), view.regime(15)), (u64::MAX, Regime::default()));
}

#[test]
fn a_file_that_is_not_regular_is_refused_at_once() {
    let link = Scratch::new("link");
    let file = Scratch::new("link-target");
    LimitsPage::create(&file.0, None, &two_rows()).unwrap();
    std::os::unix::fs::symlink(&file.0, &link.0).unwrap();
    assert!(matches!(LimitsView::open(&link.0), Err(FileError::Io { .. })));

    let pipe = Scratch::new("pipe");
    let name = std::ffi::CString::new(pipe.0.to_str().unwrap()).unwrap();
    // SAFETY: the name is a C string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    assert!(matches!(LimitsView::open(&pipe.0), Err(FileError::Damaged { .. })));

    let nothing = Scratch::new("nothing");
    match LimitsView::open(&nothing.0) {
        Err(FileError::Io { source, .. }) => {
            assert_eq!(source.kind(), io::ErrorKind::NotFound);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_writer_killed_at_any_byte_of_the_copy_leaves_the_page_whole() {
    let file = Scratch::new("cut");
    let page = LimitsPage::create(&file.0, None, &two_rows()).unwrap();
    let (mut contents, bytes) = page.read();
    contents.rows[0].memory_limit = Some(MIB);
    let Contents { generation, gang, rows, .. } = &contents;
    let copy = encode_copy(&bytes, generation + 1, *gang, rows);
    for cut in 0..=copy.len() {
        let mut page = bytes.clone();
        page[copy_at(1)..][..cut].copy_from_slice(&copy[..cut]);
        assert_eq!(decode(&page).unwrap().rows, two_rows(), "cut at {cut}");
    }
}

#[test]
fn a_reader_that_locks_the_page_forbids_no_change() {
    let file = Scratch::new("read-lock");
    let mut page = LimitsPage::create(&file.0, None, &[row("GPU-a", Some(MIB), None)]).unwrap();
    let reader = fs::File::open(&file.0).unwrap();
    // SAFETY: flock is plain data for which zero is a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_RDLCK as libc::c_short;
    // SAFETY: `lock` is valid for the call.
    let locked = unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    assert_eq!(locked, 0);
    page.set_memory_limits(&[("GPU-a", Some(2 * MIB))]).unwrap();
    assert_eq!(page.rows().unwrap()[0].memory_limit, Some(2 * MIB));
}

#[test]
fn a_killed_writer_leaves_a_whole_page_and_no_lock() {
    let file = Scratch::new("killed");
    let mut page = LimitsPage::create(&file.0, None, &[row("GPU-a", Some(MIB), Some(1))]).unwrap();
    let view = LimitsView::open(&file.0).unwrap();
    for round in 0..100_u64 {
        // SAFETY: the child only makes system calls and allocates, which glibc allows after fork.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let Ok(mut page) = LimitsPage::open(&file.0) else { std::process::abort() };
            for i in 0_u64.. {
                // Each row set is a pair; half an update would break it.
                let rows = vec![row("GPU-a", Some((1 + i % 100) * MIB), Some(1 + i as u32 % 100))];
                let _ = page.update_all(&rows);
            }
        }
        std::thread::sleep(Duration::from_micros(500 + 37 * round));
        // SAFETY: kills and reaps our own child.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        let now = page.rows().unwrap();
        let (limit, share) = (now[0].memory_limit.unwrap(), now[0].share.unwrap());
        assert_eq!(limit, u64::from(share) * MIB, "half an update came into force");
        assert_eq!((view.memory_limit(0), view.regime(0)), (limit, hard(share)));
        // It may be 1 without need, but it never misses a share.
        let regulated = view.regulated().load(Ordering::Relaxed);
        assert!(regulated == 1 || share == 100, "{regulated} with a share of {share}");
        page.set_regimes(&[("GPU-a", hard(share))]).expect("the dead writer's lock is released");
        assert_eq!(view.regulated().load(Ordering::Relaxed), u32::from(share < 100));
    }
}

#[test]
fn readers_never_see_what_was_not_in_force() {
    const POISON: u64 = 666 * MIB;
    let file = Scratch::new("race");
    let mut page = LimitsPage::create(&file.0, None, &[row("GPU-a", Some(1), None)]).unwrap();
    let (started, done) = (AtomicU64::new(1), AtomicU64::new(1));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let view = LimitsView::open(&file.0).unwrap();
                let mut newest = 0;
                while !stop.load(Ordering::Relaxed) {
                    let lower = done.load(Ordering::SeqCst);
                    let limit = view.memory_limit(0);
                    let upper = started.load(Ordering::SeqCst);
                    assert_ne!(limit, POISON, "a change that never came into force was seen");
                    assert!((lower..=upper).contains(&limit), "{lower} <= {limit} <= {upper}");
                    assert!(limit >= newest, "an older limit came back");
                    newest = limit;
                }
            });
        }
        for value in 2..20_000 {
            if value % 3 == 0 {
                // A writer that dies before its change comes into force.
                let (mut contents, bytes) = page.read();
                contents.rows[0].memory_limit = Some(POISON);
                page.fill_inactive(&contents, &bytes).unwrap();
            }
            started.store(value, Ordering::SeqCst);
            page.set_memory_limits(&[("GPU-a", Some(value))]).unwrap();
            done.store(value, Ordering::SeqCst);
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn two_writers_lose_no_change() {
    let file = Scratch::new("writers");
    LimitsPage::create(&file.0, None, &two_rows()).unwrap();
    std::thread::scope(|scope| {
        for uuid in ["GPU-a", "MIG-b"] {
            let path = &file.0;
            scope.spawn(move || {
                let mut page = LimitsPage::open(path).unwrap();
                for value in 1..=2_000 {
                    // The other writer never pauses, so the lock may time out. That is an error,
                    // and the page is unchanged.
                    while let Err(refused) = page.set_memory_limits(&[(uuid, Some(value))]) {
                        let FileError::Io { source, .. } = refused else { panic!("{refused}") };
                        assert_eq!(source.kind(), io::ErrorKind::TimedOut);
                    }
                }
            });
        }
    });
    let rows = LimitsPage::open(&file.0).unwrap().rows().unwrap();
    assert_eq!([rows[0].memory_limit, rows[1].memory_limit], [Some(2_000); 2]);
}
