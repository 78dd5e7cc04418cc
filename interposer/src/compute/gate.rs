//! The gate: where a launch that has no ticket comes by.
//!
//! Most launches do not; see [`super::ticket`]. Whatever goes wrong here, the launch is made: a limiter
//! that fails must not stop a program.

use std::ptr::null_mut;

use driver_sys::cuda::{CUDA_SUCCESS, CUcontext, CUdevice, CUresult, CUstream};

use super::batch::{self, Next, Stream};
use super::capture::{self, Capturing};
use super::card::{self, CardLimiter, Passed};
use super::events::in_context;
use super::shape::{Launch, Shape};
use super::{door, meter, ticket};
use crate::arch::Frame;
use crate::boundary::guard;
use crate::driver;
use crate::init;
use crate::slice::{self, Limited, Slice};
use crate::table::{self, real};

/// Called from the launch wrappers with the row's index and the launch's arguments: the address to
/// jump to.
pub(crate) extern "C" fn launch(index: usize, frame: *const Frame) -> usize {
    let next = guard(|| {
        if door::is_unset() {
            door::set();
        }
        if door::is_open() || init::inherited() {
            return Next::Launch;
        }
        // SAFETY: the wrapper's own frame, which outlives this call.
        let frame = unsafe { frame.as_ref() };
        table::shape_of(index).zip(frame).map_or(Next::Launch, |(shape, frame)| pass(shape, frame))
    });
    match next {
        Some(Next::LaunchAndClose) => table::through::address_of(index),
        _ => None,
    }
    .unwrap_or_else(|| driver::jump_target(index))
}

/// Called from the wrappers of what takes a stream's time beside kernels: the address to jump to.
pub(crate) extern "C" fn beside(index: usize, frame: *const Frame) -> usize {
    guard(|| {
        if door::is_unset() {
            door::set();
        }
        if door::is_open() || init::inherited() || !meter::has_started() {
            return;
        }
        // SAFETY: as in `launch`.
        let frame = unsafe { frame.as_ref() };
        if let Some(((place, per_thread), frame)) = table::stream_of(index).zip(frame) {
            let handle = frame.argument(place);
            let is_threads_own = Launch::is_threads_own(handle, per_thread);
            let is_there =
                |open: Stream| (open.handle, open.is_threads_own) == (handle, is_threads_own);
            batch::with_mine(|mine| capture::relaxed(|| mine.close_all(is_there)));
        }
    });
    driver::jump_target(index)
}

/// The driver has taken the launch that was to be the last of its batch. Nothing unwinds out of here.
pub(crate) fn launched() {
    guard(|| {
        batch::with_mine(|mine| capture::relaxed(|| mine.launched()));
    });
}

/// The calling thread has another current context, in which the same handles mean other streams.
pub(crate) fn context_changed(result: CUresult) {
    if result == CUDA_SUCCESS {
        ticket::mine().forget_place();
    }
}

fn pass(shape: Shape, frame: &Frame) -> Next {
    let Slice::Limited(slice) = slice::current() else { return Next::Launch };
    if shape == Shape::Several {
        return pass_each(slice, frame);
    }
    let Some(launch) = Launch::read(shape, frame) else { return Next::Launch };
    let ticket = ticket::mine();
    let place = ticket.place().or_else(|| {
        let (context, limiter) = current(slice)?;
        ticket.note_place(context, limiter);
        Some((context, limiter))
    });
    place.map_or(Next::Launch, |place| pass_one(&launch, place))
}

/// One kernel on each of several devices, each in the context of its stream.
fn pass_each(slice: &'static Limited, frame: &Frame) -> Next {
    let mut next = Next::Launch;
    for launch in Launch::read_each(frame) {
        let mut context: CUcontext = null_mut();
        // SAFETY: the program's own stream and a local variable.
        let found = unsafe { real::cuStreamGetCtx(launch.stream as CUstream, &raw mut context) };
        if found == CUDA_SUCCESS
            && let Some(Some(passed)) = in_context(context as usize, || {
                current(slice).map(|place| pass_one(&launch, place))
            })
            && passed != Next::Launch
        {
            next = passed;
        }
    }
    next
}

fn pass_one(launch: &Launch, place: (usize, &'static CardLimiter)) -> Next {
    let (context, limiter) = place;
    let stream = Stream { context, handle: launch.stream, is_threads_own: launch.is_threads_own };
    if capture::state_of(stream) != Capturing::No || !meter::start() {
        return Next::Launch;
    }
    let passed = batch::with_mine(|mine| {
        capture::relaxed(|| match mine.join(launch, stream) {
            Next::AskForBatch => begin(limiter, mine, launch, stream),
            next => next,
        })
    });
    passed.unwrap_or_else(|| {
        // A thread that is ending has no batches any more: what it launches is billed as expected.
        let expected = batch::expectation(launch.key());
        if let Passed::Metered = limiter.pass(stream.queue(), expected) {
            limiter.ended(stream.queue(), expected, expected);
        }
        Next::Launch
    })
}

fn begin(
    limiter: &'static CardLimiter,
    mine: &batch::Thread,
    launch: &Launch,
    stream: Stream,
) -> Next {
    let expected = batch::expectation(launch.key());
    match limiter.pass(stream.queue(), expected) {
        Passed::Metered => mine.open(limiter, launch, stream, expected),
        // No ticket for it: nobody could take that back when a share is set.
        Passed::Free => Next::Launch,
    }
}

/// The calling thread's context and the limiter of its card.
fn current(slice: &'static Limited) -> Option<(usize, &'static CardLimiter)> {
    let mut context: CUcontext = null_mut();
    let mut device: CUdevice = 0;
    // SAFETY: local variables.
    let found = unsafe {
        real::cuCtxGetCurrent(&raw mut context) == CUDA_SUCCESS
            && !context.is_null()
            && real::cuCtxGetDevice(&raw mut device) == CUDA_SUCCESS
    };
    let limiter = found.then(|| card::of_device(slice, device)).flatten()?;
    Some((context as usize, limiter))
}

pub(crate) unsafe fn stream_destroy(stream: CUstream) -> CUresult {
    leave(stream);
    // SAFETY: the program's own argument.
    unsafe { real::cuStreamDestroy_v2(stream) }
}

pub(crate) unsafe fn stream_destroy_v1(stream: CUstream) -> CUresult {
    leave(stream);
    // SAFETY: the program's own argument.
    unsafe { real::cuStreamDestroy(stream) }
}

/// A stream is about to go: nothing of ours is put into it any more, and its handle may come again.
fn leave(stream: CUstream) {
    if !meter::has_started() || init::inherited() {
        return;
    }
    ticket::revoke_all();
    for thread in batch::threads() {
        capture::relaxed(|| thread.close_from_outside(|open| open.handle == stream as usize));
    }
}
