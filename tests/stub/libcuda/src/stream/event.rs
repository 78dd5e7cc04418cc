//! Events: positions in streams, and the instants at which the engine reached them.

use crate::boundary::Out;
use crate::capture::hooks;
use crate::context::current;
use crate::memory::pool;
use crate::process::{Driver, driver, handle};
use crate::stream::work::{self, Mark, Work};
use crate::{Answer, stream};
use driver_sys::cuda::*;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use stub_engine::time::{Progress, Query};

/// An event.
#[derive(Default)]
pub struct Event {
    context: AtomicUsize,
    flags: AtomicU32,
    /// [`Recorded`], as its bits.
    recorded: AtomicU64,
}

/// The last record of an event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Recorded {
    Never,
    /// In a stream that reached it at this instant; 0 for an event without timing.
    Reached(u64),
    /// Behind work that takes time.
    Pending(Mark),
}

impl Recorded {
    /// No instant is so late, and no lane's number is so large.
    const REACHED: u64 = 1 << 63;

    /// One word, because the record of an event must take nanoseconds only.
    fn bits(self) -> u64 {
        match self {
            Self::Never => 0,
            Self::Reached(at) => Self::REACHED | at,
            Self::Pending(mark) => mark.bits(),
        }
    }

    fn from_bits(bits: u64) -> Self {
        match bits {
            0 => Self::Never,
            _ if bits & Self::REACHED != 0 => Self::Reached(bits & !Self::REACHED),
            _ => Self::Pending(Mark::from_bits(bits)),
        }
    }
}

impl Event {
    fn recorded(&self) -> Recorded {
        Recorded::from_bits(self.recorded.load(Ordering::Acquire))
    }

    fn record(&self, recorded: Recorded) {
        self.recorded.store(recorded.bits(), Ordering::Release);
    }

    fn has_timing(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & CU_EVENT_DISABLE_TIMING == 0
    }
}

fn find(driver: &'static Driver, event: CUevent) -> Answer<&'static Event> {
    driver.events.get(event as usize).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// The mark that an event waits for; [`Mark::NONE`] when there is nothing to wait for.
pub fn mark(driver: &'static Driver, event: CUevent) -> Answer<Mark> {
    Ok(match find(driver, event)?.recorded() {
        Recorded::Pending(mark) => mark,
        Recorded::Never | Recorded::Reached(_) => Mark::NONE,
    })
}

/// An event's number for the engine: its index in the slab.
fn number(driver: &Driver, event: CUevent) -> u32 {
    driver.events.index(event as usize).unwrap_or_default() as u32
}

/// The last record of an event, with its instant if the engine has reached it.
fn state(driver: &'static Driver, event: CUevent) -> Answer<Recorded> {
    let found = find(driver, event)?;
    let known = found.recorded();
    let Recorded::Pending(mark) = known else { return Ok(known) };
    let event = Some(number(driver, event));
    let status = work::status(driver, &Query { mark, event, has_forecast: false });
    let Progress::Done(at) = status.progress else { return Ok(known) };
    // Without an instant, it was recorded again meanwhile, or the server has ended.
    let reached = Recorded::Reached(at.unwrap_or_else(|| driver.clock.now()));
    let (from, to) = (known.bits(), reached.bits());
    // If this fails, it was recorded again, and the new record counts for the next query.
    let _ = found.recorded.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
    Ok(reached)
}

/// `cuEventCreate`
pub fn create(event: Out<CUevent>, flags: u32) -> Answer {
    let (driver, _, context) = current()?;
    let known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    let needs_no_timing = flags & CU_EVENT_INTERPROCESS != 0;
    let has_timing = flags & CU_EVENT_DISABLE_TIMING == 0;
    if event.is_null() || flags & !known != 0 || needs_no_timing && has_timing {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let created = driver.events.insert(|event, _| {
        event.context.store(context, Ordering::Relaxed);
        event.flags.store(flags, Ordering::Relaxed);
        event.record(Recorded::Never);
    });
    event.put(handle(created.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?))
}

/// `cuEventDestroy`
pub fn destroy(event: CUevent) -> Answer {
    let driver = driver()?;
    let removed = driver.events.remove(event as usize);
    hooks::forget_event(driver, event as usize);
    if removed { Ok(()) } else { Err(CUDA_ERROR_INVALID_HANDLE) }
}

/// Destroys the events of a context.
pub fn destroy_all(driver: &Driver, context: usize) {
    for (own_handle, event) in driver.events.live() {
        if event.context.load(Ordering::Relaxed) == context {
            driver.events.remove(own_handle);
            hooks::forget_event(driver, own_handle);
        }
    }
}

/// `cuEventRecord`
pub fn record(event: CUevent, on: CUstream) -> Answer {
    record_with_flags(event, on, 0)
}

/// Refuses all flags. The known one (`EXTERNAL`) makes a node, which the stub does not have.
pub fn refuse_flags(flags: u32) -> Answer {
    match flags {
        0 => Ok(()),
        CU_EVENT_RECORD_EXTERNAL => Err(CUDA_ERROR_NOT_SUPPORTED),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// `cuEventRecordWithFlags`
pub fn record_with_flags(event: CUevent, on: CUstream, flags: u32) -> Answer {
    let driver = driver()?;
    refuse_flags(flags)?;
    let found = find(driver, event)?;
    let (_, queue) = stream::resolve(on)?;
    if found.context.load(Ordering::Relaxed) != queue.context().1 {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    if hooks::record(driver, queue, event)? {
        return Ok(());
    }
    let recorded = if queue.is_timed() {
        let event = number(driver, event);
        Recorded::Pending(queue.submit(driver, Work::Record { event }))
    } else {
        // Reading a clock would take half the time of this call.
        Recorded::Reached(if found.has_timing() { driver.clock.now() } else { 0 })
    };
    found.record(recorded);
    Ok(())
}

/// Whether an event was ever recorded outside captures.
pub fn was_recorded(driver: &'static Driver, event: CUevent) -> Answer<bool> {
    Ok(find(driver, event)?.recorded() != Recorded::Never)
}

/// `cuEventQuery`
pub fn query(event: CUevent) -> Answer {
    let driver = driver()?;
    find(driver, event)?;
    hooks::before_look_at(driver, event)?;
    if let Recorded::Pending(_) = state(driver, event)? {
        return Err(CUDA_ERROR_NOT_READY);
    }
    pool::release_spare(driver);
    Ok(())
}

/// `cuEventSynchronize`
pub fn synchronize(event: CUevent) -> Answer {
    let driver = driver()?;
    let mark = mark(driver, event)?;
    hooks::before_look_at(driver, event)?;
    work::wait(driver, mark);
    pool::release_spare(driver);
    Ok(())
}

/// `cuEventElapsedTime`
pub fn elapsed_time(milliseconds: Out<f32>, start: CUevent, end: CUevent) -> Answer {
    let driver = driver()?;
    if milliseconds.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    hooks::check_event(driver, start)?;
    hooks::check_event(driver, end)?;
    let states = [state(driver, start), state(driver, end)];
    let mut instants = [None; 2];
    for ((instant, state), event) in instants.iter_mut().zip(states).zip([start, end]) {
        let has_timing = find(driver, event)?.has_timing();
        *instant = match state? {
            _ if !has_timing => return Err(CUDA_ERROR_INVALID_HANDLE),
            Recorded::Never => return Err(CUDA_ERROR_INVALID_HANDLE),
            Recorded::Reached(at) => Some(at),
            Recorded::Pending(_) => None,
        };
    }
    let [Some(start), Some(end)] = instants else { return Err(CUDA_ERROR_NOT_READY) };
    let nanoseconds = end.cast_signed() - start.cast_signed();
    milliseconds.put((nanoseconds as f64 / 1e6) as f32)
}
