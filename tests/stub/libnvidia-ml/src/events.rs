//! Event sets: critical XID errors of the cards that are registered in a set.
//!
//! A set has every error from the registration of its card on, in order, until the program reads
//! it. It is read by polling the client's page; the in-process engine has no errors, so that every
//! wait ends with `NVML_ERROR_TIMEOUT`.

use crate::Answer;
use crate::boundary::Out;
use crate::device::{card, find, handle};
use crate::engine::watch;
use driver_sys::nvml::*;
use std::collections::BTreeMap;
use std::ptr::without_provenance_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use stub_engine::health::{Health, Xid};

/// `nvmlEventTypeXidCriticalError`, a macro in the header.
const XID_CRITICAL_ERROR: u64 = 8;

/// The instance ids of an event that is not about a MIG instance.
const NO_INSTANCE: u32 = u32::MAX;

/// How often a wait looks for events.
const POLL: Duration = Duration::from_millis(2);

/// An event set.
#[derive(Default)]
struct EventSet {
    /// The number of the next XID error to read.
    next: u64,
    /// The cards, and the number of the first XID error after their registration.
    cards: BTreeMap<usize, u64>,
}

#[derive(Default)]
struct Sets {
    last: usize,
    sets: BTreeMap<usize, EventSet>,
}

static SETS: Mutex<Sets> = Mutex::new(Sets { last: 0, sets: BTreeMap::new() });

fn sets() -> MutexGuard<'static, Sets> {
    SETS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sets {
    fn get(&mut self, set: nvmlEventSet_t) -> Answer<&mut EventSet> {
        self.sets.get_mut(&(set as usize)).ok_or(NVML_ERROR_INVALID_ARGUMENT)
    }
}

impl EventSet {
    /// The next error of a registered card; `None` if there is none yet.
    fn take(&mut self, health: &Health) -> Option<Xid> {
        while let Some((number, error)) = health.xids.get(self.next) {
            self.next = number + 1;
            if self.cards.get(&error.card).is_some_and(|since| number >= *since) {
                return Some(error);
            }
        }
        None
    }
}

/// Frees all sets, when NVML ends.
pub fn free_all() {
    sets().sets.clear();
}

/// `nvmlEventSetCreate`
pub fn create(set: Out<nvmlEventSet_t>) -> Answer {
    let watch = watch()?;
    if set.is_null() {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    let mut sets = sets();
    sets.last += 1;
    let last = sets.last;
    let next = watch.counters().health.xids.count();
    sets.sets.insert(last, EventSet { next, ..EventSet::default() });
    set.put(without_provenance_mut(last))
}

/// `nvmlEventSetFree`
pub fn free(set: nvmlEventSet_t) -> Answer {
    watch()?;
    sets().sets.remove(&(set as usize)).map(drop).ok_or(NVML_ERROR_INVALID_ARGUMENT)
}

fn supported(device: nvmlDevice_t) -> Answer<u64> {
    // Errors are those of the whole GPU, not of its slices.
    if card(device)?.profile.mig { Err(NVML_ERROR_NOT_SUPPORTED) } else { Ok(XID_CRITICAL_ERROR) }
}

/// `nvmlDeviceGetSupportedEventTypes`
pub fn supported_types(device: nvmlDevice_t, types: Out<u64>) -> Answer {
    types.put(supported(device)?)
}

/// `nvmlDeviceRegisterEvents`
pub fn register(device: nvmlDevice_t, types: u64, set: nvmlEventSet_t) -> Answer {
    let (watch, card) = find(device)?;
    let mut sets = sets();
    let set = sets.get(set)?;
    if types & !supported(device)? != 0 {
        return Err(NVML_ERROR_NOT_SUPPORTED);
    }
    if types != 0 {
        let since = watch.counters().health.xids.count();
        set.cards.entry(card).or_insert(since);
    }
    Ok(())
}

/// The next event of a set, if it comes in time. A lost card ends the wait.
fn wait_for<T>(set: nvmlEventSet_t, data: Out<T>, timeout_ms: u32) -> Answer<Xid> {
    let watch = watch()?;
    if data.is_null() {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    let health = &watch.counters().health;
    let (started, timeout) = (Instant::now(), Duration::from_millis(u64::from(timeout_ms)));
    loop {
        // The lock is free while this waits.
        let (event, has_lost) = {
            let mut sets = sets();
            let set = sets.get(set)?;
            (set.take(health), set.cards.keys().any(|card| health.lost.has(*card)))
        };
        if let Some(event) = event {
            return Ok(event);
        }
        if has_lost {
            return Err(NVML_ERROR_GPU_IS_LOST);
        }
        let left = timeout.saturating_sub(started.elapsed());
        if left.is_zero() {
            return Err(NVML_ERROR_TIMEOUT);
        }
        std::thread::sleep(left.min(POLL));
    }
}

/// The first version of [`nvmlEventData_t`], which the function without a version still fills.
#[repr(C)]
struct EventDataV1 {
    device: nvmlDevice_t,
    types: u64,
    data: u64,
}

/// `nvmlEventSetWait`
pub fn wait(set: nvmlEventSet_t, data: Out<nvmlEventData_t>, timeout_ms: u32) -> Answer {
    let Xid { card, xid } = wait_for(set, data, timeout_ms)?;
    let (device, data) = (handle(card), data.cast());
    data.put(EventDataV1 { device, types: XID_CRITICAL_ERROR, data: u64::from(xid) })
}

/// `nvmlEventSetWait_v2`
pub fn wait_v2(set: nvmlEventSet_t, data: Out<nvmlEventData_t>, timeout_ms: u32) -> Answer {
    let Xid { card, xid } = wait_for(set, data, timeout_ms)?;
    data.put(nvmlEventData_t {
        device: handle(card),
        eventType: XID_CRITICAL_ERROR,
        eventData: u64::from(xid),
        gpuInstanceId: NO_INSTANCE,
        computeInstanceId: NO_INSTANCE,
    })
}
