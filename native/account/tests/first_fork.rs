//! A process forks while another thread registers the fork handlers for the first time.
//!
//! This is a program of its own, because its `pthread_atfork` takes the place of libc's.
#![allow(missing_docs, reason = "a test")]

mod common;

use common::{Child, MIB, Scratch, wait_for};
use hami_account::Account;
use hami_account::Requester::Program;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

type Handler = Option<unsafe extern "C" fn()>;

unsafe extern "C" {
    // What `pthread_atfork` of glibc calls.
    fn __register_atfork(
        before: Handler,
        parent: Handler,
        child: Handler,
        object: *mut c_void,
    ) -> c_int;
}

static HAS_BEGUN: AtomicU32 = AtomicU32::new(0);
static MAY_END: AtomicU32 = AtomicU32::new(0);

/// As if the scheduler stopped the thread here for a while.
///
/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_atfork(before: Handler, parent: Handler, child: Handler) -> c_int {
    HAS_BEGUN.store(1, Ordering::SeqCst);
    wait_for(&MAY_END);
    // SAFETY: the caller's own functions.
    unsafe { __register_atfork(before, parent, child, null_mut()) }
}

#[test]
fn a_child_that_was_forked_meanwhile_recognises_its_own_children() {
    let scratch = Scratch::empty("first-fork");
    // By a child, because this process is to take the fork lock for the first time below.
    let made = Child::run(|| {
        MAY_END.store(1, Ordering::SeqCst);
        Account::create(&scratch.path()).unwrap();
    });
    assert_eq!(made.wait(), 0);
    let path = scratch.path();
    let first = std::thread::spawn(move || drop(Account::attach(&path).unwrap()));
    wait_for(&HAS_BEGUN);
    let child = Child::run(|| {
        MAY_END.store(1, Ordering::SeqCst);
        let account = Account::attach(&scratch.path()).unwrap();
        let member = account.join().unwrap();
        member.charge(0, MIB, 2 * MIB, Program).unwrap();
        let grandchild = Child::run(|| {
            member.uncharge(0, MIB);
            assert!(member.compute(0).is_none());
        });
        assert_eq!(grandchild.wait(), 0);
        assert_eq!(member.held(0), MIB);
    });
    let code = child.wait();
    MAY_END.store(1, Ordering::SeqCst);
    first.join().unwrap();
    assert_eq!(code, 0);
}
