//! Contexts come to an end, and the meter must not touch what is ending.
//!
//! While a context is being ended the meter leaves it alone; what was in flight there afterwards is
//! gone. A new context may get the same handle, so everything in flight knows how old it is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

static AGE: AtomicU64 = AtomicU64::new(1);
static ENDS: Mutex<Ends> = Mutex::new(Ends { ending: Vec::new(), ended: Vec::new() });

pub(super) struct Ends {
    ending: Vec<usize>,
    /// Contexts, and the age from which on their handle means another.
    ended: Vec<(usize, u64)>,
}

/// What may be done with something in flight in a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Life {
    Lives,
    /// It is being ended at this moment.
    Ending,
    Ended,
}

/// Now, counted in ends of contexts.
pub(super) fn age() -> u64 {
    AGE.load(Ordering::Acquire)
}

/// While this is held no context begins to end.
pub(super) fn hold() -> MutexGuard<'static, Ends> {
    ENDS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ends {
    /// The life of a context that something was put in flight in at the age `born`.
    pub(super) fn life(&self, context: usize, born: u64) -> Life {
        if self.ended.iter().any(|(of, age)| *of == context && born < *age) {
            Life::Ended
        } else if self.ending.contains(&context) {
            Life::Ending
        } else {
            Life::Lives
        }
    }
}

/// A context that the driver is about to end, or may.
pub(crate) struct Ending(usize);

/// Keeps the meter away from a context, until the result is dropped.
pub(crate) fn ending(context: usize) -> Ending {
    hold().ending.push(context);
    Ending(context)
}

impl Ending {
    /// The driver has ended it.
    pub(crate) fn ended(&self) {
        let age = AGE.fetch_add(1, Ordering::AcqRel) + 1;
        super::events::forget(self.0);
        let mut ends = hold();
        ends.ended.retain(|(context, _)| *context != self.0);
        ends.ended.push((self.0, age));
        drop(ends);
        for thread in super::batch::threads() {
            thread.forget(self.0);
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let mut ends = hold();
        if let Some(place) = ends.ending.iter().position(|context| *context == self.0) {
            ends.ending.swap_remove(place);
        }
    }
}
