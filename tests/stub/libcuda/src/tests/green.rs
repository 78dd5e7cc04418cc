//! Green contexts: divided multiprocessors, streams, and what belongs to the primary context.

use super::{allocate, alone, fails, free_bytes, invalid, kernel, launch_blocks, ok, start};
use crate::table::*;
use driver_sys::cuda::*;
use std::mem::zeroed;
use std::ptr::null_mut;

fn resource() -> CUdevResource {
    // SAFETY: a structure of numbers and pointers.
    unsafe { zeroed() }
}

/// All multiprocessors of device 0.
fn all() -> CUdevResource {
    let mut found = resource();
    ok!(cuDeviceGetDevResource(0, &raw mut found, CU_DEV_RESOURCE_TYPE_SM));
    found
}

fn count(resource: &CUdevResource) -> u32 {
    assert_eq!(resource.r#type, CU_DEV_RESOURCE_TYPE_SM);
    // SAFETY: the type says which field is set.
    unsafe { resource.unnamed2.sm.smCount }
}

/// The result of a split of device 0, the groups and the remainder.
fn split(most: u32, least: u32) -> (CUresult, Vec<CUdevResource>, CUdevResource) {
    let (mut groups, mut made, mut rest) = (vec![resource(); most as usize], most, resource());
    let (input, out) = (all(), groups.as_mut_ptr());
    // SAFETY: the groups are as many as the count says.
    let result = unsafe {
        cuDevSmResourceSplitByCount(out, &raw mut made, &raw const input, &raw mut rest, 0, least)
    };
    groups.truncate(made as usize);
    (result, groups, rest)
}

fn descriptor(resources: &mut [CUdevResource]) -> CUdevResourceDesc {
    let (mut made, length) = (null_mut(), resources.len() as u32);
    ok!(cuDevResourceGenerateDesc(&raw mut made, resources.as_mut_ptr(), length));
    made
}

/// A green context of device 0 with at least so many multiprocessors, and its handle as a context.
fn green(least: u32) -> (CUgreenCtx, CUcontext) {
    let (result, mut groups, _) = split(1, least);
    assert_eq!(result, CUDA_SUCCESS);
    let (mut green, mut context) = (null_mut(), null_mut());
    let descriptor = descriptor(&mut groups);
    ok!(cuGreenCtxCreate(&raw mut green, descriptor, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    ok!(cuCtxFromGreenCtx(&raw mut context, green));
    (green, context)
}

fn stream(green: CUgreenCtx) -> CUstream {
    let mut stream = null_mut();
    ok!(cuGreenCtxStreamCreate(&raw mut stream, green, CU_STREAM_NON_BLOCKING, 0));
    stream
}

#[test]
fn multiprocessors_are_divided_into_equal_groups() {
    alone(&[("STUB_GPU_PROFILE", "h100")], || {
        ok!(cuInit(0));
        assert_eq!(count(&all()), 132);
        for (most, least, size, made, rest) in
            [(2, 1, 8, 2, 116), (99, 16, 16, 8, 4), (99, 17, 24, 5, 12), (1, 0, 8, 1, 124)]
        {
            let (result, groups, remainder) = split(most, least);
            assert_eq!((result, groups.len()), (CUDA_SUCCESS, made), "{least}");
            assert!(groups.iter().all(|group| count(group) == size), "{least}");
            assert_eq!(count(&remainder), rest, "{least}");
        }
        let (mut groups, input) = (0, all());
        ok!(cuDevSmResourceSplitByCount(
            null_mut(),
            &raw mut groups,
            &raw const input,
            null_mut(),
            0,
            16
        ));
        assert_eq!(groups, 8, "without a result it is a question");
        assert_eq!(split(1, 133).0, CUDA_ERROR_INVALID_VALUE);
        assert_eq!(split(1, 132).0, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, "136 are too many");
    });
}

#[test]
fn an_invalid_resource_is_refused() {
    alone(&[("STUB_GPU_PROFILE", "a100,a100")], || {
        ok!(cuInit(0));
        let mut found = all();
        let out = &raw mut found;
        fails!(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetDevResource(2, out, CU_DEV_RESOURCE_TYPE_SM));
        fails!(CUDA_ERROR_INVALID_RESOURCE_TYPE, cuDeviceGetDevResource(0, out, 7));
        let (mut made, (_, groups, _)) = (null_mut(), split(2, 4));
        let mut describe = |resources: &mut [CUdevResource]| {
            let length = resources.len() as u32;
            // SAFETY: the resources are as many as the count says.
            unsafe { cuDevResourceGenerateDesc(&raw mut made, resources.as_mut_ptr(), length) }
        };
        assert_eq!(describe(&mut []), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(describe(&mut [resource()]), CUDA_ERROR_INVALID_RESOURCE_TYPE);
        let wrong = CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        let mut grown = groups[0];
        grown.unnamed2.sm.smCount = 9;
        assert_eq!(describe(&mut [grown]), wrong);
        let (mut green, one) = (null_mut(), descriptor(&mut [groups[0]]));
        invalid!(cuGreenCtxCreate(&raw mut green, one, 1, 1));
        invalid!(cuGreenCtxCreate(&raw mut green, null_mut(), 0, 1));
        invalid!(cuGreenCtxCreate(&raw mut green, one, 0, 4));
        fails!(CUDA_ERROR_INVALID_DEVICE, cuGreenCtxCreate(&raw mut green, one, 9, 1));
    });
}

#[test]
fn it_retains_the_primary_context_which_owns_what_it_allocates() {
    alone(&[], || {
        let other = start();
        let before = free_bytes();
        let (green, context) = green(8);
        assert_eq!(before - free_bytes(), 433_061_888, "the primary context");
        ok!(cuCtxSetCurrent(context));
        let (mut current, mut primary, mut owner) =
            (null_mut(), null_mut(), null_mut::<CUctx_st>());
        ok!(cuCtxGetCurrent(&raw mut current));
        ok!(cuDevicePrimaryCtxRetain(&raw mut primary, 0));
        assert!(current == context && context != primary);
        let pointer = allocate(4096);
        let attribute = CU_POINTER_ATTRIBUTE_CONTEXT;
        ok!(cuPointerGetAttribute((&raw mut owner).cast(), attribute, pointer));
        assert_eq!(owner, primary);
        fails!(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(context));
        fails!(CUDA_ERROR_INVALID_CONTEXT, cuCtxPushCurrent_v2(green.cast()));
        ok!(cuDevicePrimaryCtxRelease_v2(0));
        ok!(cuMemsetD8_v2(pointer, 1, 4096));
        ok!(cuGreenCtxDestroy(green));
        fails!(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemFree_v2(pointer));
        fails!(CUDA_ERROR_INVALID_CONTEXT, cuGreenCtxDestroy(green));
        fails!(CUDA_ERROR_INVALID_CONTEXT, cuCtxFromGreenCtx(&raw mut current, null_mut()));
        fails!(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent(context));
        ok!(cuCtxSetCurrent(other));
        assert_eq!(free_bytes(), before, "with its last user the primary context ends");
    });
}

#[test]
fn streams_know_their_green_context_and_outlive_it() {
    alone(&[], || {
        let other = start();
        let (green, context) = green(8);
        let (made, mut ordinary, mut current) = (stream(green), null_mut(), null_mut());
        ok!(cuStreamCreate(&raw mut ordinary, 0));
        ok!(cuCtxPushCurrent_v2(context));
        ok!(cuStreamCreate(&raw mut current, 0));
        for (stream, expected) in [(made, context), (null_mut(), context), (ordinary, other)] {
            let mut found = null_mut();
            ok!(cuStreamGetCtx(stream, &raw mut found));
            assert_eq!(found, expected);
        }
        ok!(cuCtxPopCurrent_v2(null_mut()));
        invalid!(cuGreenCtxStreamCreate(&mut null_mut(), green, 0, 0));
        ok!(cuGreenCtxDestroy(green));
        for stream in [made, current] {
            fails!(CUDA_ERROR_STREAM_DETACHED, cuStreamSynchronize(stream));
            ok!(cuStreamDestroy_v2(stream));
            fails!(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2(stream));
        }
        ok!(cuStreamSynchronize(ordinary));
    });
}

/// Milliseconds between two events.
fn between(from: CUevent, to: CUevent) -> f32 {
    let mut ms = 0.0;
    ok!(cuEventSynchronize(to));
    ok!(cuEventElapsedTime(&raw mut ms, from, to));
    ms
}

fn event() -> CUevent {
    let mut event = null_mut();
    ok!(cuEventCreate(&raw mut event, 0));
    event
}

#[test]
fn kernels_of_two_green_contexts_run_beside_each_other() {
    let variables = [("STUB_GPU_CLOCK", "virtual"), ("STUB_GPU_KERNELS", "k=1000")];
    alone(&variables, || {
        ok!(cuInit(0));
        let ((first, context), (second, _)) = (green(54), green(54));
        ok!(cuCtxSetCurrent(context));
        let (k, streams) = (kernel(c"k"), [stream(first), stream(second)]);
        let (before, after) = (event(), [event(), event()]);
        ok!(cuEventRecord(before, streams[0]));
        for stream in streams {
            launch_blocks(k, 1000, stream);
        }
        for (event, stream) in after.into_iter().zip(streams) {
            ok!(cuEventRecord(event, stream));
            assert!((between(before, event) - 1.0).abs() < 0.01);
        }
    });
}

#[test]
fn a_reset_of_the_primary_context_ends_what_a_green_context_uses() {
    alone(&[], || {
        ok!(cuInit(0));
        let (green, context) = green(8);
        let made = stream(green);
        ok!(cuCtxSetCurrent(context));
        allocate(4096);
        ok!(cuDevicePrimaryCtxReset_v2(0));
        fails!(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemGetInfo_v2(null_mut(), null_mut()));
        fails!(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(made));
        fails!(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamSynchronize(null_mut()));
        ok!(cuGreenCtxDestroy(green));
        fails!(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(0));
    });
}

#[test]
fn the_default_stream_of_a_green_context_copies_and_waits() {
    let variables = [("STUB_GPU_CLOCK", "virtual"), ("STUB_GPU_KERNELS", "k=1000")];
    alone(&variables, || {
        ok!(cuInit(0));
        let (_, context) = green(8);
        ok!(cuCtxSetCurrent(context));
        let (pointer, k, mut back) = (allocate(4), kernel(c"k"), [0u8; 4]);
        let (before, after) = (event(), event());
        ok!(cuMemcpyHtoD_v2(pointer, [1u8, 2, 3, 4].as_ptr().cast(), 4));
        ok!(cuEventRecord(before, null_mut()));
        launch_blocks(k, 1, null_mut());
        fails!(CUDA_ERROR_NOT_READY, cuStreamQuery(null_mut()));
        ok!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), pointer, 4));
        ok!(cuEventRecord(after, null_mut()));
        assert_eq!(back, [1, 2, 3, 4]);
        assert!((between(before, after) - 1.0).abs() < 0.01);
    });
}
