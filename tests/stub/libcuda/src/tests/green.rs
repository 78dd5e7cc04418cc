//! Green contexts: divided multiprocessors, streams, and what belongs to the primary context.

use super::{allocate, alone, fails, free_bytes, kernel, launch_blocks, ok, start};
use crate::table::*;
use driver_sys::cuda::*;
use std::mem::zeroed;
use std::ptr::{null_mut, without_provenance_mut};

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
fn split(most: u32, flags: u32, least: u32) -> (CUresult, Vec<CUdevResource>, CUdevResource) {
    let (mut groups, mut made, mut rest) = (vec![resource(); most as usize], most, resource());
    let (input, out) = (all(), groups.as_mut_ptr());
    // SAFETY: the groups are as many as the count says.
    let result = unsafe {
        cuDevSmResourceSplitByCount(
            out,
            &raw mut made,
            &raw const input,
            &raw mut rest,
            flags,
            least,
        )
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
    let (result, mut groups, _) = split(1, 0, least);
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
        for (most, flags, least, size, made, rest) in [
            (2, 0, 1, 8, 2, 116),
            (99, 0, 16, 16, 8, 4),
            (99, 0, 17, 24, 5, 12),
            (1, 0, 0, 8, 1, 124),
            (99, CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING, 3, 4, 33, 0),
        ] {
            let (result, groups, remainder) = split(most, flags, least);
            assert_eq!((result, groups.len()), (CUDA_SUCCESS, made), "{least}");
            assert!(groups.iter().all(|group| count(group) == size), "{least}");
            if rest == 0 {
                assert_eq!(remainder.r#type, CU_DEV_RESOURCE_TYPE_INVALID);
            } else {
                assert_eq!(count(&remainder), rest, "{least}");
            }
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
        assert_eq!(split(1, 0, 133).0, CUDA_ERROR_INVALID_VALUE);
        assert_eq!(split(1, 1 << 9, 1).0, CUDA_ERROR_INVALID_VALUE);
        assert_eq!(
            split(1, 0, 132).0,
            CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
            "136 are too many"
        );
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
        let (mut made, (_, groups, rest)) = (null_mut(), split(2, 0, 4));
        let mut describe = |resources: &mut [CUdevResource]| {
            let length = resources.len() as u32;
            // SAFETY: the resources are as many as the count says.
            unsafe { cuDevResourceGenerateDesc(&raw mut made, resources.as_mut_ptr(), length) }
        };
        assert_eq!(describe(&mut []), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(describe(&mut [resource()]), CUDA_ERROR_INVALID_RESOURCE_TYPE);
        assert_eq!(describe(&mut [groups[0], groups[1], rest]), CUDA_SUCCESS);
        let wrong = CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        assert_eq!(describe(&mut [groups[0], groups[0]]), wrong, "twice the same");
        let (_, others, _) = split(2, 0, 4);
        assert_eq!(describe(&mut [groups[0], others[1]]), wrong, "of two splits");
        let mut grown = groups[0];
        grown.unnamed2.sm.smCount = 9;
        assert_eq!(describe(&mut [grown]), wrong);
        let (mut again, input) = (1, groups[0]);
        fails!(
            CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
            cuDevSmResourceSplitByCount(
                null_mut(),
                &raw mut again,
                &raw const input,
                null_mut(),
                0,
                4
            )
        );
        let (mut green, one) = (null_mut(), descriptor(&mut [groups[0]]));
        fails!(CUDA_ERROR_INVALID_VALUE, cuGreenCtxCreate(&raw mut green, one, 1, 1));
        fails!(CUDA_ERROR_INVALID_VALUE, cuGreenCtxCreate(&raw mut green, null_mut(), 0, 1));
        fails!(CUDA_ERROR_INVALID_VALUE, cuGreenCtxCreate(&raw mut green, one, 0, 4));
        fails!(CUDA_ERROR_INVALID_DEVICE, cuGreenCtxCreate(&raw mut green, one, 9, 1));
    });
}

#[test]
fn a_green_context_has_its_multiprocessors_to_divide_again() {
    alone(&[], || {
        ok!(cuInit(0));
        let ((green, context), mut found) = (green(20), resource());
        let (out, kind) = (&raw mut found, CU_DEV_RESOURCE_TYPE_SM);
        ok!(cuGreenCtxGetDevResource(green, out, kind));
        assert_eq!(count(&found), 20);
        ok!(cuCtxGetDevResource(context, out, kind));
        assert_eq!(count(&found), 20);
        ok!(cuStreamGetDevResource(stream(green), out, kind));
        assert_eq!(count(&found), 20);
        let mut groups = 0;
        let input = found;
        ok!(cuDevSmResourceSplitByCount(
            null_mut(),
            &raw mut groups,
            &raw const input,
            null_mut(),
            0,
            10
        ));
        assert_eq!(groups, 2);
        let mut primary = null_mut();
        ok!(cuDevicePrimaryCtxRetain(&raw mut primary, 0));
        ok!(cuCtxGetDevResource(primary, out, kind));
        assert_eq!(count(&found), 108);
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
        let (mut primary, mut id, mut same) = (null_mut(), 0, 0);
        ok!(cuDevicePrimaryCtxRetain(&raw mut primary, 0));
        ok!(cuGreenCtxGetId(green, &raw mut id));
        ok!(cuGreenCtxGetId(null_mut(), &raw mut same));
        assert!(id == same && id != 0);
        for (stream, expected, its_context) in [
            (made, green, primary),
            (current, green, primary),
            (null_mut(), green, primary),
            (ordinary, null_mut(), other),
        ] {
            let (mut found, mut context) = (without_provenance_mut(1), null_mut());
            ok!(cuStreamGetGreenCtx(stream, &raw mut found));
            assert_eq!(found, expected);
            ok!(cuStreamGetCtx_v2(stream, &raw mut context, &raw mut found));
            assert_eq!((found, context), (expected, its_context));
        }
        let mut found = null_mut();
        ok!(cuStreamGetCtx(made, &raw mut found));
        assert_eq!(found, context);
        ok!(cuCtxPopCurrent_v2(null_mut()));
        fails!(CUDA_ERROR_INVALID_CONTEXT, cuGreenCtxGetId(null_mut(), &raw mut same));
        fails!(CUDA_ERROR_INVALID_VALUE, cuGreenCtxStreamCreate(&mut null_mut(), green, 0, 0));
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
fn an_event_captures_and_holds_back_all_streams_of_a_green_context() {
    let variables = [("STUB_GPU_CLOCK", "virtual"), ("STUB_GPU_KERNELS", "k=1000")];
    alone(&variables, || {
        ok!(cuInit(0));
        let ((first, context), (second, _)) = (green(8), green(8));
        ok!(cuCtxSetCurrent(context));
        let (k, own) = (kernel(c"k"), stream(first));
        let (before, all, after) = (event(), event(), event());
        ok!(cuEventRecord(before, own));
        launch_blocks(k, 1, own);
        launch_blocks(k, 1, own);
        launch_blocks(k, 1, null_mut());
        ok!(cuGreenCtxRecordEvent(first, all));
        assert!((between(before, all) - 2.0).abs() < 0.01, "the longest of its streams");
        launch_blocks(k, 1, own);
        ok!(cuGreenCtxRecordEvent(first, all));
        ok!(cuGreenCtxWaitEvent(second, all));
        let later = stream(second);
        launch_blocks(k, 1, later);
        ok!(cuEventRecord(after, later));
        assert!((between(all, after) - 1.0).abs() < 0.01, "after the event");
        fails!(CUDA_ERROR_INVALID_HANDLE, cuGreenCtxRecordEvent(first, null_mut()));
        fails!(CUDA_ERROR_INVALID_CONTEXT, cuGreenCtxWaitEvent(null_mut(), all));
        ok!(cuStreamBeginCapture_v2(own, CU_STREAM_CAPTURE_MODE_RELAXED));
        fails!(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuGreenCtxRecordEvent(first, all));
        let mut graph = null_mut();
        fails!(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(own, &raw mut graph));
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
