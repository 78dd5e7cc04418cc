//! The exports: their names and addresses; and every function with every argument zero, to which a
//! driver returns an error instead of crashing.

use super::{alone, ok};
use crate::table::*;
use core::ffi::{c_char, c_void};
use driver_sys::cuda::*;
use std::collections::BTreeSet;
use std::mem::zeroed;
use std::ptr::null_mut;
use stub_engine::symbols::CUDA;

#[test]
fn the_table_of_exports_is_the_header() {
    let exported: Vec<_> = crate::table::exports().into_iter().map(|(name, _)| name).collect();
    assert_eq!(exported, CUDA, "same names in the same order: counters depend on it");
    let addresses: BTreeSet<_> = crate::table::exports().into_iter().map(|row| row.1).collect();
    assert_eq!(addresses.len(), CUDA.len(), "a program may compare addresses");
}

macro_rules! calls {
    ($($name:ident ($($parameter:ident : $type:ty),*) -> $result:ty;)*) => {
        // SAFETY: every parameter is a number, a pointer or a structure of those: zero is valid.
        &[$((stringify!($name), || unsafe { $name($(zeroed::<$type>()),*) })),*]
    };
}

/// A function's name, and a call of it with zeros.
type Call = (&'static str, fn() -> CUresult);

const CALLS: &[Call] = driver_sys::each_cuda_fn!(calls);

/// The functions that work before `cuInit`, and their results for zeros.
const EARLY: &[(&str, CUresult)] = &[
    ("cuDriverGetVersion", CUDA_ERROR_INVALID_VALUE),
    ("cuGetErrorName", CUDA_ERROR_INVALID_VALUE),
    ("cuGetErrorString", CUDA_ERROR_INVALID_VALUE),
    ("cuGetExportTable", CUDA_ERROR_INVALID_VALUE),
    ("cuGetProcAddress", CUDA_ERROR_INVALID_VALUE),
    ("cuGetProcAddress_v2", CUDA_ERROR_INVALID_VALUE),
];

#[test]
fn before_cu_init_nothing_is_initialized() {
    alone(&[], || {
        for (name, call) in CALLS.iter().filter(|(name, _)| *name != "cuInit") {
            let early = EARLY.iter().find(|row| row.0 == *name);
            assert_eq!(call(), early.map_or(CUDA_ERROR_NOT_INITIALIZED, |row| row.1), "{name}");
        }
    });
}

#[test]
fn without_a_context_every_zero_is_answered() {
    alone(&[], || {
        ok!(cuInit(0));
        for (name, call) in CALLS {
            let result = call();
            assert_ne!(result, CUDA_ERROR_NOT_INITIALIZED, "{name}");
            assert_ne!(result, CUDA_ERROR_UNKNOWN, "{name} panicked");
            let needs_context = name.starts_with("cuMemcpy") || name.starts_with("cuMemset");
            let has_body = result != CUDA_ERROR_NOT_SUPPORTED;
            if needs_context && has_body {
                assert_eq!(result, CUDA_ERROR_INVALID_CONTEXT, "{name}");
            }
        }
    });
}

#[test]
fn in_a_context_every_zero_is_answered() {
    alone(&[], || {
        ok!(cuInit(0));
        let mut context = null_mut();
        ok!(cuCtxCreate_v2(&raw mut context, 0, 0));
        for (name, call) in CALLS {
            // Some of the calls pop or replace the context.
            ok!(cuCtxSetCurrent(context));
            let result = call();
            assert_ne!(result, CUDA_ERROR_UNKNOWN, "{name} panicked");
            let allocates = name.starts_with("cuMemAlloc") || name.starts_with("cuMemHostAlloc");
            assert!(!allocates || result != CUDA_SUCCESS, "{name} of 0 bytes to NULL");
            if name.starts_with("cuStreamBeginCapture") && result == CUDA_SUCCESS {
                // Zeros are valid for it; what comes after would be captured.
                ok!(cuStreamEndCapture_ptsz(null_mut(), &mut null_mut()));
            }
        }
        ok!(cuCtxSetCurrent(context));
        ok!(cuCtxSynchronize());
    });
}

#[test]
fn an_old_driver_lacks_later_functions() {
    alone(&[("STUB_GPU_PROFILE", "a100@11080")], || {
        let (mut version, mut address) = (0, null_mut());
        ok!(cuDriverGetVersion(&raw mut version));
        assert_eq!(version, 11080);
        let out = &raw mut address;
        ok!(cuGetProcAddress(c"cuMemAlloc".as_ptr(), out, 13000, 0));
        let newer = c"cuLibraryLoadData".as_ptr();
        super::fails!(CUDA_ERROR_NOT_FOUND, cuGetProcAddress(newer, out, 13000, 0));
        assert!(address.is_null());
    });
}

/// The folder of this process's device nodes: new, with these in it.
fn device_nodes(names: &[&str]) {
    let folder = std::env::var("STUB_GPU_DEVICES").expect("folder");
    std::fs::create_dir(&folder).expect("folder");
    for name in names {
        std::fs::write(format!("{folder}/{name}"), "").expect("node");
    }
}

/// The path of a test's folder of device nodes, and the environment with it.
fn with_device_nodes(name: &str) -> [(&'static str, String); 3] {
    let folder = std::env::temp_dir().join(format!("stub-{name}-{}", std::process::id()));
    [
        ("STUB_GPU_PROFILE", "t4,a100,h100,l40s".into()),
        ("STUB_GPU_DEVICES", folder.to_string_lossy().into_owned()),
        ("CUDA_VISIBLE_DEVICES", "1,0".into()),
    ]
}

#[test]
fn cuda_visible_devices_chooses_among_the_device_nodes() {
    let variables = with_device_nodes("chosen");
    let [profile, devices, visible] = variables.each_ref().map(|(name, value)| (*name, &**value));
    alone(&[profile, devices, visible], || {
        device_nodes(&["nvidia1", "nvidia3"]);
        ok!(cuInit(0));
        std::fs::remove_dir_all(std::env::var("STUB_GPU_DEVICES").expect("folder")).expect("gone");
        let mut count = 9;
        ok!(cuDeviceGetCount(&raw mut count));
        assert_eq!(count, 2);
        let buses = [0, 1].map(|device| {
            let mut bus = 0;
            ok!(cuDeviceGetAttribute(&raw mut bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, device));
            bus
        });
        assert_eq!(buses, [7 + 3 * 8, 7 + 8], "the last card, then the second");
    });
}

#[test]
fn without_device_nodes_there_is_no_device() {
    let variables = with_device_nodes("none");
    let [profile, devices, _] = variables.each_ref().map(|(name, value)| (*name, &**value));
    alone(&[profile, devices], || {
        super::fails!(CUDA_ERROR_NO_DEVICE, cuInit(0));
    });
}

/// The common errors for wrong arguments.
#[test]
fn common_wrong_arguments_have_the_common_answers() {
    alone(&[], || {
        ok!(cuInit(0));
        let (mut name, mut device): ([c_char; 4], _) = ([1; 4], 0);
        super::invalid!(cuInit(1));
        super::fails!(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&raw mut device, 1));
        super::fails!(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&raw mut device, -1));
        super::invalid!(cuDeviceGet(null_mut(), 0));
        ok!(cuDeviceGetName(name.as_mut_ptr(), 4, 0));
        assert_eq!(name.map(|letter| letter as u8), *b"NVI\0", "a name is cut to fit");
        super::fails!(CUDA_ERROR_INVALID_CONTEXT, cuCtxSynchronize());
        super::fails!(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent_v2(null_mut()));
        super::fails!(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(0));
        let mut table: *const c_void = null_mut();
        let id = CUuuid { bytes: [7; 16] };
        super::fails!(CUDA_ERROR_NOT_FOUND, cuGetExportTable(&raw mut table, &raw const id));
        let mut address = null_mut();
        let mut status = 9;
        let mut ask = |name: &core::ffi::CStr, version, flags| {
            // SAFETY: every out is valid.
            let result = unsafe {
                let (address, status) = (&raw mut address, &raw mut status);
                cuGetProcAddress_v2(name.as_ptr(), address, version, flags, status)
            };
            (result, status, address as usize)
        };
        let here = cuMemAlloc_v2 as *const () as usize;
        assert_eq!(ask(c"cuMemAlloc", 13000, 0), (CUDA_SUCCESS, 0, here));
        assert_eq!(ask(c"", 13000, 0), (CUDA_ERROR_NOT_FOUND, 1, 0));
        assert_eq!(ask(c"cuLibraryLoadData", 11000, 0), (CUDA_ERROR_NOT_FOUND, 2, 0));
        assert_eq!(ask(c"cuMemAlloc", 13000, 3).0, CUDA_ERROR_INVALID_VALUE);
    });
}
