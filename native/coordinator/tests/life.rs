//! Tests of when a coordinator starts, which slices it finds, and when it exits.

mod common;

use common::{Runtime, player, pulse, stage, wait_until};
use hami_limits::grants::{GrantsPage, GrantsView};
use std::os::fd::AsRawFd;
use std::ptr::null_mut;
use std::time::Duration;

const FOR_EVER: Duration = Duration::from_secs(3600);

#[test]
fn without_a_runtime_directory_it_does_not_start() {
    let runtime = Runtime::new("nothing");
    let missing = runtime.path().join("missing");
    let refused = hami_coordinator::coordinate(&missing, Duration::ZERO).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn it_exits_when_there_was_no_slice_for_a_while() {
    let runtime = Runtime::new("linger");
    assert_eq!(runtime.coordinator(Duration::ZERO).wait(), 0);
    std::fs::remove_dir(runtime.path().join("slices")).unwrap();
    assert_eq!(runtime.coordinator(Duration::from_millis(150)).wait(), 0);

    std::fs::create_dir(runtime.path().join("slices")).unwrap();
    let slice = runtime.slice("slice", Some(50));
    let coordinator = runtime.coordinator(Duration::ZERO);
    wait_until(|| pulse(&slice) != 0, || "it does not find the slice".into());
    assert!(coordinator.is_alive());
    std::fs::remove_dir_all(&slice).unwrap();
    assert_eq!(coordinator.wait(), 0);
}

#[test]
fn a_directory_that_is_no_slice_is_ignored_and_delays_no_slice() {
    let runtime = Runtime::new("no-slices");
    let stage = stage();
    // A file, an empty directory, one with other content, one without grants, and damaged ones.
    std::fs::write(runtime.at("a-file"), "slice").unwrap();
    std::fs::create_dir(runtime.at("empty")).unwrap();
    std::os::unix::fs::symlink("/proc/self", runtime.at("link")).unwrap();
    let old = runtime.slice("old", Some(10));
    std::fs::remove_file(old.join("grants")).unwrap();
    for file in ["limits", "account", "grants"] {
        let damaged = runtime.slice(&format!("no-{file}"), Some(10));
        std::fs::write(damaged.join(file), "damaged").unwrap();
    }
    let (first, second) = (runtime.slice("first", Some(50)), runtime.slice("second", Some(50)));
    let _coordinator = runtime.coordinator(FOR_EVER);
    let _players = [player(&first, 0, stage), player(&second, 1, stage)];
    stage.wait_for_leases(&[0, 1], 5);
    assert_eq!(pulse(&runtime.at("no-limits")), 0);
    assert_eq!(std::fs::read(runtime.at("no-account").join("account")).unwrap(), b"damaged");
}

/// The directory of a slice is created first, and then one file after the other.
#[test]
fn a_slice_that_is_being_created_is_found_when_it_is_complete() {
    let runtime = Runtime::new("being-made");
    let stage = stage();
    let first = runtime.slice("first", Some(50));
    let _coordinator = runtime.coordinator(FOR_EVER);
    let _first = player(&first, 0, stage);
    let finished = runtime.slice("second", Some(50));
    std::fs::rename(&finished, runtime.path().join("parts")).unwrap();
    let second = runtime.at("third");
    std::fs::create_dir(&second).unwrap();
    for file in ["grants", "account", "limits"] {
        std::thread::sleep(Duration::from_millis(25));
        std::fs::rename(runtime.path().join("parts").join(file), second.join(file)).unwrap();
    }
    let _second = player(&second, 1, stage);
    stage.wait_for_leases(&[0, 1], 5);
    stage.assert_none_met();
}

/// The handler is for the files of slices only: other faults kill the process as usual.
#[test]
fn a_fault_in_memory_of_others_ends_the_process() {
    let runtime = Runtime::new("fault");
    let slice = runtime.slice("slice", Some(50));
    let other = runtime.path().join("other");
    std::fs::write(&other, [1; 4096]).unwrap();
    let child = common::processes::Child::run(|| {
        std::thread::scope(|scope| {
            scope.spawn(|| hami_coordinator::coordinate(runtime.path(), FOR_EVER).unwrap());
            wait_until(|| pulse(&slice) != 0, || "it does not find the slice".into());
            let file = std::fs::OpenOptions::new().write(true).read(true).open(&other).unwrap();
            let (access, kind) = (libc::PROT_READ, libc::MAP_SHARED);
            // SAFETY: a new mapping; the test is that reading it kills the process.
            unsafe {
                let map = libc::mmap(null_mut(), 4096, access, kind, file.as_raw_fd(), 0);
                assert_ne!(map, libc::MAP_FAILED);
                file.set_len(0).unwrap();
                map.cast::<u8>().read_volatile();
            }
        });
    });
    assert_eq!(child.wait(), -libc::SIGBUS);
}

#[test]
fn a_kernel_that_cannot_wait_for_many_words_is_polled() {
    let runtime = Runtime::new("old-kernel");
    let stage = stage();
    let (first, second) = (runtime.slice("first", Some(50)), runtime.slice("second", Some(50)));
    let _coordinator = common::processes::Child::run(|| {
        forbid(libc::SYS_futex_waitv as u32);
        hami_coordinator::coordinate(runtime.path(), FOR_EVER).unwrap();
    });
    let _players = [player(&first, 0, stage), player(&second, 1, stage)];
    stage.wait_for_leases(&[0, 1], 5);
    stage.assert_none_met();
}

/// From now on a system call fails with `ENOSYS` in this process.
fn forbid(call: u32) {
    let step =
        |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let answer = libc::BPF_RET | libc::BPF_K;
    let mut filter = [
        step(load, 0, 0, 0),
        step(equal, 0, 1, call),
        step(answer, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
        step(answer, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program is valid for the call.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
        assert_eq!(libc::syscall(call.into(), 0, 0, 0, 0, 0), -1);
    }
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENOSYS));
}

/// Two coordinators never work at once, but the second may find unfinished work of the first.
#[test]
fn the_state_left_by_an_earlier_one_is_corrected() {
    let runtime = Runtime::new("left");
    let slice = runtime.slice("slice", None);
    let page = GrantsPage::open(&slice.join("grants")).unwrap();
    page.set_regulated(true);
    let _coordinator = runtime.coordinator(FOR_EVER);
    let view = GrantsView::open(&slice.join("grants")).unwrap();
    let regulated = || view.regulated().load(std::sync::atomic::Ordering::SeqCst);
    wait_until(|| regulated() == 0, || "it stays regulated".into());
}
