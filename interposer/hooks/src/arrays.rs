//! Arrays: an array is charged the bytes of its elements, over all of its levels, layers and faces.
//!
//! Sparse arrays and arrays with deferred mapping take no memory: the program maps memory into them
//! that it has created, and that is charged.

#[allow(clippy::wildcard_imports)] // most formats of the header
use driver_sys::cuda::*;
use vgpu_driver::real::{Outcome, check};
use vgpu_slice::allocations::{ARRAYS, Kind, MIPMAPPED_ARRAYS};
use vgpu_slice::charging;
use vgpu_slice::reserve::{Allocated, Taken};

use crate::{bindings, external};

/// `CUDA_ARRAY3D_SPARSE` and `CUDA_ARRAY3D_DEFERRED_MAPPING`, macros in the header.
const WITHOUT_MEMORY: u32 = 0x40 | 0x80;

/// The extent of an array and what it takes for each element.
#[derive(Clone, Copy)]
struct Extent {
    width: u64,
    height: u64,
    depth: u64,
    bits: u64,
}

impl Extent {
    fn of(description: &CUDA_ARRAY3D_DESCRIPTOR) -> Self {
        let bits = match description.Flags & WITHOUT_MEMORY {
            0 => bits(description.Format, description.NumChannels),
            _ => 0,
        };
        Self {
            width: description.Width as u64,
            height: description.Height as u64,
            depth: description.Depth as u64,
            bits,
        }
    }

    /// The bytes of all elements. More than any card has if the numbers are too large.
    fn bytes(self) -> u64 {
        let elements = self.width.checked_mul(self.height.max(1));
        let elements = elements.and_then(|rows| rows.checked_mul(self.depth.max(1)));
        let bits = elements.and_then(|elements| elements.checked_mul(self.bits));
        bits.map_or(u64::MAX, |bits| bits.div_ceil(8))
    }
}

/// The bits of one element of a format.
#[rustfmt::skip]
fn bits(format: CUarray_format, channels: u32) -> u64 {
    match format {
        CU_AD_FORMAT_UNSIGNED_INT8 | CU_AD_FORMAT_SIGNED_INT8 => 8 * u64::from(channels),
        CU_AD_FORMAT_UNSIGNED_INT16 | CU_AD_FORMAT_SIGNED_INT16 | CU_AD_FORMAT_HALF =>
            16 * u64::from(channels),
        CU_AD_FORMAT_UNSIGNED_INT32 | CU_AD_FORMAT_SIGNED_INT32 | CU_AD_FORMAT_FLOAT =>
            32 * u64::from(channels),
        CU_AD_FORMAT_BC1_UNORM | CU_AD_FORMAT_BC1_UNORM_SRGB | CU_AD_FORMAT_BC4_UNORM
        | CU_AD_FORMAT_BC4_SNORM => 4,
        CU_AD_FORMAT_UNORM_INT8X1 | CU_AD_FORMAT_SNORM_INT8X1 | CU_AD_FORMAT_BC2_UNORM
        | CU_AD_FORMAT_BC2_UNORM_SRGB | CU_AD_FORMAT_BC3_UNORM | CU_AD_FORMAT_BC3_UNORM_SRGB
        | CU_AD_FORMAT_BC5_UNORM | CU_AD_FORMAT_BC5_SNORM | CU_AD_FORMAT_BC6H_UF16
        | CU_AD_FORMAT_BC6H_SF16 | CU_AD_FORMAT_BC7_UNORM | CU_AD_FORMAT_BC7_UNORM_SRGB => 8,
        CU_AD_FORMAT_NV12 | CU_AD_FORMAT_UINT8_SEMIPLANAR_420 | CU_AD_FORMAT_UINT8_PLANAR_420 => 12,
        CU_AD_FORMAT_UNORM_INT8X2 | CU_AD_FORMAT_SNORM_INT8X2 | CU_AD_FORMAT_UNORM_INT16X1
        | CU_AD_FORMAT_SNORM_INT16X1 | CU_AD_FORMAT_NV16 | CU_AD_FORMAT_YUY2
        | CU_AD_FORMAT_UINT8_PACKED_422 | CU_AD_FORMAT_UINT8_SEMIPLANAR_422
        | CU_AD_FORMAT_UINT8_PLANAR_422 => 16,
        CU_AD_FORMAT_P010 | CU_AD_FORMAT_P016 | CU_AD_FORMAT_Y444_PLANAR8
        | CU_AD_FORMAT_UINT8_PACKED_444 | CU_AD_FORMAT_UINT8_SEMIPLANAR_444
        | CU_AD_FORMAT_UINT8_PLANAR_444 | CU_AD_FORMAT_UINT16_SEMIPLANAR_420
        | CU_AD_FORMAT_UINT16_PLANAR_420 => 24,
        CU_AD_FORMAT_Y444_PLANAR10 | CU_AD_FORMAT_UINT16_SEMIPLANAR_444
        | CU_AD_FORMAT_UINT16_PLANAR_444 => 48,
        CU_AD_FORMAT_UNORM_INT16X4 | CU_AD_FORMAT_SNORM_INT16X4 | CU_AD_FORMAT_Y416 => 64,
        // All others have 32 bits; a format that is newer than this list is taken for one of them.
        _ => 32,
    }
}

/// The bytes of all levels of a mipmapped array. Each level halves the extent; layers stay.
fn bytes_of_levels(description: &CUDA_ARRAY3D_DESCRIPTOR, levels: u32) -> u64 {
    let layered = description.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP) != 0;
    let mut extent = Extent::of(description);
    let mut bytes = 0_u64;
    for _ in 0..levels.min(u64::BITS) {
        bytes = bytes.saturating_add(extent.bytes());
        let half = |size: u64| if size == 0 { 0 } else { (size / 2).max(1) };
        extent.width = half(extent.width);
        extent.height = half(extent.height);
        extent.depth = if layered { extent.depth } else { half(extent.depth) };
    }
    bytes
}

/// `CUDA_ARRAY3D_LAYERED` and `CUDA_ARRAY3D_CUBEMAP`, macros in the header.
const CUDA_ARRAY3D_LAYERED: u32 = 0x01;
const CUDA_ARRAY3D_CUBEMAP: u32 = 0x04;

/// Creates an array of the bytes that its description says. `call` calls the driver, which writes
/// the handle. If one of the pointers is null, the driver refuses.
fn create<A, D>(
    kind: &'static Kind,
    (array, description): (*mut *mut A, *const D),
    call: impl FnOnce() -> CUresult,
    bytes: impl FnOnce(&D) -> u64,
) -> Outcome {
    // SAFETY: the program's own argument.
    let of = unsafe { description.as_ref() }.filter(|_| !array.is_null());
    let Some(bytes) = of.map(bytes) else { return check(call()) };
    // Larger than any card. The driver refuses it, with the error that it has for such extents.
    let expected = if bytes > MOST { 0 } else { bytes };
    // SAFETY: read only after the driver has written it.
    let allocated = || Allocated { key: unsafe { *array } as u64, bytes };
    charging::allocate(kind, Taken::InGranules, expected, call, allocated)
}

/// More bytes than any card has.
const MOST: u64 = 1 << 50;

fn flat(width: usize, height: usize, format: CUarray_format, channels: u32) -> u64 {
    let (width, height) = (width as u64, height as u64);
    Extent { width, height, depth: 0, bits: bits(format, channels) }.bytes()
}

around! {
    create_flat(array: *mut CUarray, description: *const CUDA_ARRAY_DESCRIPTOR) -> Outcome
        = cuArrayCreate_v2, |call| create(&ARRAYS, (array, description), call, |of| {
            flat(of.Width, of.Height, of.Format, of.NumChannels)
        });
    create_flat_v1(array: *mut CUarray, description: *const CUDA_ARRAY_DESCRIPTOR_v1) -> Outcome
        = cuArrayCreate, |call| create(&ARRAYS, (array, description), call, |of| {
            flat(of.Width as usize, of.Height as usize, of.Format, of.NumChannels)
        });
    create_3d(array: *mut CUarray, description: *const CUDA_ARRAY3D_DESCRIPTOR) -> Outcome
        = cuArray3DCreate_v2,
        |call| create(&ARRAYS, (array, description), call, |of| Extent::of(of).bytes());
    create_3d_v1(array: *mut CUarray, description: *const CUDA_ARRAY3D_DESCRIPTOR_v1) -> Outcome
        = cuArray3DCreate, |call| create(&ARRAYS, (array, description), call, |of| {
            let wide = CUDA_ARRAY3D_DESCRIPTOR {
                Width: of.Width as usize,
                Height: of.Height as usize,
                Depth: of.Depth as usize,
                Format: of.Format,
                NumChannels: of.NumChannels,
                Flags: of.Flags,
            };
            Extent::of(&wide).bytes()
        });
    create_mipmapped(
        array: *mut CUmipmappedArray, description: *const CUDA_ARRAY3D_DESCRIPTOR, levels: u32
    ) -> Outcome = cuMipmappedArrayCreate, |call| {
        create(&MIPMAPPED_ARRAYS, (array, description), call, |of| bytes_of_levels(of, levels))
    };
    destroy(array: CUarray) -> Outcome = cuArrayDestroy,
        |call| charging::free(&ARRAYS, array as u64, call)
            .inspect(|()| bindings::array_ended(array as u64));
    destroy_mipmapped(array: CUmipmappedArray) -> Outcome = cuMipmappedArrayDestroy, |call| {
        if external::has_array(array) {
            return external::destroy_array(array, call);
        }
        charging::free(&MIPMAPPED_ARRAYS, array as u64, call)
            .inspect(|()| bindings::array_ended(array as u64))
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(width: usize, height: usize, depth: usize) -> CUDA_ARRAY3D_DESCRIPTOR {
        CUDA_ARRAY3D_DESCRIPTOR {
            Width: width,
            Height: height,
            Depth: depth,
            Format: CU_AD_FORMAT_FLOAT,
            NumChannels: 2,
            Flags: 0,
        }
    }

    #[test]
    fn an_array_has_the_bytes_of_its_elements() {
        assert_eq!(Extent::of(&description(10, 0, 0)).bytes(), 80);
        assert_eq!(Extent::of(&description(10, 3, 0)).bytes(), 240);
        assert_eq!(Extent::of(&description(10, 3, 7)).bytes(), 1680);
        assert_eq!(Extent::of(&description(10, 0, 7)).bytes(), 560);
        assert_eq!(Extent::of(&description(usize::MAX, 3, 7)).bytes(), u64::MAX);
        let deferred = CUDA_ARRAY3D_DESCRIPTOR { Flags: 0x80, ..description(10, 3, 7) };
        assert_eq!(Extent::of(&deferred).bytes(), 0);
        assert_eq!(flat(7, 3, CU_AD_FORMAT_NV12, 3), 32);
    }

    #[test]
    fn levels_halve_down_to_one_element_and_keep_their_layers() {
        let mut array = description(8, 4, 0);
        assert_eq!(bytes_of_levels(&array, 1), 256);
        assert_eq!(bytes_of_levels(&array, 4), 256 + 64 + 16 + 8);
        array.Depth = 2;
        assert_eq!(bytes_of_levels(&array, 2), 512 + 64);
        array.Flags = CUDA_ARRAY3D_LAYERED;
        assert_eq!(bytes_of_levels(&array, 2), 512 + 128);
    }
}
