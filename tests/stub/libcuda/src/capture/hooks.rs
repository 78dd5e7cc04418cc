//! The checks that the rest of the driver calls before it does something that captures affect.

use super::{Member, Recorded, Registry, join, lock_registry, take_apart};
use crate::Answer;
use crate::process::{Driver, driver, lock};
use crate::stream::Queue;
use crate::stream::event;
use driver_sys::cuda::*;

/// Refuses work that cannot be a node, if the stream captures.
pub fn refuse(driver: &Driver, queue: Queue) -> Answer {
    if driver.captures.is_idle() { Ok(()) } else { lock_registry(driver).registry.refuse(queue) }
}

/// Refuses a function that may have to wait for the whole device.
#[cold]
fn check_safe_now(driver: &Driver) -> Answer {
    lock_registry(driver).registry.check_safe()
}

/// Refuses a function that is unsafe during a capture.
#[inline]
pub fn check_safe() -> Answer {
    match driver() {
        Ok(driver) if !driver.captures.is_idle() => check_safe_now(driver),
        _ => Ok(()),
    }
}

/// Before a wait for a stream, or a query of it.
pub fn before_wait(driver: &Driver, queue: Queue) -> Answer {
    if driver.captures.is_idle() {
        return Ok(());
    }
    let registry = &mut lock_registry(driver).registry;
    registry.refuse(queue)?;
    registry.check_safe()
}

/// Before a wait for everything in a context.
pub fn before_wait_for_context(driver: &Driver, context: usize) -> Answer {
    if driver.captures.is_idle() {
        return Ok(());
    }
    let registry = &mut lock_registry(driver).registry;
    let capturing = registry.within(context, false);
    for sequence in &capturing {
        registry.invalidate(*sequence);
    }
    if capturing.is_empty() {
        registry.check_safe()
    } else {
        Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    }
}

/// Before a wait for an event, or a query of it.
pub fn before_look_at(driver: &Driver, event: CUevent) -> Answer {
    if driver.captures.is_quiet() {
        return Ok(());
    }
    let registry = &mut lock_registry(driver).registry;
    match registry.events.get(&(event as usize)).map(|recorded| recorded.sequence) {
        Some(sequence) => {
            registry.invalidate(sequence);
            Err(CUDA_ERROR_CAPTURED_EVENT)
        }
        None => registry.check_safe(),
    }
}

/// Refuses the time of an event that was captured and so has none.
pub fn check_event(driver: &Driver, event: CUevent) -> Answer {
    let is_captured = !driver.captures.is_quiet()
        && lock_registry(driver).registry.events.contains_key(&(event as usize));
    if is_captured { Err(CUDA_ERROR_CAPTURED_EVENT) } else { Ok(()) }
}

/// Records an event in a capturing stream. `false`: the stream does not capture.
pub fn record(driver: &Driver, queue: Queue, event: CUevent) -> Answer<bool> {
    if driver.captures.is_quiet() {
        return Ok(false);
    }
    let registry = &mut lock_registry(driver).registry;
    registry.check_legacy(queue)?;
    let member = registry.usable(queue.id())?.map(|member| (member.sequence, member.after.clone()));
    let Some((sequence, after)) = member else {
        registry.events.remove(&(event as usize));
        return Ok(false);
    };
    registry.events.insert(event as usize, Recorded { sequence, after });
    Ok(true)
}

/// Makes a stream wait for an event where either is captured. `false`: neither is.
pub fn wait_event(driver: &'static Driver, queue: Queue, event: CUevent) -> Answer<bool> {
    let was_recorded = event::was_recorded(driver, event)?;
    if driver.captures.is_quiet() {
        return Ok(false);
    }
    let registry = &mut lock_registry(driver).registry;
    registry.check_legacy(queue)?;
    let member = registry.usable(queue.id())?.map(|member| member.sequence);
    let recorded = registry.events.get(&(event as usize)).cloned();
    match (member, recorded) {
        (None, None) => Ok(false),
        (None, Some(recorded)) => registry.enter(queue, recorded),
        // Nothing to wait for.
        (Some(_), None) if !was_recorded => Ok(true),
        (Some(sequence), None) => {
            registry.invalidate(sequence);
            Err(CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
        }
        (Some(sequence), Some(recorded)) if sequence == recorded.sequence => {
            if let Some(member) = registry.members.get_mut(&queue.id()) {
                join(&mut member.after, &recorded.after);
            }
            Ok(true)
        }
        (Some(sequence), Some(recorded)) => {
            registry.invalidate(sequence);
            let is_under_way = registry.sequences.contains_key(&recorded.sequence);
            registry.invalidate(recorded.sequence);
            Err(if is_under_way {
                CUDA_ERROR_STREAM_CAPTURE_MERGE
            } else {
                CUDA_ERROR_STREAM_CAPTURE_ISOLATION
            })
        }
    }
}

impl Registry {
    /// Adds a stream that waits for a captured event to that capture.
    fn enter(&mut self, queue: Queue, recorded: Recorded) -> Answer<bool> {
        match self.sequences.get(&recorded.sequence).map(|sequence| sequence.is_valid) {
            None => Err(CUDA_ERROR_CAPTURED_EVENT),
            Some(false) => Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
            Some(true) if matches!(queue, Queue::Legacy(..)) => {
                self.invalidate(recorded.sequence);
                Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
            }
            Some(true) => {
                let member = Member::new(queue, recorded.sequence, recorded.after);
                self.members.insert(queue.id(), member);
                Ok(true)
            }
        }
    }
}

impl Member {
    pub fn new(queue: Queue, sequence: u64, after: Vec<usize>) -> Self {
        Self {
            sequence,
            context: queue.context().1,
            is_blocking: queue.is_blocking(),
            after,
            shown: Vec::new(),
        }
    }
}

/// Removes a destroyed event.
pub fn forget_event(driver: &Driver, event: usize) {
    if !driver.captures.is_quiet() {
        lock_registry(driver).registry.events.remove(&event);
    }
}

/// Removes a destroyed stream. A capture that began on it ends; in another capture its nodes stay.
pub fn forget_stream(driver: &Driver, queue: u64) {
    if driver.captures.is_idle() {
        return;
    }
    let registry = &mut lock_registry(driver).registry;
    let Some(member) = registry.members.remove(&queue) else { return };
    let Some(sequence) = registry.sequences.get_mut(&member.sequence) else { return };
    if sequence.origin == queue {
        take_apart(registry, &mut lock(&driver.graphs), member.sequence, false);
    } else {
        sequence.left.extend(member.after);
    }
}

/// Removes a destroyed context with its default streams.
pub fn forget_context(driver: &Driver, context: usize) {
    if driver.captures.is_idle() {
        return;
    }
    let queues: Vec<u64> = {
        let registry = &lock_registry(driver).registry;
        let members = registry.members.iter().filter(|(_, member)| member.context == context);
        members.map(|(queue, _)| *queue).collect()
    };
    for queue in queues {
        forget_stream(driver, queue);
    }
}
