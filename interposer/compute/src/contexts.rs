//! Contexts that are ending or have ended. The meter must not touch events in them.
//!
//! While the driver ends a context, the meter leaves it alone. Afterwards its events no longer
//! exist. A new context may get the same handle, so each interval in flight records the age at
//! which it was begun.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use vgpu_driver::guard::lock;

use crate::events;

static AGE: AtomicU64 = AtomicU64::new(1);
static ENDS: Mutex<Ends> = Mutex::new(Ends { ending: Vec::new(), ended: Vec::new() });

/// The contexts that are ending or have ended.
pub(crate) struct Ends {
    ending: Vec<usize>,
    /// Handles of contexts that have ended, and the age from which on each means another context.
    ended: Vec<(usize, u64)>,
}

/// The life of a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    Lives,
    /// The driver is ending it.
    Ending,
    Ended,
}

/// How many contexts and streams have ended so far.
pub(crate) fn age() -> u64 {
    AGE.load(Ordering::Acquire)
}

/// A stream has ended: its handle may mean another one from now on.
pub(crate) fn changed() {
    AGE.fetch_add(1, Ordering::AcqRel);
}

/// While the caller holds this, no context begins to end.
pub(crate) fn hold() -> MutexGuard<'static, Ends> {
    lock(&ENDS)
}

impl Ends {
    /// The life of the context that a handle meant at an age.
    pub(crate) fn life(&self, context: usize, at_age: u64) -> Life {
        if self.ended.iter().any(|(of, age)| *of == context && at_age < *age) {
            Life::Ended
        } else if self.ending.contains(&context) {
            Life::Ending
        } else {
            Life::Lives
        }
    }
}

/// A context that the driver is about to end, or may end.
pub struct Ending(usize);

/// Keeps the meter away from a context until the result is dropped.
pub fn ending(context: usize) -> Ending {
    hold().ending.push(context);
    Ending(context)
}

impl Ending {
    /// The handle of the context.
    pub(crate) fn context(&self) -> usize {
        self.0
    }

    /// The driver has ended the context: its events are forgotten.
    pub(crate) fn ended(&self) {
        let age = AGE.fetch_add(1, Ordering::AcqRel) + 1;
        events::forget(self.0);
        let mut ends = hold();
        ends.ended.retain(|(context, _)| *context != self.0);
        ends.ended.push((self.0, age));
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let mut ends = hold();
        if let Some(index) = ends.ending.iter().position(|context| *context == self.0) {
            ends.ending.swap_remove(index);
        }
    }
}
