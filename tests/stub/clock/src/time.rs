//! Reading the clock, and sleeping.

use crate::member::{self, EPOCH, Member};
use crate::raw::{self, Real};
use crate::table::NEVER;
use libc::{c_int, c_uint, clockid_t, timespec};
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

/// The clocks that count from the start of the machine. The time of day is not virtual.
fn is_virtual(id: clockid_t) -> bool {
    matches!(
        id,
        libc::CLOCK_MONOTONIC
            | libc::CLOCK_MONOTONIC_RAW
            | libc::CLOCK_MONOTONIC_COARSE
            | libc::CLOCK_BOOTTIME
    )
}

fn to_timespec(ns: u64) -> timespec {
    timespec { tv_sec: (ns / SECOND) as libc::time_t, tv_nsec: (ns % SECOND) as i64 }
}

/// Nanoseconds; None for an invalid time.
fn from_timespec(time: &timespec) -> Option<u64> {
    let fraction = u64::try_from(time.tv_nsec).ok().filter(|fraction| *fraction < SECOND)?;
    u64::try_from(time.tv_sec).ok()?.checked_mul(SECOND)?.checked_add(fraction)
}

/// The deadline of a clock as a time of the world; None for a null pointer, Err for an invalid
/// time.
pub unsafe fn deadline(
    member: &Member,
    id: clockid_t,
    time: *const timespec,
    is_absolute: bool,
) -> Result<u64, c_int> {
    // SAFETY: the caller's pointer is null or valid, as the C library asks.
    let Some(time) = (unsafe { time.as_ref() }) else { return Ok(NEVER) };
    let time = from_timespec(time).ok_or(libc::EINVAL)?;
    let now = EPOCH + member.world.now();
    Ok(match (is_absolute, is_virtual(id)) {
        (true, true) => time,
        (true, false) => now.saturating_add(time.saturating_sub(raw::clock(id))),
        (false, _) => now.saturating_add(time),
    })
}

/// `clock_gettime`, for every function that reads a clock.
pub unsafe fn get(id: clockid_t, time: *mut timespec) -> libc::c_long {
    let now = is_virtual(id).then(|| {
        member::member()
            .map(Member::read)
            .or_else(|| member::observed().map(|world| EPOCH + world.now()))
    });
    match now.flatten() {
        Some(now) => {
            // SAFETY: the caller's pointer is valid, as the C library asks.
            unsafe { *time = to_timespec(now) };
            0
        }
        // SAFETY: the program's own call.
        None => raw::answer(unsafe {
            raw::call(libc::SYS_clock_gettime, [id as usize, time as usize, 0, 0, 0, 0])
        }),
    }
}

/// This project's libraries read the clock by the vDSO, past the C library. Without a vDSO they make
/// the system call by `syscall`.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn getauxval(kind: libc::c_ulong) -> libc::c_ulong {
    static REAL: Real = Real::new(c"getauxval");
    if kind == libc::AT_SYSINFO_EHDR {
        return 0;
    }
    // SAFETY: the type of the C library's function.
    let real: unsafe extern "C" fn(libc::c_ulong) -> libc::c_ulong =
        unsafe { std::mem::transmute(REAL.address()) };
    // SAFETY: the program's own call.
    unsafe { real(kind) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn clock_gettime(id: clockid_t, time: *mut timespec) -> c_int {
    // SAFETY: the program's own call.
    unsafe { get(id, time) as c_int }
}

/// Returns an error number, and does not set `errno`.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn clock_nanosleep(
    id: clockid_t,
    flags: c_int,
    time: *const timespec,
    left: *mut timespec,
) -> c_int {
    // Clocks of processor time, and the settable time of day, are not virtual.
    let Some(member) = member::member().filter(|_| is_virtual(id) || id == libc::CLOCK_REALTIME)
    else {
        let arguments = [id as usize, flags as usize, time as usize, left as usize, 0, 0];
        // SAFETY: the program's own call.
        return -unsafe { raw::call(libc::SYS_clock_nanosleep, arguments) } as c_int;
    };
    // SAFETY: the program's own pointer.
    match unsafe { deadline(member, id, time, flags & libc::TIMER_ABSTIME != 0) } {
        Ok(until) => {
            member.wait(until, &[], 0);
            0
        }
        Err(error) => error,
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn nanosleep(time: *const timespec, left: *mut timespec) -> c_int {
    // SAFETY: the program's own call.
    match unsafe { clock_nanosleep(libc::CLOCK_MONOTONIC, 0, time, left) } {
        0 => 0,
        error => raw::fail(error) as c_int,
    }
}

fn sleep_for(time: Duration) -> c_int {
    let time = to_timespec(time.as_nanos() as u64);
    // SAFETY: the time is valid, and the remaining time is not read.
    unsafe { nanosleep(&raw const time, std::ptr::null_mut()) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn usleep(microseconds: libc::useconds_t) -> c_int {
    sleep_for(Duration::from_micros(microseconds.into()))
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn sleep(seconds: c_uint) -> c_uint {
    sleep_for(Duration::from_secs(seconds.into()));
    0
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn sched_yield() -> c_int {
    if let Some(member) = member::member() {
        member.wait(0, &[], 0);
        return 0;
    }
    // SAFETY: no arguments.
    unsafe { raw::call(libc::SYS_sched_yield, [0; 6]) as c_int }
}
