//! The C library's mutexes, conditions and semaphores. Their waits inside the C library cannot be
//! interposed, so a thread waits here and then takes them there.

use crate::member::{self, Member};
use crate::raw::real;
use crate::table::{NEVER, Woken};
use crate::{keys, raw, time};
use libc::{c_int, clockid_t, pthread_cond_t, pthread_mutex_t, sem_t, timespec};
use std::sync::atomic::Ordering;

const ANYBODY: u32 = u32::MAX;
/// The index of the 32-bit word with the flags of a glibc condition; and the flag for timed waits
/// by the monotonic clock.
const CONDITION_FLAGS: usize = 9;
const IS_MONOTONIC: u32 = 2;

/// Waits for the lock at `address`, until a time.
fn wait(member: &Member, address: usize, until: u64) -> Woken {
    member.world.lock_waiters.fetch_add(1, Ordering::Relaxed);
    let woken = member.wait(until, &[keys::shared(address)], ANYBODY);
    member.world.lock_waiters.fetch_sub(1, Ordering::Relaxed);
    woken
}

/// Wakes threads that wait for the lock at `address`.
fn wake(member: &Member, address: usize, count: usize) {
    if member.world.lock_waiters.load(Ordering::Relaxed) > 0 {
        member.wake(keys::shared(address), count, ANYBODY);
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn pthread_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int {
    let Some(member) = member::member() else {
        // SAFETY: the program's own call.
        return unsafe { real!(pthread_mutex_lock as fn(*mut pthread_mutex_t) -> c_int)(mutex) };
    };
    loop {
        // SAFETY: the program's own mutex.
        match unsafe { libc::pthread_mutex_trylock(mutex) } {
            libc::EBUSY => wait(member, mutex as usize, NEVER),
            other => return other,
        };
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn pthread_mutex_unlock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the program's own call.
    let done = unsafe { real!(pthread_mutex_unlock as fn(*mut pthread_mutex_t) -> c_int)(mutex) };
    if let Some(member) = member::member() {
        wake(member, mutex as usize, 1);
    }
    done
}

unsafe fn wait_for_condition(
    member: &Member,
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    until: u64,
) -> c_int {
    // SAFETY: the program's own mutex. Nobody runs between the unlocking and the waiting.
    let unlocked = unsafe { pthread_mutex_unlock(mutex) };
    if unlocked != 0 {
        return unlocked;
    }
    let woken = wait(member, condition as usize, until);
    // SAFETY: as above.
    match unsafe { pthread_mutex_lock(mutex) } {
        0 if woken == Woken::ByTime => libc::ETIMEDOUT,
        other => other,
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn pthread_cond_wait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        match member::member() {
            Some(member) => wait_for_condition(member, condition, mutex, NEVER),
            None => real!(
                pthread_cond_wait as fn(*mut pthread_cond_t, *mut pthread_mutex_t) -> c_int
            )(condition, mutex),
        }
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn pthread_cond_timedwait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: the program's own call; the flags lie inside the condition.
    unsafe {
        let Some(member) = member::member() else {
            return real!(
                pthread_cond_timedwait
                    as fn(*mut pthread_cond_t, *mut pthread_mutex_t, *const timespec) -> c_int
            )(condition, mutex, until);
        };
        let flags = condition.cast::<u32>().add(CONDITION_FLAGS).read();
        let is_monotonic = flags & IS_MONOTONIC != 0;
        let clock = if is_monotonic { libc::CLOCK_MONOTONIC } else { libc::CLOCK_REALTIME };
        match time::deadline(member, clock, until, true) {
            Ok(until) => wait_for_condition(member, condition, mutex, until),
            Err(error) => error,
        }
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn pthread_cond_clockwait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        let Some(member) = member::member() else {
            return real!(
                pthread_cond_clockwait
                    as fn(
                        *mut pthread_cond_t,
                        *mut pthread_mutex_t,
                        clockid_t,
                        *const timespec,
                    ) -> c_int
            )(condition, mutex, clock, until);
        };
        match time::deadline(member, clock, until, true) {
            Ok(until) => wait_for_condition(member, condition, mutex, until),
            Err(error) => error,
        }
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn pthread_cond_signal(condition: *mut pthread_cond_t) -> c_int {
    match member::member() {
        Some(member) => wake(member, condition as usize, 1),
        // SAFETY: the program's own call.
        None => unsafe {
            return real!(pthread_cond_signal as fn(*mut pthread_cond_t) -> c_int)(condition);
        },
    }
    0
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn pthread_cond_broadcast(condition: *mut pthread_cond_t) -> c_int {
    match member::member() {
        Some(member) => wake(member, condition as usize, usize::MAX),
        // SAFETY: the program's own call.
        None => unsafe {
            return real!(pthread_cond_broadcast as fn(*mut pthread_cond_t) -> c_int)(condition);
        },
    }
    0
}

unsafe fn wait_for_semaphore(member: &Member, semaphore: *mut sem_t, until: u64) -> c_int {
    // SAFETY: the program's own semaphore.
    while unsafe { libc::sem_trywait(semaphore) } != 0 {
        if wait(member, semaphore as usize, until) == Woken::ByTime {
            return raw::fail(libc::ETIMEDOUT) as c_int;
        }
    }
    0
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn sem_wait(semaphore: *mut sem_t) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        match member::member() {
            Some(member) => wait_for_semaphore(member, semaphore, NEVER),
            None => real!(sem_wait as fn(*mut sem_t) -> c_int)(semaphore),
        }
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn sem_timedwait(semaphore: *mut sem_t, until: *const timespec) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        match member::member() {
            Some(_) => sem_clockwait(semaphore, libc::CLOCK_REALTIME, until),
            None => {
                real!(sem_timedwait as fn(*mut sem_t, *const timespec) -> c_int)(semaphore, until)
            }
        }
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn sem_clockwait(
    semaphore: *mut sem_t,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        let Some(member) = member::member() else {
            return real!(sem_clockwait as fn(*mut sem_t, clockid_t, *const timespec) -> c_int)(
                semaphore, clock, until,
            );
        };
        match time::deadline(member, clock, until, true) {
            Ok(until) => wait_for_semaphore(member, semaphore, until),
            Err(error) => raw::fail(error) as c_int,
        }
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn sem_post(semaphore: *mut sem_t) -> c_int {
    // SAFETY: the program's own call.
    let done = unsafe { real!(sem_post as fn(*mut sem_t) -> c_int)(semaphore) };
    if let Some(member) = member::member() {
        wake(member, semaphore as usize, 1);
    }
    done
}
