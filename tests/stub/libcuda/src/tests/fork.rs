//! The driver in a forked child.

use super::{alone, ok, start};
use crate::table::*;
use driver_sys::cuda::*;

/// Runs `body` in a forked child; its result is the child's exit status.
fn in_child(body: impl Fn() -> u8) -> i32 {
    // SAFETY: the child only calls the driver and ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::_exit(i32::from(body()));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert!(libc::WIFEXITED(status), "the child was killed: {status:#x}");
        libc::WEXITSTATUS(status)
    }
}

#[test]
fn a_child_of_an_initialized_parent_has_no_driver() {
    alone(&[], || {
        start();
        let pointer = super::allocate(1 << 20);
        let refused = in_child(|| {
            let results =
                // SAFETY: the arguments are valid.
                unsafe { [cuInit(0), cuDeviceGetCount(&mut 0), cuMemFree_v2(pointer)] };
            u8::from(results == [CUDA_ERROR_NOT_INITIALIZED; 3])
        });
        assert_eq!(refused, 1);
        ok!(cuMemFree_v2(pointer));
    });
}

#[test]
fn a_child_of_a_parent_without_a_driver_makes_its_own() {
    alone(&[], || {
        let mut version = 0;
        ok!(cuDriverGetVersion(&raw mut version));
        let initialized = in_child(|| {
            start();
            super::allocate(1 << 20);
            1
        });
        assert_eq!(initialized, 1);
        start();
    });
}
