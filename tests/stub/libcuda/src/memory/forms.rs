//! The structures that describe copies, all as the largest of them, a copy of slices.

use crate::Answer;
use crate::context::named;
use crate::memory::copy::Side;
use core::ffi::c_void;
use core::ptr::null_mut;
use driver_sys::cuda::*;

/// A structure of the header that describes a copy.
pub trait Form: Copy {
    /// The same copy, as slices.
    fn slices(&self) -> Answer<CUDA_MEMCPY3D>;
}

/// Copies the fields of both sides of a copy, and sets those that the other structure lacks.
macro_rules! convert {
    ($from:ident; $($field:ident)*; $($more:ident: $value:expr),*) => {
        CUDA_MEMCPY3D {
            srcMemoryType: $from.srcMemoryType,
            srcHost: $from.srcHost,
            srcArray: $from.srcArray,
            dstMemoryType: $from.dstMemoryType,
            dstHost: $from.dstHost,
            dstArray: $from.dstArray,
            reserved0: null_mut(),
            reserved1: null_mut(),
            // The first API has 32 bits here.
            srcDevice: u64::from($from.srcDevice),
            dstDevice: u64::from($from.dstDevice),
            $($field: $from.$field as usize,)*
            $($more: $value,)*
        }
    };
}

macro_rules! rows {
    ($($form:ty)*) => { $(
        #[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
        impl Form for $form {
            fn slices(&self) -> Answer<CUDA_MEMCPY3D> {
                Ok(convert!(
                    self;
                    srcXInBytes srcY srcPitch dstXInBytes dstY dstPitch WidthInBytes Height;
                    srcZ: 0, srcLOD: 0, srcHeight: self.Height as usize,
                    dstZ: 0, dstLOD: 0, dstHeight: self.Height as usize,
                    Depth: 1
                ))
            }
        }
    )* };
}

macro_rules! slices {
    ($($form:ty $(, $check:path)?;)*) => { $(
        #[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
        impl Form for $form {
            fn slices(&self) -> Answer<CUDA_MEMCPY3D> {
                $($check(self)?;)?
                Ok(convert!(
                    self;
                    srcXInBytes srcY srcZ srcLOD srcPitch srcHeight
                    dstXInBytes dstY dstZ dstLOD dstPitch dstHeight
                    WidthInBytes Height Depth;
                ))
            }
        }
    )* };
}

rows! { CUDA_MEMCPY2D CUDA_MEMCPY2D_v1 }
slices! {
    CUDA_MEMCPY3D;
    CUDA_MEMCPY3D_v1;
    CUDA_MEMCPY3D_PEER, check_peers;
}

/// Checks the contexts of a copy's sides. Host memory has none.
fn check_peers(copy: &CUDA_MEMCPY3D_PEER) -> Answer {
    let sides = [(copy.srcMemoryType, copy.srcContext), (copy.dstMemoryType, copy.dstContext)];
    for (_, context) in sides.into_iter().filter(|(kind, _)| *kind != CU_MEMORYTYPE_HOST) {
        named(context)?;
    }
    Ok(())
}

/// One end of a line of bytes.
#[derive(Clone, Copy)]
pub struct End {
    kind: CUmemorytype,
    address: u64,
    array: CUarray,
    /// Bytes from the start of the array.
    offset: usize,
}

impl End {
    /// Bytes in an array's first row.
    pub fn in_array(array: CUarray, offset: usize) -> Self {
        Self { kind: CU_MEMORYTYPE_ARRAY, address: 0, array, offset }
    }
}

impl From<(u64, Side)> for End {
    fn from((address, side): (u64, Side)) -> Self {
        let kind = match side {
            Side::Host => CU_MEMORYTYPE_HOST,
            Side::Device => CU_MEMORYTYPE_DEVICE,
            Side::Unified => CU_MEMORYTYPE_UNIFIED,
            Side::Array => CU_MEMORYTYPE_ARRAY,
        };
        Self { kind, address, array: null_mut(), offset: 0 }
    }
}

/// A line of bytes.
pub fn line(to: End, from: End, bytes: u64) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcXInBytes: from.offset,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: from.kind,
        srcHost: from.address as *const c_void,
        srcDevice: from.address,
        srcArray: from.array,
        reserved0: null_mut(),
        srcPitch: 0,
        srcHeight: 1,
        dstXInBytes: to.offset,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: to.kind,
        dstHost: to.address as *mut c_void,
        dstDevice: to.address,
        dstArray: to.array,
        reserved1: null_mut(),
        dstPitch: 0,
        dstHeight: 1,
        WidthInBytes: bytes as usize,
        Height: 1,
        Depth: 1,
    }
}
