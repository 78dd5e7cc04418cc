//! The lifetime of contexts, streams, events and modules, and invalid handles.

use super::{allocate, alone, fails, free_bytes, invalid, kernel, launch, ok, start};
use crate::table::*;
use driver_sys::cuda::*;
use std::ptr::{null_mut, without_provenance_mut};

fn current() -> CUcontext {
    let mut context = null_mut();
    ok!(cuCtxGetCurrent(&raw mut context));
    context
}

#[test]
fn contexts_are_a_stack_per_thread() {
    alone(&[], || {
        let first = start();
        let mut second = null_mut();
        ok!(cuCtxCreate_v2(&raw mut second, 0, 0));
        assert_eq!(current(), second);
        let mut popped = null_mut();
        ok!(cuCtxPopCurrent_v2(&raw mut popped));
        assert_eq!((popped, current()), (second, first));
        ok!(cuCtxPushCurrent_v2(second));
        let other = std::thread::spawn(|| current().is_null()).join().expect("thread");
        assert!(other, "a new thread has no context");
        ok!(cuCtxDestroy_v2(second));
        assert_eq!(current(), first, "destroying the current context pops it");
        fails!(CUDA_ERROR_INVALID_CONTEXT, cuCtxPushCurrent_v2(second));
        fails!(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(second));
        ok!(cuCtxSetCurrent(null_mut()));
        fails!(CUDA_ERROR_INVALID_CONTEXT, cuMemFree_v2(1));
    });
}

#[test]
fn a_context_costs_memory_and_takes_what_it_owns_with_it() {
    alone(&[("STUB_GPU_PROFILE", "t4")], || {
        let first = start();
        let before = free_bytes();
        let mut second = null_mut();
        ok!(cuCtxCreate_v2(&raw mut second, 0, 0));
        assert_eq!(before - free_bytes(), 164 << 20, "what the profile says");
        let pointer = allocate(1 << 30);
        let mut stream = null_mut();
        ok!(cuStreamCreate(&raw mut stream, 0));
        ok!(cuCtxDestroy_v2(second));
        assert_eq!(current(), first);
        assert_eq!(free_bytes(), before);
        invalid!(cuMemFree_v2(pointer));
        fails!(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(stream));
    });
}

#[test]
fn the_primary_context_is_counted() {
    alone(&[], || {
        ok!(cuInit(0));
        let (mut first, mut again, mut active, mut flags) = (null_mut(), null_mut(), 9, 9);
        ok!(cuDevicePrimaryCtxGetState(0, &raw mut flags, &raw mut active));
        assert_eq!(active, 0);
        ok!(cuDevicePrimaryCtxRetain(&raw mut first, 0));
        ok!(cuDevicePrimaryCtxRetain(&raw mut again, 0));
        assert_eq!(first, again);
        ok!(cuCtxSetCurrent(first));
        allocate(512);
        ok!(cuDevicePrimaryCtxRelease_v2(0));
        ok!(cuMemGetInfo_v2(null_mut(), null_mut()));
        ok!(cuDevicePrimaryCtxRelease_v2(0));
        fails!(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemGetInfo_v2(null_mut(), null_mut()));
        fails!(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(0));
        ok!(cuDevicePrimaryCtxRetain(&raw mut again, 0));
        assert_eq!(first, again, "the handle stays");
        ok!(cuMemGetInfo_v2(null_mut(), null_mut()));
        fails!(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(first));
    });
}

#[test]
fn an_invalid_handle_is_refused() {
    alone(&[], || {
        let context = start();
        let function = kernel(c"k");
        launch(function, null_mut());
        for bits in [7usize, 64, 0x7f00_dead_beef, usize::MAX, context as usize] {
            let stream: CUstream = without_provenance_mut(bits);
            fails!(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(stream));
            fails!(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2(stream));
            let event: CUevent = without_provenance_mut(bits);
            fails!(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(event));
            let module: CUmodule = without_provenance_mut(bits);
            fails!(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(module));
            let wrong: CUfunction = without_provenance_mut(bits);
            let none = null_mut();
            let result =
                // SAFETY: that the function is none must be found out.
                unsafe { cuLaunchKernel(wrong, 1, 1, 1, 1, 1, 1, 0, null_mut(), none, none) };
            assert_eq!(result, CUDA_ERROR_INVALID_HANDLE);
        }
        let none = null_mut();
        invalid!(cuLaunchKernel(function, 1, 1, 1, 1025, 1, 1, 0, null_mut(), none, none));
        invalid!(cuLaunchKernel(function, 0, 1, 1, 32, 1, 1, 0, null_mut(), none, none));
    });
}

#[test]
fn images_are_told_from_garbage_and_functions_end_with_their_module() {
    alone(&[], || {
        start();
        let mut module = null_mut();
        fails!(
            CUDA_ERROR_INVALID_IMAGE,
            cuModuleLoadData(&raw mut module, c"not an image".as_ptr().cast())
        );
        fails!(CUDA_ERROR_FILE_NOT_FOUND, cuModuleLoad(&raw mut module, c"/no/such".as_ptr()));
        ok!(cuModuleLoadData(&raw mut module, c"\x7fELF".as_ptr().cast()));
        let (mut function, mut again) = (null_mut(), null_mut());
        ok!(cuModuleGetFunction(&raw mut function, module, c"k".as_ptr()));
        ok!(cuModuleGetFunction(&raw mut again, module, c"k".as_ptr()));
        assert_eq!(function, again);
        ok!(cuModuleUnload(module));
        fails!(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(module));
        let mut registers = 0;
        fails!(
            CUDA_ERROR_INVALID_HANDLE,
            cuFuncGetAttribute(&raw mut registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function)
        );
    });
}

#[test]
fn visible_devices_choose_and_order() {
    let order = [("STUB_GPU_PROFILE", "t4,h200,l40s"), ("CUDA_VISIBLE_DEVICES", "2,0")];
    alone(&order, || {
        start();
        let (mut count, mut total, mut bus) = (0, 0, [0; 16]);
        ok!(cuDeviceGetCount(&raw mut count));
        ok!(cuDeviceTotalMem_v2(&raw mut total, 0));
        ok!(cuDeviceGetPCIBusId(bus.as_mut_ptr(), 16, 0));
        assert_eq!((count, total), (2, (46068 - 603) << 20));
    });
}

#[test]
fn no_visible_device_is_no_device() {
    alone(&[("CUDA_VISIBLE_DEVICES", "")], || {
        fails!(CUDA_ERROR_NO_DEVICE, cuInit(0));
        fails!(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&mut 0));
    });
}
