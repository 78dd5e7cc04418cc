//! Copies. They happen at once, in the order they are asked for; a synchronous one first waits for
//! the work it comes behind.
//!
//! Device pointers are addresses of this process, so a copy is a copy; what has to be right is which
//! pointers are refused.

use crate::Answer;
use crate::arguments::{Host, In};
use crate::context::{current, named};
use crate::memory::check;
use crate::process::{Driver, lock};
use crate::stream::{self, NULL_STREAM};
use driver_sys::cuda::*;

/// Whose address it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    /// Any memory of the process.
    Host,
    /// An allocation, or pinned host memory, which has a device address too.
    Device,
    /// Whatever it turns out to be.
    Unified,
}

fn verify(driver: &Driver, address: u64, bytes: u64, side: Side, is_written: bool) -> Answer {
    if side == Side::Host {
        return if address == 0 { Err(CUDA_ERROR_INVALID_VALUE) } else { Ok(()) };
    }
    let is_device = driver.backing.locate(address).is_some();
    if !is_device && (side == Side::Unified || lock(&driver.host).find(address, bytes).is_some()) {
        return if address == 0 { Err(CUDA_ERROR_INVALID_VALUE) } else { Ok(()) };
    }
    check(driver, address, bytes, is_written)
}

fn transfer(driver: &Driver, to: (u64, Side), from: (u64, Side), bytes: u64) -> Answer {
    if bytes == 0 {
        return Ok(());
    }
    verify(driver, from.0, bytes, from.1, false)?;
    verify(driver, to.0, bytes, to.1, true)?;
    // SAFETY: device ranges were checked; host ranges are the caller's promise, as with any driver.
    // The ranges may overlap.
    unsafe { core::ptr::copy(from.0 as *const u8, to.0 as *mut u8, bytes as usize) };
    Ok(())
}

fn synchronous(to: (u64, Side), from: (u64, Side), bytes: u64) -> Answer {
    let (driver, ..) = current()?;
    stream::wait_for_default()?;
    transfer(driver, to, from, bytes)
}

fn on_stream(to: (u64, Side), from: (u64, Side), bytes: u64, on: CUstream) -> Answer {
    let (driver, ..) = current()?;
    stream::check(on)?;
    transfer(driver, to, from, bytes)
}

/// `cuMemcpyHtoD`
pub fn to_device(to: u64, from: Host, bytes: u64) -> Answer {
    synchronous((to, Side::Device), (from.0, Side::Host), bytes)
}

/// `cuMemcpyDtoH`
pub fn to_host(to: Host, from: u64, bytes: u64) -> Answer {
    synchronous((to.0, Side::Host), (from, Side::Device), bytes)
}

/// `cuMemcpyDtoD`
pub fn on_device(to: u64, from: u64, bytes: u64) -> Answer {
    synchronous((to, Side::Device), (from, Side::Device), bytes)
}

/// `cuMemcpy`
pub fn unified(to: u64, from: u64, bytes: u64) -> Answer {
    synchronous((to, Side::Unified), (from, Side::Unified), bytes)
}

/// `cuMemcpyHtoDAsync`
pub fn to_device_async(to: u64, from: Host, bytes: u64, on: CUstream) -> Answer {
    on_stream((to, Side::Device), (from.0, Side::Host), bytes, on)
}

/// `cuMemcpyDtoHAsync`
pub fn to_host_async(to: Host, from: u64, bytes: u64, on: CUstream) -> Answer {
    on_stream((to.0, Side::Host), (from, Side::Device), bytes, on)
}

/// `cuMemcpyDtoDAsync`
pub fn on_device_async(to: u64, from: u64, bytes: u64, on: CUstream) -> Answer {
    on_stream((to, Side::Device), (from, Side::Device), bytes, on)
}

/// `cuMemcpyAsync`
pub fn unified_async(to: u64, from: u64, bytes: u64, on: CUstream) -> Answer {
    on_stream((to, Side::Unified), (from, Side::Unified), bytes, on)
}

/// `cuMemcpyPeer`
pub fn peer(
    to: u64,
    to_context: CUcontext,
    from: u64,
    from_context: CUcontext,
    bytes: u64,
) -> Answer {
    peer_async(to, to_context, from, from_context, bytes, NULL_STREAM)
}

/// `cuMemcpyPeerAsync`
pub fn peer_async(
    to: u64,
    to_context: CUcontext,
    from: u64,
    from_context: CUcontext,
    bytes: u64,
    on: CUstream,
) -> Answer {
    current()?;
    named(to_context)?;
    named(from_context)?;
    on_device_async(to, from, bytes, on)
}

/// One side of a copy of rows.
struct Plane {
    address: u64,
    side: Side,
    pitch: u64,
}

fn plane(
    kind: CUmemorytype,
    host: u64,
    device: u64,
    pitch: usize,
    x: usize,
    y: usize,
    width: usize,
) -> Answer<Plane> {
    let (address, side) = match kind {
        CU_MEMORYTYPE_HOST => (host, Side::Host),
        CU_MEMORYTYPE_DEVICE => (device, Side::Device),
        CU_MEMORYTYPE_UNIFIED => (device, Side::Unified),
        CU_MEMORYTYPE_ARRAY => return Err(CUDA_ERROR_NOT_SUPPORTED),
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    // A pitch of 0 says that rows follow each other; a smaller one than a row makes no sense.
    let pitch = if pitch == 0 { x + width } else { pitch };
    if address == 0 || pitch < x + width {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(Plane { address: address + (y * pitch + x) as u64, side, pitch: pitch as u64 })
}

fn transfer_rows(driver: &Driver, copy: &CUDA_MEMCPY2D) -> Answer {
    let width = copy.WidthInBytes;
    let from = plane(
        copy.srcMemoryType,
        copy.srcHost as u64,
        copy.srcDevice,
        copy.srcPitch,
        copy.srcXInBytes,
        copy.srcY,
        width,
    )?;
    let to = plane(
        copy.dstMemoryType,
        copy.dstHost as u64,
        copy.dstDevice,
        copy.dstPitch,
        copy.dstXInBytes,
        copy.dstY,
        width,
    )?;
    for row in 0..copy.Height as u64 {
        transfer(
            driver,
            (to.address + row * to.pitch, to.side),
            (from.address + row * from.pitch, from.side),
            width as u64,
        )?;
    }
    Ok(())
}

/// `cuMemcpy2D`
pub fn rows(copy: In<CUDA_MEMCPY2D>) -> Answer {
    let (driver, ..) = current()?;
    let copy = copy.get()?;
    stream::wait_for_default()?;
    transfer_rows(driver, &copy)
}

/// `cuMemcpy2DAsync`
pub fn rows_async(copy: In<CUDA_MEMCPY2D>, on: CUstream) -> Answer {
    let (driver, ..) = current()?;
    let copy = copy.get()?;
    stream::check(on)?;
    transfer_rows(driver, &copy)
}
