//! Admission: what a launch does before it may reach the card.
//!
//! The launch waits until its card's limiter admits it. If anything fails in here, the launch is
//! made: an error of the limiter must not stop a program.

use std::cell::RefCell;

use driver_sys::cuda::{CUDA_SUCCESS, CUcontext, CUstream};
use vgpu_driver::{context, process, real};
use vgpu_slice::{Limited, Slice};

use crate::capture::{self, Capturing};
use crate::card::{self, Admitted, CardLimiter};
use crate::launch::{Launch, Stream, is_created};
use crate::{fast_path, here, meter};

/// The next step of a launch after its admission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// It goes to the driver.
    Launch,
    /// It goes to the driver, and then [`launched`] records an event behind it.
    LaunchAndRecord,
}

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
pub fn admit(slice: &'static Limited, launch: Launch) -> Next {
    let Launch { function, stream: handle } = launch;
    if capture::state_of(handle) != Capturing::No {
        return Next::Launch;
    }
    let Some((context, limiter)) = place(slice, handle) else { return Next::Launch };
    let stream = Stream { context, handle };
    meter::start();
    capture::relaxed(|| match limiter.admit(stream, function, meter::look_here) {
        Admitted::Unlimited => Next::Launch,
        Admitted::Limited { starts, records } => {
            if starts {
                limiter.record_start(stream);
            }
            if records { record_behind(limiter, stream) } else { Next::Launch }
        }
    })
}

/// Waits until launches on several devices may be made.
pub fn admit_each(slice: &'static Limited, launches: impl Iterator<Item = Launch>) -> Next {
    launches.fold(Next::Launch, |next, launch| match admit(slice, launch) {
        Next::LaunchAndRecord => Next::LaunchAndRecord,
        Next::Launch => next,
    })
}

thread_local! {
    /// The streams on which an event belongs behind the launch that is being made.
    static RECORDS: RefCell<Vec<(&'static CardLimiter, Stream)>> =
        const { RefCell::new(Vec::new()) };
}

fn record_behind(limiter: &'static CardLimiter, stream: Stream) -> Next {
    let noted = RECORDS.try_with(|records| {
        records.try_borrow_mut().is_ok_and(|mut records| {
            records.push((limiter, stream));
            true
        })
    });
    // In a thread that is ending, the meter finds the end of the launch.
    if noted == Ok(true) { Next::LaunchAndRecord } else { Next::Launch }
}

/// The driver has taken a launch for which [`admit`] answered [`Next::LaunchAndRecord`]: records
/// the events behind it.
pub fn launched() {
    let records = RECORDS.try_with(|records| {
        records.try_borrow_mut().map(|mut records| std::mem::take(&mut *records)).ok()
    });
    capture::relaxed(|| {
        for (limiter, stream) in records.ok().flatten().into_iter().flatten() {
            limiter.record(stream, true);
        }
    });
}

/// The context of a stream, and the limiter of its card. A program may launch into a stream of a
/// context that is not current.
pub(crate) fn place(
    slice: &'static Limited,
    handle: usize,
) -> Option<(usize, &'static CardLimiter)> {
    here::place(handle, || match context_of(handle) {
        Some(own) => context::with_current(own, || current(slice)).flatten(),
        None => current(slice),
    })
}

/// The context of a stream that the program has created.
fn context_of(handle: usize) -> Option<usize> {
    let mut context: CUcontext = std::ptr::null_mut();
    // SAFETY: the program's own stream and a local variable.
    let found = is_created(handle)
        && unsafe { real::cuStreamGetCtx(handle as CUstream, &raw mut context) } == CUDA_SUCCESS;
    found.then_some(context as usize)
}

/// The current context and the limiter of its card.
fn current(slice: &'static Limited) -> Option<(usize, &'static CardLimiter)> {
    let (device, context) = context::current().filter(|(_, context)| !context.is_null())?;
    Some((context as usize, card::of_device(slice, device)?))
}
