//! Admission: the slow path of a launch whose thread has no budget left.
//!
//! A launch joins the open batch of its stream. If there is none with room, the card's limiter must
//! admit a new batch, and the thread waits until it does. If anything fails in here, the launch is
//! made: an error of the limiter must not stop a program.

use driver_sys::cuda::{CUDA_SUCCESS, CUcontext, CUstream};
use vgpu_driver::{context, process, real};
use vgpu_slice::{Limited, Slice};

pub use crate::batch::thread::Next;
use crate::batch::thread::{self, Thread};
use crate::budget::{self, costs};
use crate::capture::{self, Capturing};
use crate::launch::{Launch, Stream, is_created};
use crate::limiter::card::{self, Admitted, CardLimiter};
use crate::limiter::verdict::New;
use crate::{fast_path, meter};

/// The slice in which a launch needs admission; `None` if it can go to the driver at once.
#[inline]
pub fn required() -> Option<&'static Limited> {
    if !fast_path::needs_admission() || process::is_forked_copy() {
        return None;
    }
    match vgpu_slice::current() {
        Slice::Limited(limited) => Some(limited),
        _ => None,
    }
}

/// Waits until a launch may be made.
pub fn admit(slice: &'static Limited, launch: &Launch) -> Next {
    if capture::state_of(launch.stream) != Capturing::No {
        return Next::Launch;
    }
    find(slice, launch.stream)
        .map_or(Next::Launch, |(context, limiter)| admit_in(context, limiter, launch))
}

/// Waits until launches on several devices may be made.
pub fn admit_each(slice: &'static Limited, launches: impl Iterator<Item = Launch>) -> Next {
    launches.fold(Next::Launch, |next, launch| match admit(slice, &launch) {
        Next::LaunchAndClose => Next::LaunchAndClose,
        Next::Launch => next,
    })
}

/// The context of a stream and the limiter of its card. A program may launch into a stream of a
/// context that is not current.
fn find(slice: &'static Limited, stream: usize) -> Option<(usize, &'static CardLimiter)> {
    let budget = budget::of_thread();
    let current = budget.current().or_else(|| {
        let (context, limiter) = current(slice)?;
        budget.note_current(context, limiter);
        Some((context, limiter))
    });
    match context_of(stream) {
        Some(own) if current.is_none_or(|(context, _)| context != own) => {
            context::with_current(own, || self::current(slice)).flatten()
        }
        _ => current,
    }
}

/// The context of a stream that the program has created.
fn context_of(stream: usize) -> Option<usize> {
    let mut context: CUcontext = std::ptr::null_mut();
    // SAFETY: the program's own stream and a local variable.
    let found = is_created(stream)
        && unsafe { real::cuStreamGetCtx(stream as CUstream, &raw mut context) } == CUDA_SUCCESS;
    found.then_some(context as usize)
}

/// The current context and the limiter of its card.
fn current(slice: &'static Limited) -> Option<(usize, &'static CardLimiter)> {
    let (device, context) = context::current().filter(|(_, context)| !context.is_null())?;
    Some((context as usize, card::of_device(slice, device)?))
}

fn admit_in(context: usize, limiter: &'static CardLimiter, launch: &Launch) -> Next {
    let stream = Stream { context, handle: launch.stream };
    meter::start();
    let next = thread::with_own(|own| {
        capture::relaxed(|| {
            own.join(launch, stream).unwrap_or_else(|| begin(limiter, own, launch, stream))
        })
    });
    next.unwrap_or_else(|| {
        // A thread that is ending has no batches any more, so its launches are billed as predicted.
        let new = new_batch(launch, stream);
        if let Admitted::Metered { .. } = limiter.admit(&new, meter::look_here) {
            limiter.bill_unmeasured(new.queue, new.predicted, new.predicted);
        }
        Next::Launch
    })
}

/// Begins a batch with a launch.
fn begin(limiter: &'static CardLimiter, own: &Thread, launch: &Launch, stream: Stream) -> Next {
    let new = new_batch(launch, stream);
    match limiter.admit(&new, meter::look_here) {
        Admitted::Metered { is_stalled } => own.open(limiter, launch, stream, &new, is_stalled),
        // Without a budget: it could not be withdrawn when a share is set.
        Admitted::Unmetered => Next::Launch,
    }
}

fn new_batch(launch: &Launch, stream: Stream) -> New {
    let kind = launch.key();
    New { queue: stream.queue(), predicted: costs::estimate_of(kind), kind }
}
