//! The shape of an array: its extents, format and flags. Which shapes are valid, and how many bytes
//! they have.

use crate::Answer;
use driver_sys::cuda::*;

// The header's macros of the same names.
const LAYERED: u32 = 0x01;
const SURFACE_LDST: u32 = 0x02;
const CUBEMAP: u32 = 0x04;
const TEXTURE_GATHER: u32 = 0x08;
const DEPTH_TEXTURE: u32 = 0x10;
const COLOR_ATTACHMENT: u32 = 0x20;
const SPARSE: u32 = 0x40;
const DEFERRED_MAPPING: u32 = 0x80;
const VIDEO_ENCODE_DECODE: u32 = 0x100;
const STORED: u32 =
    LAYERED | SURFACE_LDST | CUBEMAP | TEXTURE_GATHER | DEPTH_TEXTURE | COLOR_ATTACHMENT;
const UNSUPPORTED: u32 = DEFERRED_MAPPING | VIDEO_ENCODE_DECODE;

/// The largest width, height and depth that any kind of texture has.
const LARGEST: [u64; 3] = [131_072, 65_536, 16_384];

/// The faces of a cube, which are layers.
const FACES: u64 = 6;

/// The shape of an array. An extent that the array does not have is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    pub width: u64,
    pub height: u64,
    /// Slices, or layers.
    pub depth: u64,
    pub format: CUarray_format,
    pub channels: u32,
    pub flags: u32,
}

/// A structure of the header that describes an array.
pub trait Descriptor: Copy {
    fn shape(&self) -> Shape;
    fn of(shape: &Shape) -> Self;
}

macro_rules! descriptors {
    ($($name:ident $size:ty { $($depth:ident $flags:ident)? })*) => { $(
        #[allow(clippy::unnecessary_cast, clippy::cast_lossless, clippy::needless_update)]
        impl Descriptor for $name {
            fn shape(&self) -> Shape {
                Shape {
                    width: self.Width as u64,
                    height: self.Height as u64,
                    format: self.Format,
                    channels: self.NumChannels,
                    $(depth: self.$depth as u64, flags: self.$flags,)?
                    ..Shape::default()
                }
            }

            fn of(shape: &Shape) -> Self {
                Self {
                    Width: shape.width as $size,
                    Height: shape.height as $size,
                    Format: shape.format,
                    NumChannels: shape.channels,
                    $($depth: shape.depth as $size, $flags: shape.flags,)?
                }
            }
        }
    )* };
}

descriptors! {
    CUDA_ARRAY_DESCRIPTOR usize {}
    CUDA_ARRAY_DESCRIPTOR_v1 u32 {}
    CUDA_ARRAY3D_DESCRIPTOR usize { Depth Flags }
    CUDA_ARRAY3D_DESCRIPTOR_v1 u32 { Depth Flags }
}

/// Bytes of an element; formats that name their channels have only that number of them.
fn element_bytes(format: CUarray_format, channels: u32) -> Answer<u64> {
    let is_any = matches!(channels, 1 | 2 | 4);
    let (is_valid, bytes) = match format {
        CU_AD_FORMAT_UNSIGNED_INT8 | CU_AD_FORMAT_SIGNED_INT8 => (is_any, channels),
        CU_AD_FORMAT_UNSIGNED_INT16 | CU_AD_FORMAT_SIGNED_INT16 | CU_AD_FORMAT_HALF => {
            (is_any, 2 * channels)
        }
        CU_AD_FORMAT_UNSIGNED_INT32 | CU_AD_FORMAT_SIGNED_INT32 | CU_AD_FORMAT_FLOAT => {
            (is_any, 4 * channels)
        }
        CU_AD_FORMAT_UNORM_INT8X1 | CU_AD_FORMAT_SNORM_INT8X1 => (channels == 1, 1),
        CU_AD_FORMAT_UNORM_INT8X2 | CU_AD_FORMAT_SNORM_INT8X2 => (channels == 2, 2),
        CU_AD_FORMAT_UNORM_INT8X4 | CU_AD_FORMAT_SNORM_INT8X4 | CU_AD_FORMAT_UNORM_INT_101010_2 => {
            (channels == 4, 4)
        }
        CU_AD_FORMAT_UNORM_INT16X1 | CU_AD_FORMAT_SNORM_INT16X1 => (channels == 1, 2),
        CU_AD_FORMAT_UNORM_INT16X2 | CU_AD_FORMAT_SNORM_INT16X2 => (channels == 2, 4),
        CU_AD_FORMAT_UNORM_INT16X4 | CU_AD_FORMAT_SNORM_INT16X4 => (channels == 4, 8),
        // Blocks of elements, several planes, or packed video.
        CU_AD_FORMAT_BC1_UNORM..=CU_AD_FORMAT_P010
        | CU_AD_FORMAT_P016..=CU_AD_FORMAT_Y410
        | CU_AD_FORMAT_NV12..=CU_AD_FORMAT_YUV444_16bit_SemiPlanar
        | CU_AD_FORMAT_UINT8_PACKED_422..=CU_AD_FORMAT_UINT16_PLANAR_444 => {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    if is_valid { Ok(u64::from(bytes)) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

impl Shape {
    fn is(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Whether the program maps memory into the array.
    pub fn is_sparse(&self) -> bool {
        self.is(SPARSE)
    }

    pub fn element_bytes(&self) -> Answer<u64> {
        element_bytes(self.format, self.channels)
    }

    pub fn row_bytes(&self) -> Answer<u64> {
        Ok(self.width * self.element_bytes()?)
    }

    /// The number of rows of a slice or layer.
    pub fn rows(&self) -> u64 {
        self.height.max(1)
    }

    /// The number of slices or layers.
    pub fn slices(&self) -> u64 {
        self.depth.max(1)
    }

    pub fn bytes(&self) -> Answer<u64> {
        Ok(self.row_bytes()? * self.rows() * self.slices())
    }

    /// The number of levels of a mipmapped array of this shape, when a program requests so many.
    pub fn levels(&self, requested: u32) -> u32 {
        let largest = self.width.max(self.height).max(self.depth).max(1);
        requested.clamp(1, 1 + largest.ilog2())
    }

    /// A level of a mipmapped array. Each one halves the extents; all levels have the same layers.
    pub fn level(&self, level: u32) -> Self {
        let half = |extent: u64| if extent == 0 { 0 } else { (extent >> level).max(1) };
        let has_layers = self.is(LAYERED) || self.is(CUBEMAP);
        Self {
            width: half(self.width),
            height: half(self.height),
            depth: if has_layers { self.depth } else { half(self.depth) },
            ..*self
        }
    }

    /// Refuses flags that are unknown or that the stub does not have.
    fn check_flags(&self) -> Answer {
        if self.is(!(STORED | SPARSE | UNSUPPORTED)) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if self.is(UNSUPPORTED) { Err(CUDA_ERROR_NOT_SUPPORTED) } else { Ok(()) }
    }

    /// Refuses a shape that no kind of array has.
    pub fn check(&self) -> Answer {
        self.element_bytes()?;
        self.check_flags()?;
        let [width, height, depth] = [self.width, self.height, self.depth];
        let is_kind = match (self.is(CUBEMAP), self.is(LAYERED), height > 0, depth > 0) {
            (false, false, has_rows, has_slices) => has_rows || !has_slices,
            (false, true, _, has_layers) => has_layers,
            (true, false, ..) => width == height && depth == FACES,
            (true, true, _, has_faces) => {
                has_faces && width == height && depth.is_multiple_of(FACES)
            }
        };
        let has_room =
            width > 0 && [width, height, depth].iter().zip(LARGEST).all(|(of, most)| *of <= most);
        // Gathers work on arrays of two dimensions.
        let can_gather = !self.is(TEXTURE_GATHER) || height > 0 && depth == 0;
        if is_kind && has_room && can_gather { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
    }
}
