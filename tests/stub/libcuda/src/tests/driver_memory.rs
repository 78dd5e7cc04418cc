//! What a driver takes beyond the requested bytes: granules, modules, raised limits.

use super::{allocate, alone, fails, free_bytes, launch, ok, start};
use crate::table::*;
use core::ffi::{CStr, c_void};
use driver_sys::cuda::*;
use std::ptr::null_mut;

const MIB: usize = 1 << 20;
const COARSE: [(&str, &str); 1] = [("STUB_GPU_PROFILE", "h200-coarse")];

/// A variable of 3 MiB.
const LARGE: &CStr = c".version 8.0\n.target sm_80\n.global .align 4 .b8 table[3145728];\n";

/// A level of the card's ledger.
fn level(name: &str) -> usize {
    let report = super::report().expect("in this process");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    report["cards"][0][name]["now"].as_u64().expect(name) as usize
}

/// Leaves only so many bytes free.
fn leave(bytes: usize) {
    let whole = (free_bytes() - bytes) / (2 * MIB) * (2 * MIB);
    allocate(whole);
    while free_bytes() > bytes {
        // Less than what the card rounds up.
        allocate((free_bytes() - bytes).min(MIB - 1));
    }
}

fn library(image: &CStr) -> CUlibrary {
    let (mut library, no) = (null_mut(), null_mut());
    let data = image.as_ptr().cast();
    ok!(cuLibraryLoadData(&raw mut library, data, no, null_mut(), 0, null_mut(), null_mut(), 0));
    library
}

#[test]
fn a_module_takes_its_image_and_variables_until_it_is_unloaded() {
    alone(&COARSE, || {
        let first = start();
        let free = free_bytes();
        let (mut module, mut other) = (null_mut(), null_mut());
        ok!(cuModuleLoadData(&raw mut module, LARGE.as_ptr().cast()));
        assert_eq!((free - free_bytes(), level("modules")), (4 * MIB, 4 * MIB));
        let (mut pointer, mut size) = (0, 0);
        let name = c"table".as_ptr();
        ok!(cuModuleGetGlobal_v2(&raw mut pointer, &raw mut size, module, name));
        assert_eq!((size, free - free_bytes()), (3 * MIB, 4 * MIB), "not again");
        ok!(cuModuleUnload(module));
        assert_eq!((free_bytes(), level("modules")), (free, 0));
        // The end of a context unloads its modules, and no others.
        ok!(cuModuleLoadData(&raw mut module, LARGE.as_ptr().cast()));
        ok!(cuCtxCreate_v2(&raw mut other, 0, 0));
        ok!(cuModuleLoadData(&raw mut module, LARGE.as_ptr().cast()));
        assert_eq!(level("modules"), 8 * MIB);
        ok!(cuCtxDestroy_v2(other));
        assert_eq!(level("modules"), 4 * MIB);
        ok!(cuCtxSetCurrent(first));
        leave(4 * MIB - 1);
        let mut refused = null_mut();
        fails!(CUDA_ERROR_OUT_OF_MEMORY, cuModuleLoadData(&raw mut refused, LARGE.as_ptr().cast()));
        assert!(refused.is_null());
        ok!(cuCtxDestroy_v2(first));
        assert_eq!(level("modules"), 0);
    });
}

#[test]
fn a_fat_binary_has_its_length_in_its_header() {
    #[repr(C)]
    struct Header {
        magic: u32,
        version: u16,
        length: u16,
        rest: u64,
    }
    #[repr(C)]
    struct Wrapper {
        magic: u32,
        version: u32,
        data: *const Header,
        file: *const c_void,
    }
    alone(&COARSE, || {
        start();
        let header = Header { magic: 0xba55_ed50, version: 1, length: 16, rest: 2 << 20 };
        let data = &raw const header;
        let wrapper = Wrapper { magic: 0x4662_43b1, version: 1, data, file: null_mut() };
        let mut module = null_mut();
        ok!(cuModuleLoadFatBinary(&raw mut module, data.cast()));
        assert_eq!(level("modules"), 4 * MIB, "more than 2 MiB");
        ok!(cuModuleLoadData(&raw mut module, (&raw const wrapper).cast()));
        assert_eq!(level("modules"), 8 * MIB);
    });
}

#[test]
fn a_library_takes_memory_in_each_context_in_which_it_is_used() {
    alone(&COARSE, || {
        let first = start();
        let library = library(LARGE);
        let (mut kernel, mut function, mut second) = (null_mut(), null_mut(), null_mut());
        ok!(cuLibraryGetKernel(&raw mut kernel, library, c"work".as_ptr()));
        assert_eq!(level("modules"), 0, "not used yet");
        ok!(cuKernelGetFunction(&raw mut function, kernel));
        let (mut pointer, mut module) = (0, null_mut());
        ok!(cuLibraryGetGlobal(&raw mut pointer, null_mut(), library, c"table".as_ptr()));
        ok!(cuLibraryGetModule(&raw mut module, library));
        launch(kernel.cast(), null_mut());
        assert_eq!(level("modules"), 4 * MIB, "once");
        ok!(cuCtxCreate_v2(&raw mut second, 0, 0));
        launch(kernel.cast(), null_mut());
        assert_eq!(level("modules"), 8 * MIB);
        ok!(cuCtxDestroy_v2(second));
        assert_eq!(level("modules"), 4 * MIB);
        ok!(cuLibraryUnload(library));
        assert_eq!(level("modules"), 0);
        // Without room it is not loaded, and the launch fails.
        let library = self::library(LARGE);
        ok!(cuLibraryGetKernel(&raw mut kernel, library, c"work".as_ptr()));
        leave(3 * MIB);
        let (function, no) = (kernel.cast(), null_mut());
        fails!(
            CUDA_ERROR_OUT_OF_MEMORY,
            cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, no, null_mut(), null_mut())
        );
        ok!(cuCtxDestroy_v2(first));
        ok!(cuLibraryUnload(library));
        assert_eq!(level("modules"), 0);
    });
}

/// The variables of a primary context end with it, and a library is loaded again in the next one.
#[test]
fn a_reset_primary_context_has_no_library() {
    alone(&COARSE, || {
        let mut context = null_mut();
        ok!(cuInit(0));
        ok!(cuDevicePrimaryCtxRetain(&raw mut context, 0));
        ok!(cuCtxSetCurrent(context));
        let library = library(LARGE);
        let mut pointer = 0;
        let name = c"table".as_ptr();
        for _ in 0..2 {
            ok!(cuLibraryGetGlobal(&raw mut pointer, null_mut(), library, name));
            ok!(cuMemsetD8_v2(pointer, 1, 3 * MIB));
            assert_eq!(level("modules"), 4 * MIB);
            ok!(cuDevicePrimaryCtxReset_v2(0));
            assert_eq!(level("modules"), 0);
            ok!(cuDevicePrimaryCtxRetain(&raw mut context, 0));
        }
    });
}

#[test]
fn an_exact_card_takes_only_what_is_requested() {
    alone(&[("STUB_GPU_PROFILE", "h200")], || {
        start();
        let free = free_bytes();
        let mut module = null_mut();
        ok!(cuModuleLoadData(&raw mut module, LARGE.as_ptr().cast()));
        ok!(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1 << 20));
        assert_eq!(free_bytes(), free);
        allocate(MIB + 1);
        assert_eq!(free - free_bytes(), MIB + 1);
    });
}
