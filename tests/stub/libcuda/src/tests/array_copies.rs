//! Exact copies of parts of arrays: on their own, in streams and in graphs.

use super::arrays::{bytes, create, download, shape, try_create, upload};
use super::{alone, fails, invalid, ok, start};
use crate::table::*;
use driver_sys::cuda::*;
use std::mem::zeroed;
use std::ptr::{null, null_mut, without_provenance_mut};

#[test]
fn a_part_of_a_volume_is_copied_exactly() {
    alone(&[], || {
        start();
        let array = create([20, 10, 5]);
        let from = bytes(1000);
        ok!(cuMemcpy3D_v2(&upload(array, &from, [20, 10, 5])));
        let mut back = vec![0; 3 * 4 * 2];
        let mut copy = download(&mut back, array, [3, 4, 2]);
        (copy.srcXInBytes, copy.srcY, copy.srcZ) = (17, 6, 3);
        // An array has its own pitch.
        (copy.srcPitch, copy.srcHeight) = (1, 1);
        ok!(cuMemcpy3DAsync_v2(&raw const copy, null_mut()));
        let at = |x: usize, y: usize, z: usize| from[z * 200 + y * 20 + x];
        let expected: Vec<u8> = (3..5)
            .flat_map(|z| (6..10).flat_map(move |y| (17..20).map(move |x| at(x, y, z))))
            .collect();
        assert_eq!(back, expected);
        for change in [
            |copy: &mut CUDA_MEMCPY3D| copy.srcXInBytes = 18,
            |copy: &mut CUDA_MEMCPY3D| copy.srcY = 7,
            |copy: &mut CUDA_MEMCPY3D| copy.srcZ = 4,
            |copy: &mut CUDA_MEMCPY3D| copy.srcZ = usize::MAX,
            |copy: &mut CUDA_MEMCPY3D| copy.srcLOD = 1,
            |copy: &mut CUDA_MEMCPY3D| copy.srcArray = null_mut(),
            |copy: &mut CUDA_MEMCPY3D| copy.srcMemoryType = 9,
        ] {
            let mut wrong = copy;
            change(&mut wrong);
            invalid!(cuMemcpy3D_v2(&raw const wrong));
        }
    });
}

#[test]
fn rows_are_copied_between_arrays_and_pitched_memory() {
    alone(&[], || {
        start();
        let (array, from) = (create([100, 7, 0]), bytes(700));
        ok!(cuMemcpy3D_v2(&upload(array, &from, [100, 7, 1])));
        let (mut pointer, mut pitch) = (0, 0);
        ok!(cuMemAllocPitch_v2(&raw mut pointer, &raw mut pitch, 100, 7, 4));
        // SAFETY: structures of numbers and pointers, here and below.
        let mut copy: CUDA_MEMCPY2D = unsafe { zeroed() };
        (copy.srcMemoryType, copy.srcArray) = (CU_MEMORYTYPE_ARRAY, array);
        (copy.dstMemoryType, copy.dstDevice, copy.dstPitch) =
            (CU_MEMORYTYPE_DEVICE, pointer, pitch);
        (copy.WidthInBytes, copy.Height) = (100, 7);
        ok!(cuMemcpy2DUnaligned_v2(&raw const copy));
        let other = create([100, 7, 0]);
        (copy.dstMemoryType, copy.dstArray) = (CU_MEMORYTYPE_ARRAY, other);
        (copy.srcMemoryType, copy.srcDevice, copy.srcPitch) =
            (CU_MEMORYTYPE_DEVICE, pointer, pitch);
        ok!(cuMemcpy2DAsync_v2(&raw const copy, null_mut()));
        let mut back = vec![0; 700];
        // SAFETY: as above.
        let mut old: CUDA_MEMCPY2D_v1 = unsafe { zeroed() };
        (old.srcMemoryType, old.srcArray) = (CU_MEMORYTYPE_ARRAY, other);
        (old.dstMemoryType, old.dstHost) = (CU_MEMORYTYPE_HOST, back.as_mut_ptr().cast());
        (old.WidthInBytes, old.Height) = (100, 7);
        ok!(cuMemcpy2D(&raw const old));
        assert_eq!(back, from);
        old.Height = 8;
        invalid!(cuMemcpy2D(&raw const old));
    });
}

#[test]
fn lines_are_copied_to_and_from_arrays() {
    alone(&[], || {
        start();
        let from = bytes(64);
        let mut back = vec![0u8; 64];
        let first = create([64, 0, 0]);
        ok!(cuMemcpyHtoAAsync_v2(first, 0, from.as_ptr().cast(), 64, null_mut()));
        ok!(cuMemcpyHtoA_v2(first, 10, from[20..].as_ptr().cast(), 30));
        ok!(cuMemcpyAtoH_v2(back.as_mut_ptr().cast(), first, 10, 30));
        assert_eq!(back[..30], from[20..50]);
        ok!(cuMemcpyHtoA_v2(first, 0, from.as_ptr().cast(), 64));
        ok!(cuMemcpyAtoHAsync_v2(back.as_mut_ptr().cast(), first, 0, 64, null_mut()));
        assert_eq!(back, from);
        let out = back.as_mut_ptr().cast();
        invalid!(cuMemcpyAtoH_v2(out, first, 1, 64));
        invalid!(cuMemcpyAtoH_v2(out, first, usize::MAX, 64));
        let (result, pairs) = try_create(&shape([64, 0, 0], 2, 0));
        assert_eq!(result, CUDA_SUCCESS);
        invalid!(cuMemcpyAtoH_v2(out, pairs, 1, 2));
        invalid!(cuMemcpyAtoH_v2(out, pairs, 0, 3));
        // The address of an array's elements is no device pointer.
        let driver = crate::process::driver().expect("initialised");
        let address = crate::memory::array::find(driver, first).expect("an array").address;
        invalid!(cuMemcpyDtoH_v2(out, address, 1));
        invalid!(cuMemFree_v2(address));
        fails!(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange_v2(null_mut(), null_mut(), address));
    });
}

#[test]
fn arrays_of_two_cards_are_copied_as_peers() {
    alone(&[("STUB_GPU_PROFILE", "t4,t4")], || {
        let first = start();
        let (from, data) = (create([8, 8, 2]), bytes(128));
        ok!(cuMemcpy3D_v2(&upload(from, &data, [8, 8, 2])));
        let mut second = null_mut();
        ok!(cuCtxCreate_v2(&raw mut second, 0, 1));
        let to = create([8, 8, 2]);
        // SAFETY: a structure of numbers and pointers.
        let mut copy: CUDA_MEMCPY3D_PEER = unsafe { zeroed() };
        (copy.srcMemoryType, copy.srcArray, copy.srcContext) = (CU_MEMORYTYPE_ARRAY, from, first);
        (copy.dstMemoryType, copy.dstArray, copy.dstContext) = (CU_MEMORYTYPE_ARRAY, to, second);
        (copy.WidthInBytes, copy.Height, copy.Depth) = (8, 8, 2);
        ok!(cuMemcpy3DPeer(&raw const copy));
        let mut back = vec![0; 128];
        ok!(cuMemcpy3D_v2(&download(&mut back, to, [8, 8, 2])));
        assert_eq!(back, data);
        copy.srcContext = without_provenance_mut(0x1234);
        fails!(CUDA_ERROR_INVALID_CONTEXT, cuMemcpy3DPeer(&raw const copy));
    });
}

#[test]
fn graphs_copy_to_and_from_arrays() {
    alone(&[], || {
        start();
        let (array, from, mut back) = (create([8, 8, 0]), bytes(64), vec![0; 64]);
        let (mut stream, mut graph, mut exec) = (null_mut(), null_mut(), null_mut());
        ok!(cuStreamCreate(&raw mut stream, 0));
        ok!(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        ok!(cuMemcpy3DAsync_v2(&upload(array, &from, [8, 8, 1]), stream));
        ok!(cuMemcpyHtoAAsync_v2(array, 2, from.as_ptr().cast(), 4, stream));
        ok!(cuMemcpy3DAsync_v2(&download(&mut back, array, [8, 8, 1]), stream));
        ok!(cuStreamEndCapture(stream, &raw mut graph));
        ok!(cuGraphInstantiateWithFlags(&raw mut exec, graph, 0));
        assert_eq!(back, [0; 64]);
        ok!(cuGraphLaunch(exec, stream));
        ok!(cuStreamSynchronize(stream));
        let mut expected = from.clone();
        expected[2..6].copy_from_slice(&from[..4]);
        assert_eq!(back, expected);
        let mut node = null_mut();
        let too_large = upload(array, &from, [8, 9, 1]);
        invalid!(cuGraphAddMemcpyNode(
            &raw mut node,
            graph,
            null(),
            0,
            &raw const too_large,
            null_mut()
        ));
        ok!(cuArrayDestroy(array));
        invalid!(cuGraphLaunch(exec, stream));
    });
}

#[test]
fn a_large_copy_to_an_array_takes_time() {
    alone(&[("STUB_GPU_CLOCK", "virtual")], || {
        start();
        let (array, from) = (create([1000, 1000, 0]), bytes(1_000_000));
        let (mut before, mut after, mut ms) = (null_mut(), null_mut(), 0.0);
        ok!(cuEventCreate(&raw mut before, 0));
        ok!(cuEventCreate(&raw mut after, 0));
        ok!(cuEventRecord(before, null_mut()));
        ok!(cuMemcpy3D_v2(&upload(array, &from, [1000, 1000, 1])));
        ok!(cuEventRecord(after, null_mut()));
        ok!(cuEventSynchronize(after));
        ok!(cuEventElapsedTime(&raw mut ms, before, after));
        assert!((ms - 0.04).abs() < 0.001, "{ms} ms for 1 MB at 25 GB/s");
    });
}
