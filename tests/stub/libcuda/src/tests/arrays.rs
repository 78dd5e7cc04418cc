//! Arrays: their shapes, bytes and handles, mipmapped arrays, textures and surfaces.

use super::{alone, fails, free_bytes, invalid, ok, start};
use crate::table::*;
use driver_sys::cuda::*;
use std::mem::zeroed;
use std::ptr::{null, null_mut, without_provenance_mut};

// The header's macros.
const LAYERED: u32 = 1;
const SURFACE: u32 = 2;
const CUBEMAP: u32 = 4;
const GATHER: u32 = 8;
const DEFERRED: u32 = 128;

pub fn shape(extents: [usize; 3], channels: u32, flags: u32) -> CUDA_ARRAY3D_DESCRIPTOR {
    CUDA_ARRAY3D_DESCRIPTOR {
        Width: extents[0],
        Height: extents[1],
        Depth: extents[2],
        Format: CU_AD_FORMAT_UNSIGNED_INT8,
        NumChannels: channels,
        Flags: flags,
    }
}

/// The result of a creation, and the array.
pub fn try_create(shape: &CUDA_ARRAY3D_DESCRIPTOR) -> (CUresult, CUarray) {
    let mut array = null_mut();
    // SAFETY: both pointers are valid.
    (unsafe { cuArray3DCreate_v2(&raw mut array, shape) }, array)
}

/// An array of bytes.
pub fn create(extents: [usize; 3]) -> CUarray {
    let (result, array) = try_create(&shape(extents, 1, 0));
    assert_eq!(result, CUDA_SUCCESS);
    array
}

fn mipmap(shape: &CUDA_ARRAY3D_DESCRIPTOR, levels: u32) -> CUmipmappedArray {
    let mut mipmap = null_mut();
    ok!(cuMipmappedArrayCreate(&raw mut mipmap, shape, levels));
    mipmap
}

fn level(mipmap: CUmipmappedArray, level: u32) -> CUarray {
    let mut array = null_mut();
    ok!(cuMipmappedArrayGetLevel(&raw mut array, mipmap, level));
    array
}

fn extents(array: CUarray) -> [usize; 3] {
    let mut shape = shape([9; 3], 9, 9);
    ok!(cuArray3DGetDescriptor_v2(&raw mut shape, array));
    [shape.Width, shape.Height, shape.Depth]
}

pub fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 7 + index / 251) as u8).collect()
}

/// A copy of a volume from the host to an array.
pub fn upload(to: CUarray, from: &[u8], extents: [usize; 3]) -> CUDA_MEMCPY3D {
    // SAFETY: a structure of numbers and pointers.
    let mut copy: CUDA_MEMCPY3D = unsafe { zeroed() };
    (copy.srcMemoryType, copy.srcHost) = (CU_MEMORYTYPE_HOST, from.as_ptr().cast());
    (copy.dstMemoryType, copy.dstArray) = (CU_MEMORYTYPE_ARRAY, to);
    [copy.WidthInBytes, copy.Height, copy.Depth] = extents;
    copy
}

/// A copy of a volume from an array to the host.
pub fn download(to: &mut [u8], from: CUarray, extents: [usize; 3]) -> CUDA_MEMCPY3D {
    let mut copy = upload(from, &[], extents);
    (copy.srcMemoryType, copy.srcArray) = (CU_MEMORYTYPE_ARRAY, from);
    (copy.dstMemoryType, copy.dstHost) = (CU_MEMORYTYPE_HOST, to.as_mut_ptr().cast());
    copy
}

#[test]
fn an_array_takes_the_bytes_of_its_elements() {
    alone(&[], || {
        start();
        let before = free_bytes();
        for (extents, flags, elements) in [
            ([1000, 0, 0], 0, 1000),
            ([1000, 7, 0], 0, 7000),
            ([100, 7, 5], 0, 3500),
            ([100, 0, 5], LAYERED, 500),
            ([100, 7, 5], LAYERED, 3500),
            ([8, 8, 6], CUBEMAP, 384),
            ([8, 8, 12], CUBEMAP | LAYERED, 768),
            ([100, 7, 0], GATHER | SURFACE, 700),
        ] {
            for channels in [1, 2, 4] {
                let (result, array) = try_create(&shape(extents, channels, flags));
                assert_eq!(result, CUDA_SUCCESS, "{extents:?} {flags}");
                let used = before - free_bytes();
                assert_eq!(used, elements * channels as usize, "{extents:?} {flags}");
                ok!(cuArrayDestroy(array));
                assert_eq!(free_bytes(), before);
            }
        }
        for (format, channels, bytes) in [
            (CU_AD_FORMAT_SIGNED_INT16, 4, 8),
            (CU_AD_FORMAT_HALF, 1, 2),
            (CU_AD_FORMAT_FLOAT, 4, 16),
            (CU_AD_FORMAT_SNORM_INT8X2, 2, 2),
            (CU_AD_FORMAT_UNORM_INT16X4, 4, 8),
            (CU_AD_FORMAT_UNORM_INT_101010_2, 4, 4),
        ] {
            let (result, array) = try_create(&CUDA_ARRAY3D_DESCRIPTOR {
                Format: format,
                ..shape([10, 0, 0], channels, 0)
            });
            assert_eq!(result, CUDA_SUCCESS, "format {format}");
            assert_eq!(before - free_bytes(), 10 * bytes, "format {format}");
            ok!(cuArrayDestroy(array));
        }
    });
}

#[test]
fn a_shape_that_no_array_has_is_refused() {
    alone(&[], || {
        start();
        let before = free_bytes();
        let most = 1 << 20;
        for (extents, channels, flags) in [
            ([0, 0, 0], 1, 0),
            ([0, 4, 0], 1, 0),
            ([4, 0, 4], 1, 0),
            ([4, 4, 4], 3, 0),
            ([4, 4, 4], 0, 0),
            ([4, 4, 0], 1, LAYERED),
            ([4, 8, 6], 1, CUBEMAP),
            ([4, 4, 12], 1, CUBEMAP),
            ([4, 4, 7], 1, CUBEMAP | LAYERED),
            ([4, 0, 0], 1, GATHER),
            ([4, 4, 0], 1, 1 << 30),
            // Too large.
            ([most, 0, 0], 1, 0),
            ([most, 4, 0], 1, 0),
            ([4, most, 0], 1, 0),
            ([4, 4, most], 1, 0),
            ([usize::MAX, usize::MAX, usize::MAX], 4, 0),
        ] {
            let (result, _) = try_create(&shape(extents, channels, flags));
            assert_eq!(result, CUDA_ERROR_INVALID_VALUE, "{extents:?} {channels} {flags}");
        }
        let with_format =
            |format| CUDA_ARRAY3D_DESCRIPTOR { Format: format, ..shape([4, 4, 0], 1, 0) };
        for (shape, error) in [
            (shape([4, 4, 0], 1, DEFERRED), CUDA_ERROR_NOT_SUPPORTED),
            (with_format(CU_AD_FORMAT_NV12), CUDA_ERROR_NOT_SUPPORTED),
            (with_format(CU_AD_FORMAT_BC7_UNORM), CUDA_ERROR_NOT_SUPPORTED),
            (with_format(CU_AD_FORMAT_UNORM_INT8X4), CUDA_ERROR_INVALID_VALUE),
            (with_format(0), CUDA_ERROR_INVALID_VALUE),
        ] {
            assert_eq!(try_create(&shape).0, error, "{} {}", shape.Format, shape.Flags);
        }
        assert_eq!(free_bytes(), before);
    });
}

#[test]
fn arrays_do_not_fit_beyond_the_card() {
    alone(&[("STUB_GPU_PROFILE", "t4")], || {
        start();
        let before = free_bytes();
        let huge = shape([16384, 16384, 16384], 4, 0);
        assert_eq!(try_create(&huge).0, CUDA_ERROR_OUT_OF_MEMORY);
        let mut mipmap = null_mut();
        fails!(
            CUDA_ERROR_OUT_OF_MEMORY,
            cuMipmappedArrayCreate(&raw mut mipmap, &raw const huge, 2)
        );
        assert_eq!(free_bytes(), before);
    });
}

#[test]
fn only_what_is_written_to_an_array_costs_memory() {
    alone(&[("STUB_GPU_PROFILE", "h200")], || {
        start();
        let extents = [16384, 16384, 100];
        let (result, array) = try_create(&shape(extents, 4, 0));
        assert_eq!(result, CUDA_SUCCESS, "100 GiB");
        let from = bytes(4096);
        let mut copy = upload(array, &from, [4096, 1, 1]);
        (copy.dstXInBytes, copy.dstY, copy.dstZ) = (4 * 16384 - 4096, 16383, 99);
        ok!(cuMemcpy3D_v2(&raw const copy));
        let mut back = vec![0; 4096];
        let mut copy = download(&mut back, array, [4096, 1, 1]);
        (copy.srcXInBytes, copy.srcY, copy.srcZ) = (4 * 16384 - 4096, 16383, 99);
        ok!(cuMemcpy3D_v2(&raw const copy));
        assert_eq!(back, from);
        let status = std::fs::read_to_string("/proc/self/status").expect("status");
        let resident = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
        let kibibytes: u64 = resident.trim().trim_end_matches(" kB").parse().expect("a number");
        assert!(kibibytes < 1 << 20, "{kibibytes} KiB");
    });
}

#[test]
fn descriptors_are_returned_in_every_form() {
    alone(&[], || {
        start();
        let plane = CUDA_ARRAY_DESCRIPTOR_v1 {
            Width: 30,
            Height: 20,
            Format: CU_AD_FORMAT_FLOAT,
            NumChannels: 2,
        };
        let mut array = null_mut();
        ok!(cuArrayCreate(&raw mut array, &raw const plane));
        assert_eq!(extents(array), [30, 20, 0]);
        let mut found = CUDA_ARRAY_DESCRIPTOR { Width: 9, Height: 9, Format: 9, NumChannels: 9 };
        ok!(cuArrayGetDescriptor_v2(&raw mut found, array));
        assert_eq!((found.Width, found.Height), (30, 20));
        assert_eq!((found.Format, found.NumChannels), (CU_AD_FORMAT_FLOAT, 2));
        let (result, volume) = try_create(&shape([8, 8, 6], 1, CUBEMAP | SURFACE));
        assert_eq!(result, CUDA_SUCCESS);
        // SAFETY: numbers.
        let mut old: CUDA_ARRAY3D_DESCRIPTOR_v1 = unsafe { zeroed() };
        ok!(cuArray3DGetDescriptor(&raw mut old, volume));
        assert_eq!((old.Width, old.Height, old.Depth), (8, 8, 6));
        assert_eq!(old.Flags, CUBEMAP | SURFACE);
        ok!(cuArrayGetDescriptor_v2(&raw mut found, volume));
        assert_eq!((found.Width, found.Height), (8, 8));
    });
}

#[test]
fn an_invalid_array_is_refused() {
    alone(&[], || {
        start();
        let shape = shape([4, 4, 0], 1, 0);
        let (mut found, mut array) = (shape, null_mut());
        invalid!(cuArray3DCreate_v2(null_mut(), &raw const shape));
        invalid!(cuArray3DCreate_v2(&raw mut array, null()));
        for wrong in [null_mut(), without_provenance_mut(0x1234)] {
            fails!(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(wrong));
            fails!(CUDA_ERROR_INVALID_HANDLE, cuArray3DGetDescriptor_v2(&raw mut found, wrong));
        }
        let array = create([4, 4, 0]);
        invalid!(cuArray3DGetDescriptor_v2(null_mut(), array));
        ok!(cuArrayDestroy(array));
        fails!(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(array));
        let mut back = [0; 4];
        invalid!(cuMemcpyAtoH_v2(back.as_mut_ptr().cast(), array, 0, 4));
        ok!(cuCtxSetCurrent(null_mut()));
        fails!(CUDA_ERROR_INVALID_CONTEXT, cuArrayDestroy(array));
        fails!(CUDA_ERROR_INVALID_CONTEXT, cuArray3DCreate_v2(&mut null_mut(), &raw const shape));
    });
}

#[test]
fn arrays_end_with_their_context() {
    alone(&[], || {
        let first = start();
        let kept = create([64, 0, 0]);
        let before = free_bytes();
        let mut second = null_mut();
        ok!(cuCtxCreate_v2(&raw mut second, 0, 0));
        let array = create([1000, 1000, 0]);
        let levels = mipmap(&shape([64, 64, 0], 1, 0), 3);
        let last = level(levels, 2);
        ok!(cuCtxDestroy_v2(second));
        ok!(cuCtxSetCurrent(first));
        assert_eq!(free_bytes(), before);
        fails!(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(array));
        fails!(CUDA_ERROR_INVALID_HANDLE, cuMipmappedArrayDestroy(levels));
        let mut found = shape([9; 3], 9, 9);
        fails!(CUDA_ERROR_INVALID_HANDLE, cuArray3DGetDescriptor_v2(&raw mut found, last));
        ok!(cuArrayDestroy(kept));
    });
}

#[test]
fn levels_are_arrays_that_end_with_their_mipmapped_array() {
    alone(&[], || {
        start();
        let before = free_bytes();
        let levels = mipmap(&shape([20, 10, 0], 4, 0), 9);
        assert_eq!(before - free_bytes(), 4 * (20 * 10 + 10 * 5 + 5 * 2 + 2 + 1));
        let extents_of = |number| extents(level(levels, number));
        assert_eq!([1, 2, 3, 4].map(extents_of), [[10, 5, 0], [5, 2, 0], [2, 1, 0], [1, 1, 0]]);
        assert_eq!(level(levels, 1), level(levels, 1));
        invalid!(cuMipmappedArrayGetLevel(&mut null_mut(), levels, 5));
        let (base, first) = (bytes(800), bytes(200));
        ok!(cuMemcpy3D_v2(&upload(level(levels, 0), &base, [80, 10, 1])));
        ok!(cuMemcpy3D_v2(&upload(level(levels, 1), &first, [40, 5, 1])));
        let mut back = vec![0; 800];
        ok!(cuMemcpy3D_v2(&download(&mut back, level(levels, 0), [80, 10, 1])));
        assert_eq!(back, base);
        let last = level(levels, 4);
        fails!(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(last));
        ok!(cuMipmappedArrayDestroy(levels));
        assert_eq!(free_bytes(), before);
        fails!(CUDA_ERROR_INVALID_HANDLE, cuMipmappedArrayDestroy(levels));
        fails!(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(last));
        let layers = mipmap(&shape([8, 8, 6], 1, CUBEMAP), 0);
        assert_eq!(before - free_bytes(), 8 * 8 * 6, "at least one level");
        ok!(cuMipmappedArrayDestroy(layers));
        let layers = mipmap(&shape([8, 8, 6], 1, CUBEMAP), 2);
        assert_eq!(extents(level(layers, 1)), [4, 4, 6], "every level has all faces");
    });
}
