//! Copies of rows and slices, between host, device and unified memory and arrays.

use crate::Answer;
use crate::boundary::In;
use crate::capture::take;
use crate::context::current;
use crate::memory::array;
use crate::memory::copy::{self, Side};
use crate::memory::forms::Form;
use crate::process::Driver;
use crate::stream::work::Work;
use crate::stream::{self, NULL_STREAM};
use driver_sys::cuda::*;

/// One side of a copy, as the program describes it.
struct Corner {
    kind: CUmemorytype,
    host: u64,
    device: u64,
    array: CUarray,
    x: usize,
    y: usize,
    z: usize,
    pitch: usize,
    height: usize,
}

/// One side of a copy of slices: the start of its first row, and the distances of rows and slices.
#[derive(Clone, Copy)]
struct Block {
    address: u64,
    side: Side,
    pitch: u64,
    slice: u64,
    /// Bytes of an element; 0 outside arrays.
    element: u64,
}

fn source(volume: &CUDA_MEMCPY3D) -> Corner {
    Corner {
        kind: volume.srcMemoryType,
        host: volume.srcHost as u64,
        device: volume.srcDevice,
        array: volume.srcArray,
        x: volume.srcXInBytes,
        y: volume.srcY,
        z: volume.srcZ,
        pitch: volume.srcPitch,
        height: volume.srcHeight,
    }
}

fn destination(volume: &CUDA_MEMCPY3D) -> Corner {
    Corner {
        kind: volume.dstMemoryType,
        host: volume.dstHost as u64,
        device: volume.dstDevice,
        array: volume.dstArray,
        x: volume.dstXInBytes,
        y: volume.dstY,
        z: volume.dstZ,
        pitch: volume.dstPitch,
        height: volume.dstHeight,
    }
}

/// A sum of sizes that a program has passed. The largest one stands for all that are too large.
fn end(start: usize, length: usize) -> u64 {
    start.saturating_add(length) as u64
}

impl Corner {
    fn block(&self, driver: &Driver, volume: &CUDA_MEMCPY3D) -> Answer<Block> {
        let (address, side) = match self.kind {
            CU_MEMORYTYPE_HOST => (self.host, Side::Host),
            CU_MEMORYTYPE_DEVICE => (self.device, Side::Device),
            CU_MEMORYTYPE_UNIFIED => (self.device, Side::Unified),
            CU_MEMORYTYPE_ARRAY => return self.block_of_array(driver, volume),
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        // A pitch of 0 means that rows are adjacent; a pitch smaller than a row is invalid.
        let row = end(self.x, volume.WidthInBytes);
        let pitch = if self.pitch == 0 { row } else { self.pitch as u64 };
        // Slices without a height are adjacent.
        let height = if self.height == 0 { volume.Height } else { self.height };
        if address == 0 || pitch < row || height < volume.Height && volume.Depth > 1 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let slice = pitch.checked_mul(height as u64).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        self.at(address, Block { address, side, pitch, slice, element: 0 })
    }

    /// An array has its own distances, and all of the copy must be in it.
    fn block_of_array(&self, driver: &Driver, volume: &CUDA_MEMCPY3D) -> Answer<Block> {
        let found = array::find(driver, self.array).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let shape = found.shape;
        let element = shape.element_bytes()?;
        let (pitch, rows, slices) = (shape.row_bytes()?, shape.rows(), shape.slices());
        let is_inside = end(self.x, volume.WidthInBytes) <= pitch
            && end(self.y, volume.Height) <= rows
            && end(self.z, volume.Depth) <= slices;
        let has_whole_elements = (self.x as u64).is_multiple_of(element)
            && (volume.WidthInBytes as u64).is_multiple_of(element);
        if !is_inside || !has_whole_elements {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let (address, slice) = (found.address, pitch * rows);
        self.at(address, Block { address, side: Side::Array, pitch, slice, element })
    }

    /// Moves a block's start from the first byte of the memory to the first byte of the copy.
    fn at(&self, base: u64, block: Block) -> Answer<Block> {
        let distance = |count: usize, step: u64| (count as u64).checked_mul(step);
        let address = distance(self.z, block.slice)
            .and_then(|slices| slices.checked_add(distance(self.y, block.pitch)?))
            .and_then(|rows| rows.checked_add(self.x as u64)?.checked_add(base))
            .ok_or(CUDA_ERROR_INVALID_VALUE)?;
        Ok(Block { address, ..block })
    }
}

/// The blocks to copy from and to.
fn blocks(driver: &Driver, volume: &CUDA_MEMCPY3D) -> Answer<(Block, Block)> {
    let from = source(volume).block(driver, volume)?;
    let to = destination(volume).block(driver, volume)?;
    let are_arrays = from.element > 0 && to.element > 0;
    // Levels of detail must be 0: a mipmapped array's levels are arrays.
    if are_arrays && from.element != to.element || volume.srcLOD != 0 || volume.dstLOD != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok((from, to))
}

fn is_empty(volume: &CUDA_MEMCPY3D) -> bool {
    volume.WidthInBytes == 0 || volume.Height == 0 || volume.Depth == 0
}

/// A part of a copy: to, from, and number of bytes.
type Part = fn(&Driver, (u64, Side), (u64, Side), u64) -> Answer;

fn each_row(driver: &Driver, volume: &CUDA_MEMCPY3D, part: Part) -> Answer<(Block, Block)> {
    let (from, to) = blocks(driver, volume)?;
    if is_empty(volume) {
        return Ok((from, to));
    }
    for z in 0..volume.Depth as u64 {
        for y in 0..volume.Height as u64 {
            // Only a host address can wrap around, and the program vouches for those.
            let at = |block: Block| {
                let distance =
                    z.wrapping_mul(block.slice).wrapping_add(y.wrapping_mul(block.pitch));
                (block.address.wrapping_add(distance), block.side)
            };
            part(driver, at(to), at(from), volume.WidthInBytes as u64)?;
        }
    }
    Ok((from, to))
}

/// Checks that all rows can be copied.
pub fn check(driver: &Driver, volume: &CUDA_MEMCPY3D) -> Answer {
    each_row(driver, volume, copy::verify_both).map(drop)
}

/// Copies; returns the work for a card's engine, if it takes time.
pub fn run(driver: &Driver, card: usize, volume: &CUDA_MEMCPY3D) -> Answer<Option<Work>> {
    let (from, to) = each_row(driver, volume, copy::transfer)?;
    let direction = copy::direction(driver, (to.address, to.side), (from.address, from.side));
    let bytes = [volume.WidthInBytes, volume.Height, volume.Depth]
        .into_iter()
        .fold(1, |product: u64, extent| product.saturating_mul(extent as u64));
    Ok(direction.and_then(|direction| copy::work_of(driver, card, direction, bytes)))
}

/// Copies on the default stream, and waits as long as that takes.
pub fn copy_now(volume: &CUDA_MEMCPY3D) -> Answer {
    stream::wait_for_default()?;
    let (driver, queue) = stream::resolve(NULL_STREAM)?;
    if let Some(work) = run(driver, queue.context().0.card(), volume)? {
        queue.submit(driver, work);
        queue.wait(driver);
    }
    Ok(())
}

/// Copies in the order of a stream.
pub fn copy_on(volume: CUDA_MEMCPY3D, on: CUstream) -> Answer {
    let (driver, queue) = stream::resolve(on)?;
    if !is_empty(&volume) && take::copy(driver, queue, || volume)? {
        return Ok(());
    }
    if let Some(work) = run(driver, queue.context().0.card(), &volume)? {
        queue.submit(driver, work);
    }
    Ok(())
}

/// `cuMemcpy2D`, `cuMemcpy2DUnaligned`, `cuMemcpy3D`, `cuMemcpy3DPeer`
pub fn now<F: Form>(copy: In<F>) -> Answer {
    current()?;
    copy_now(&copy.get()?.slices()?)
}

/// `cuMemcpy2DAsync`, `cuMemcpy3DAsync`, `cuMemcpy3DPeerAsync`
pub fn on_stream<F: Form>(copy: In<F>, on: CUstream) -> Answer {
    current()?;
    copy_on(copy.get()?.slices()?, on)
}
