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
use crate::launch::{Launch, Stream};
use crate::limiter::card::{self, Admitted, CardLimiter};
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

/// Waits until a launch in the current context may be made.
pub fn admit(slice: &'static Limited, launch: &Launch) -> Next {
    let budget = budget::of_thread();
    let known = budget.current().or_else(|| {
        let (context, limiter) = current(slice)?;
        budget.note_current(context, limiter);
        Some((context, limiter))
    });
    known.map_or(Next::Launch, |(context, limiter)| admit_in(context, limiter, launch))
}

/// Waits until launches on several devices may be made, each in the context of its stream.
pub fn admit_each(slice: &'static Limited, launches: impl Iterator<Item = Launch>) -> Next {
    let mut next = Next::Launch;
    for launch in launches {
        let mut context: CUcontext = std::ptr::null_mut();
        // SAFETY: the program's own stream and a local variable.
        let found = unsafe { real::cuStreamGetCtx(launch.stream as CUstream, &raw mut context) };
        if found == CUDA_SUCCESS
            && let Some(Some(Next::LaunchAndClose)) =
                context::with_current(context as usize, || {
                    let (context, limiter) = current(slice)?;
                    Some(admit_in(context, limiter, &launch))
                })
        {
            next = Next::LaunchAndClose;
        }
    }
    next
}

/// The calling thread's context and the limiter of its card.
fn current(slice: &'static Limited) -> Option<(usize, &'static CardLimiter)> {
    let (device, context) = context::current().filter(|(_, context)| !context.is_null())?;
    Some((context as usize, card::of_device(slice, device)?))
}

fn admit_in(context: usize, limiter: &'static CardLimiter, launch: &Launch) -> Next {
    let stream = Stream { context, handle: launch.stream, is_threads_own: launch.is_threads_own };
    if capture::state_of(stream) != Capturing::No {
        return Next::Launch;
    }
    meter::start();
    let next = thread::with_own(|own| {
        capture::relaxed(|| {
            own.join(launch, stream).unwrap_or_else(|| begin(limiter, own, launch, stream))
        })
    });
    next.unwrap_or_else(|| {
        // A thread that is ending has no batches any more, so its launches are billed as predicted.
        let predicted = costs::estimate_of(launch.key());
        if let Admitted::Metered = limiter.admit(stream.queue(), predicted, meter::look_here) {
            limiter.bill_unmeasured(stream.queue(), predicted, predicted);
        }
        Next::Launch
    })
}

/// Begins a batch with a launch.
fn begin(limiter: &'static CardLimiter, own: &Thread, launch: &Launch, stream: Stream) -> Next {
    let predicted = costs::estimate_of(launch.key());
    match limiter.admit(stream.queue(), predicted, meter::look_here) {
        Admitted::Metered => own.open(limiter, launch, stream, predicted),
        // Without a budget: it could not be withdrawn when a share is set.
        Admitted::Unmetered => Next::Launch,
    }
}
