//! Hands batches in flight over to the meter.

use std::sync::Mutex;

use vgpu_driver::guard::lock;

use super::flight::Flight;
use crate::clock::{METER, QUIET_NS};

static INBOX: Mutex<Vec<Flight>> = Mutex::new(Vec::new());

/// Hands over a batch. The meter bills it when it has ended.
pub(super) fn put(flight: Flight) {
    let soon = flight.closed_at + QUIET_NS;
    lock(&INBOX).push(flight);
    METER.wake_by(soon);
}

/// Takes all batches that were put in.
pub(crate) fn take_all(into: &mut Vec<Flight>) {
    into.append(&mut lock(&INBOX));
}

/// Whether there is nothing to take.
pub(crate) fn is_empty() -> bool {
    lock(&INBOX).is_empty()
}
