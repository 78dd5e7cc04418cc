//! Copies. Their bytes move at once, in the order of the calls; a synchronous copy first waits for
//! the work before it. Their time on a copy engine is in stream order.
//!
//! Device pointers are addresses of this process, so copying bytes is simple. The difficult part is
//! which pointers are refused.

use crate::Answer;
use crate::boundary::Host;
use crate::capture::take;
use crate::context::{current, named};
use crate::memory::mapped::Place;
use crate::memory::{array, check, forms};
use crate::process::{Driver, lock};
use crate::stream::work::{Direction, Work};
use crate::stream::{self, NULL_STREAM, Queue};
use driver_sys::cuda::*;

/// The kind of an address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Any memory of the process.
    Host,
    /// An allocation, or pinned host memory, which has a device address too.
    Device,
    /// Any of these.
    Unified,
    /// The elements of an array.
    Array,
}

fn verify(driver: &Driver, address: u64, bytes: u64, side: Side, is_written: bool) -> Answer {
    if side == Side::Host {
        return if address == 0 { Err(CUDA_ERROR_INVALID_VALUE) } else { Ok(()) };
    }
    if side == Side::Array {
        return array::check(driver, address, bytes, is_written);
    }
    let is_device = driver.backing.locate(address).is_some() || driver.mapped.contains(address);
    if !is_device && (side == Side::Unified || lock(&driver.host).find(address, bytes).is_some()) {
        return if address == 0 { Err(CUDA_ERROR_INVALID_VALUE) } else { Ok(()) };
    }
    check(driver, address, bytes, is_written)
}

/// Checks both ranges of a copy.
pub fn verify_both(driver: &Driver, to: (u64, Side), from: (u64, Side), bytes: u64) -> Answer {
    verify(driver, from.0, bytes, from.1, false)?;
    verify(driver, to.0, bytes, to.1, true)
}

/// Copies bytes.
pub fn transfer(driver: &Driver, to: (u64, Side), from: (u64, Side), bytes: u64) -> Answer {
    if bytes == 0 {
        return Ok(());
    }
    verify_both(driver, to, from, bytes)?;
    let _bytes_stay = driver.shared_runs.in_use.read();
    // SAFETY: device ranges were checked; host ranges are the caller's promise, as with any driver.
    // The ranges may overlap.
    unsafe { core::ptr::copy(from.0 as *const u8, to.0 as *mut u8, bytes as usize) };
    Ok(())
}

/// The direction of a copy between host and card; `None` for a copy within either.
pub fn direction(driver: &Driver, to: (u64, Side), from: (u64, Side)) -> Option<Direction> {
    let is_mapped = |address| {
        driver.mapped.find(address).is_some_and(|found| matches!(found.place, Place::Device(_)))
    };
    let is_on_card = |(address, side)| {
        side != Side::Host && (driver.backing.locate(address).is_some() || is_mapped(address))
    };
    match (is_on_card(to), is_on_card(from)) {
        (true, false) => Some(Direction::ToDevice),
        (false, true) => Some(Direction::ToHost),
        _ => None,
    }
}

/// A shorter copy takes no time, so that small copies stay cheap.
const LEAST_NS: u64 = 1000;

/// The engine's work for a copy between host and card; `None`: it takes no time.
pub fn work_of(driver: &Driver, card: usize, direction: Direction, bytes: u64) -> Option<Work> {
    // Bytes in a nanosecond are gigabytes in a second.
    let ns = bytes / driver.engine.cards()[card].profile.copy_gb_per_s.max(1);
    (ns >= LEAST_NS).then_some(Work::Copy { direction, ns })
}

/// Submits the time of a copy to a stream; `true` when it takes any.
pub fn take_time(driver: &Driver, queue: Queue, direction: Direction, bytes: u64) -> bool {
    let work = work_of(driver, queue.context().0.card(), direction, bytes);
    work.is_some_and(|work| !queue.submit(driver, work).is_none())
}

fn synchronous(to: (u64, Side), from: (u64, Side), bytes: u64) -> Answer {
    let (driver, ..) = current()?;
    stream::wait_for_default()?;
    transfer(driver, to, from, bytes)?;
    spend(driver, direction(driver, to, from), bytes)
}

/// Waits as long as a copy on the default stream takes.
fn spend(driver: &Driver, direction: Option<Direction>, bytes: u64) -> Answer {
    let (_, queue) = stream::resolve(NULL_STREAM)?;
    if direction.is_some_and(|direction| take_time(driver, queue, direction, bytes)) {
        queue.wait(driver);
    }
    Ok(())
}

fn on_stream(to: (u64, Side), from: (u64, Side), bytes: u64, on: CUstream) -> Answer {
    current()?;
    let (driver, queue) = stream::resolve(on)?;
    if bytes > 0 && take::copy(driver, queue, || forms::line(to.into(), from.into(), bytes))? {
        return Ok(());
    }
    transfer(driver, to, from, bytes)?;
    if let Some(direction) = direction(driver, to, from) {
        take_time(driver, queue, direction, bytes);
    }
    Ok(())
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
