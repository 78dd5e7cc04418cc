//! Copies of volumes: rows in slices, between host, device and unified memory.

use crate::Answer;
use crate::memory::copy::{self, Side};
use crate::process::Driver;
use crate::stream::work::Work;
use core::ffi::c_void;
use driver_sys::cuda::*;

/// One side of a copy of slices: the start of its first row, and the distances of rows and slices.
struct Block {
    address: u64,
    side: Side,
    pitch: u64,
    slice: u64,
}

fn block(plane: &copy::Plane, height: usize, z: usize, volume: &CUDA_MEMCPY3D) -> Answer<Block> {
    // Slices without a height are adjacent.
    let height = if height == 0 { volume.Height } else { height };
    if height < volume.Height && volume.Depth > 1 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let slice = plane.pitch * height as u64;
    let address = plane.address + slice * z as u64;
    Ok(Block { address, side: plane.side, pitch: plane.pitch, slice })
}

fn blocks(volume: &CUDA_MEMCPY3D) -> Answer<(Block, Block)> {
    let width = volume.WidthInBytes;
    let from = copy::plane(
        volume.srcMemoryType,
        volume.srcHost as u64,
        volume.srcDevice,
        volume.srcPitch,
        volume.srcXInBytes,
        volume.srcY,
        width,
    )?;
    let to = copy::plane(
        volume.dstMemoryType,
        volume.dstHost as u64,
        volume.dstDevice,
        volume.dstPitch,
        volume.dstXInBytes,
        volume.dstY,
        width,
    )?;
    Ok((
        block(&from, volume.srcHeight, volume.srcZ, volume)?,
        block(&to, volume.dstHeight, volume.dstZ, volume)?,
    ))
}

/// A part of a copy: to, from, and number of bytes.
type Part = fn(&Driver, (u64, Side), (u64, Side), u64) -> Answer;

fn each_row(driver: &Driver, volume: &CUDA_MEMCPY3D, part: Part) -> Answer {
    let (from, to) = blocks(volume)?;
    for z in 0..volume.Depth as u64 {
        for y in 0..volume.Height as u64 {
            let at = |block: &Block| block.address + z * block.slice + y * block.pitch;
            let (to, from) = ((at(&to), to.side), (at(&from), from.side));
            part(driver, to, from, volume.WidthInBytes as u64)?;
        }
    }
    Ok(())
}

/// Checks that all rows can be copied.
pub fn check(driver: &Driver, volume: &CUDA_MEMCPY3D) -> Answer {
    each_row(driver, volume, copy::verify_both)
}

/// Copies; returns the work for a card's engine, if it takes time.
pub fn run(driver: &Driver, card: usize, volume: &CUDA_MEMCPY3D) -> Answer<Option<Work>> {
    each_row(driver, volume, copy::transfer)?;
    let (from, to) = blocks(volume)?;
    let direction = copy::direction(driver, (to.address, to.side), (from.address, from.side));
    let bytes = (volume.WidthInBytes * volume.Height * volume.Depth) as u64;
    Ok(direction.and_then(|direction| copy::work_of(driver, card, direction, bytes)))
}

/// A line of bytes as a volume.
pub fn line(to: (u64, Side), from: (u64, Side), bytes: u64) -> CUDA_MEMCPY3D {
    let kind = |side| match side {
        Side::Host => CU_MEMORYTYPE_HOST,
        Side::Device => CU_MEMORYTYPE_DEVICE,
        Side::Unified => CU_MEMORYTYPE_UNIFIED,
    };
    let rows = CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: kind(from.1),
        srcHost: from.0 as *const c_void,
        srcDevice: from.0,
        srcArray: core::ptr::null_mut(),
        srcPitch: 0,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: kind(to.1),
        dstHost: to.0 as *mut c_void,
        dstDevice: to.0,
        dstArray: core::ptr::null_mut(),
        dstPitch: 0,
        WidthInBytes: bytes as usize,
        Height: 1,
    };
    slice(&rows)
}

/// Rows as a volume of one slice.
pub fn slice(rows: &CUDA_MEMCPY2D) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcXInBytes: rows.srcXInBytes,
        srcY: rows.srcY,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: rows.srcMemoryType,
        srcHost: rows.srcHost,
        srcDevice: rows.srcDevice,
        srcArray: rows.srcArray,
        reserved0: core::ptr::null_mut(),
        srcPitch: rows.srcPitch,
        srcHeight: rows.Height,
        dstXInBytes: rows.dstXInBytes,
        dstY: rows.dstY,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: rows.dstMemoryType,
        dstHost: rows.dstHost,
        dstDevice: rows.dstDevice,
        dstArray: rows.dstArray,
        reserved1: core::ptr::null_mut(),
        dstPitch: rows.dstPitch,
        dstHeight: rows.Height,
        WidthInBytes: rows.WidthInBytes,
        Height: rows.Height,
        Depth: 1,
    }
}
