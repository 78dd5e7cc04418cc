//! Streams: in-order queues of work.
//!
//! The meaning of NULL depends on the function's name (`_ptsz`), so every handle goes through
//! [`resolve`]. [`work`] has the rules between streams, and waits for their work.

pub mod event;
pub mod work;

use crate::Answer;
use crate::boundary::is_per_thread_default;
use crate::boundary::{Host, Out};
use crate::capture::{hooks, take};
use crate::context::{Context, current, green, is_green};
use crate::graph::task::Task;
use crate::memory::pool;
use crate::process::{Driver, driver, handle};
use crate::stream::work::{Lane, Work};
use core::ffi::c_void;
use driver_sys::cuda::*;
use std::cell::Cell;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// The NULL handle of the default stream.
pub const NULL_STREAM: CUstream = core::ptr::null_mut();
/// `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`, macros in the header.
const LEGACY: usize = 1;
const PER_THREAD: usize = 2;

/// A stream that the program has created.
#[derive(Default)]
pub struct Stream {
    /// 0 after the end of its green context.
    context: AtomicUsize,
    /// The handle of its green context, or 0.
    green: AtomicUsize,
    /// The most multiprocessors that its kernels take.
    sms: AtomicU32,
    id: AtomicU64,
    flags: AtomicU32,
    priority: AtomicI32,
    lane: Lane,
}

/// The queue of a stream handle, for the calling thread.
#[derive(Clone, Copy)]
pub enum Queue {
    Legacy(&'static Context, usize),
    Thread(&'static Context, usize, usize),
    Made(&'static Stream, &'static Context, usize),
}

thread_local! {
    static THREAD: Cell<usize> = const { Cell::new(usize::MAX) };
}

fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    if THREAD.get() == usize::MAX {
        THREAD.set(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    THREAD.get()
}

/// The queue of a handle.
pub fn resolve(stream: CUstream) -> Answer<(&'static Driver, Queue)> {
    let number = match stream as usize {
        0 if is_per_thread_default() => PER_THREAD,
        0 => LEGACY,
        number => number,
    };
    if number <= PER_THREAD {
        let (driver, context, own_handle) = current()?;
        if number == LEGACY && is_green(own_handle) {
            return green::default_queue();
        }
        let queue = if number == LEGACY {
            Queue::Legacy(context, own_handle)
        } else {
            Queue::Thread(context, own_handle, thread_number() % context.threads.len())
        };
        return Ok((driver, queue));
    }
    let driver = driver()?;
    let made = driver.streams.get(number).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    let own_handle = made.context.load(Ordering::Relaxed);
    let context = driver.contexts.get(own_handle).ok_or_else(|| made.orphaned())?;
    Ok((driver, Queue::Made(made, context, own_handle)))
}

/// Whether the program has created a stream.
pub fn is_made(stream: CUstream) -> bool {
    stream as usize > PER_THREAD
}

/// Refuses an invalid stream.
pub fn check(stream: CUstream) -> Answer {
    resolve(stream).map(drop)
}

impl Stream {
    /// Why a stream without a context cannot be used.
    #[cold]
    fn orphaned(&self) -> CUresult {
        match self.green.load(Ordering::Relaxed) {
            0 => CUDA_ERROR_CONTEXT_IS_DESTROYED,
            _ => CUDA_ERROR_STREAM_DETACHED,
        }
    }

    /// Its queue's number.
    fn number(&self) -> u64 {
        self.id.load(Ordering::Relaxed) << 16
    }
}

impl Queue {
    pub fn context(self) -> (&'static Context, usize) {
        match self {
            Self::Legacy(context, own)
            | Self::Thread(context, own, _)
            | Self::Made(_, context, own) => (context, own),
        }
    }

    pub fn lane(self) -> &'static Lane {
        match self {
            Self::Legacy(context, _) => &context.legacy,
            Self::Thread(context, _, number) => &context.threads[number],
            Self::Made(stream, ..) => &stream.lane,
        }
    }

    /// Whether it and the default stream wait for each other.
    pub fn is_blocking(self) -> bool {
        match self {
            Self::Legacy(..) => false,
            Self::Thread(..) => true,
            Self::Made(stream, ..) => {
                stream.flags.load(Ordering::Relaxed) & CU_STREAM_NON_BLOCKING == 0
            }
        }
    }

    /// The handle of its green context, or 0.
    fn green(self, driver: &Driver) -> usize {
        match self {
            Self::Made(stream, ..) => stream.green.load(Ordering::Relaxed),
            _ => green::current_handle(driver),
        }
    }

    /// The most multiprocessors that its kernels take.
    pub fn sms(self) -> u32 {
        match self {
            Self::Made(stream, ..) => stream.sms.load(Ordering::Relaxed),
            _ => u32::MAX,
        }
    }

    /// A number that no other queue has.
    pub fn id(self) -> u64 {
        match self {
            // Contexts and streams share one sequence of ids; a context's default streams use the
            // context's id.
            Self::Legacy(context, _) => context.id.load(Ordering::Relaxed) << 16,
            Self::Thread(context, _, number) => {
                context.id.load(Ordering::Relaxed) << 16 | (number as u64 + 1)
            }
            Self::Made(stream, ..) => stream.number(),
        }
    }
}

/// Waits for the default stream, as synchronous calls do.
pub fn wait_for_default() -> Answer {
    let (driver, queue) = resolve(NULL_STREAM)?;
    hooks::before_wait(driver, queue)?;
    queue.wait(driver);
    Ok(())
}

/// `cuStreamCreate`
pub fn create(stream: Out<CUstream>, flags: u32) -> Answer {
    create_with_priority(stream, flags, 0)
}

/// `cuStreamCreateWithPriority`
pub fn create_with_priority(stream: Out<CUstream>, flags: u32, priority: i32) -> Answer {
    let (driver, _, context) = current()?;
    if stream.is_null() || flags & !CU_STREAM_NON_BLOCKING != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let owner = green::current_handle(driver);
    let sms = green::of_handle(driver, owner).map_or(u32::MAX, |green| green.sms.count);
    let created = insert(driver, context, (owner, sms), flags, priority);
    let created = created.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    stream.put(handle(created))
}

/// A new stream, of a green context (0: none) whose kernels take so many multiprocessors at most.
pub fn insert(
    driver: &Driver,
    context: usize,
    (green, sms): (usize, u32),
    flags: u32,
    priority: i32,
) -> Option<usize> {
    driver.streams.insert(|stream, _| {
        stream.context.store(context, Ordering::Relaxed);
        stream.green.store(green, Ordering::Relaxed);
        stream.sms.store(sms, Ordering::Relaxed);
        stream.id.store(driver.new_id(), Ordering::Relaxed);
        stream.flags.store(flags, Ordering::Relaxed);
        stream.priority.store(priority.clamp(-5, 0), Ordering::Relaxed);
        stream.lane.reset();
    })
}

/// The streams of a green context.
pub fn of_green(driver: &Driver, green: usize) -> impl Iterator<Item = (usize, &Stream)> {
    let streams = driver.streams.live();
    streams.filter(move |(_, stream)| stream.green.load(Ordering::Relaxed) == green)
}

/// Ends a stream whose green context ends. Its pending work is still done.
pub fn detach(driver: &Driver, stream: usize) {
    let Some(made) = driver.streams.get(stream) else { return };
    if let Some(context) = driver.contexts.get(made.context.swap(0, Ordering::Relaxed)) {
        work::end(driver, context, &made.lane);
    }
    hooks::forget_stream(driver, made.number());
}

/// `cuStreamDestroy`
pub fn destroy(stream: CUstream) -> Answer {
    let driver = driver()?;
    // Default streams and invalid handles cannot be destroyed.
    let made = driver.streams.get(stream as usize).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    if let Some(context) = driver.contexts.get(made.context.load(Ordering::Relaxed)) {
        // Its pending work is still done.
        work::end(driver, context, &made.lane);
    }
    hooks::forget_stream(driver, made.number());
    if driver.streams.remove(stream as usize) { Ok(()) } else { Err(CUDA_ERROR_INVALID_HANDLE) }
}

/// Destroys the streams of a context.
pub fn destroy_all(driver: &Driver, context: &Context, its_handle: usize) {
    for (own_handle, stream) in driver.streams.live() {
        if stream.context.load(Ordering::Relaxed) == its_handle {
            work::end(driver, context, &stream.lane);
            driver.streams.remove(own_handle);
        }
    }
}

/// `cuStreamQuery`
pub fn query(stream: CUstream) -> Answer {
    let (driver, queue) = resolve(stream)?;
    hooks::before_wait(driver, queue)?;
    if !queue.is_done(driver) {
        return Err(CUDA_ERROR_NOT_READY);
    }
    pool::release_spare(driver);
    Ok(())
}

/// `cuStreamSynchronize`
pub fn synchronize(stream: CUstream) -> Answer {
    let (driver, queue) = resolve(stream)?;
    hooks::before_wait(driver, queue)?;
    queue.wait(driver);
    pool::release_spare(driver);
    Ok(())
}

/// `cuStreamWaitEvent`
pub fn wait_event(stream: CUstream, event: CUevent, flags: u32) -> Answer {
    let (driver, queue) = resolve(stream)?;
    event::refuse_flags(flags)?;
    if hooks::wait_event(driver, queue, event)? {
        return Ok(());
    }
    let recorded = event::mark(driver, event)?;
    if !recorded.is_none() {
        queue.submit(driver, Work::Wait(recorded));
    }
    Ok(())
}

/// `cuStreamGetPriority`
pub fn get_priority(stream: CUstream, priority: Out<i32>) -> Answer {
    priority.put(match resolve(stream)?.1 {
        Queue::Made(made, ..) => made.priority.load(Ordering::Relaxed),
        _ => 0,
    })
}

/// `cuStreamGetFlags`
pub fn get_flags(stream: CUstream, flags: Out<u32>) -> Answer {
    flags.put(match resolve(stream)?.1 {
        Queue::Made(made, ..) => made.flags.load(Ordering::Relaxed),
        _ => CU_STREAM_DEFAULT,
    })
}

/// `cuStreamGetId`
pub fn get_id(stream: CUstream, id: Out<u64>) -> Answer {
    id.put(resolve(stream)?.1.id())
}

/// `cuStreamGetCtx`
pub fn get_context(stream: CUstream, context: Out<CUcontext>) -> Answer {
    let (driver, queue) = resolve(stream)?;
    let green = green::of_handle(driver, queue.green(driver));
    context.put(handle(green.map_or(queue.context().1, |green| green.context)))
}

/// `cuStreamAddCallback`: calls it at once.
pub fn add_callback(
    stream: CUstream,
    callback: CUstreamCallback,
    data: Host,
    flags: u32,
) -> Answer {
    let (driver, queue) = resolve(stream)?;
    let callback = callback.filter(|_| flags == 0).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    hooks::refuse(driver, queue)?;
    // SAFETY: the program's own function and argument.
    unsafe { callback(stream, CUDA_SUCCESS, data.0 as *mut c_void) };
    Ok(())
}

/// `cuLaunchHostFunc`
pub fn launch_host(stream: CUstream, function: CUhostFn, data: Host) -> Answer {
    let (driver, queue) = resolve(stream)?;
    let call = CUDA_HOST_NODE_PARAMS { r#fn: function, userData: data.0 as *mut c_void };
    let function = function.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if take::work(driver, queue, || Ok(Task::Host(call)))? {
        return Ok(());
    }
    // SAFETY: the program's own function and argument.
    unsafe { function(data.0 as *mut c_void) };
    Ok(())
}

/// `cuLaunchHostFunc_v2`
pub fn launch_host_v2(stream: CUstream, function: CUhostFn, data: Host, _mode: u32) -> Answer {
    launch_host(stream, function, data)
}
