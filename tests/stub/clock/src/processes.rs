//! Threads and processes that begin, end, and are stopped; and changes of mappings.

use crate::member::{self, Member};
use crate::raw::real;
use crate::{alive, keys, raw};
use libc::{c_int, c_void, off_t, pid_t, pthread_attr_t, pthread_t};
use std::time::Duration;

type Routine = extern "C" fn(*mut c_void) -> *mut c_void;

/// How long, in real time, a signal may take to have its effect.
const SIGNAL_DEADLINE: Duration = Duration::from_secs(10);

/// The argument of a new thread.
struct Start {
    member: &'static Member,
    row: usize,
    routine: Routine,
    argument: *mut c_void,
}

extern "C" fn begin(start: *mut c_void) -> *mut c_void {
    // SAFETY: made by `pthread_create` below for this thread alone.
    let start = unsafe { Box::from_raw(start.cast::<Start>()) };
    start.member.begin_thread(start.row);
    let Start { routine, argument, .. } = *start;
    routine(argument)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    routine: Routine,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: its signature.
    let create = unsafe {
        real!(
            pthread_create
                as fn(*mut pthread_t, *const pthread_attr_t, Routine, *mut c_void) -> c_int
        )
    };
    let Some(member) = member::member() else {
        // SAFETY: the program's own call.
        return unsafe { create(thread, attributes, routine, argument) };
    };
    let row = member.expect_thread();
    let start = Box::into_raw(Box::new(Start { member, row, routine, argument }));
    // SAFETY: the program's own call, with a routine that calls the program's.
    unsafe {
        let done = create(thread, attributes, begin, start.cast());
        if done == 0 {
            member.name_thread(row, *thread);
        } else {
            member.forget(row);
            drop(Box::from_raw(start));
        }
        done
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn pthread_join(thread: pthread_t, result: *mut *mut c_void) -> c_int {
    if let Some(member) = member::member() {
        member.await_thread(thread);
    }
    // SAFETY: the program's own call.
    unsafe { real!(pthread_join as fn(pthread_t, *mut *mut c_void) -> c_int)(thread, result) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn fork() -> pid_t {
    // SAFETY: its signature.
    let fork = unsafe { real!(fork as fn() -> pid_t) };
    let Some(member) = member::member() else {
        // SAFETY: the program's own call.
        return unsafe { fork() };
    };
    let row = member.expect_child();
    // SAFETY: the program's own call.
    let child = unsafe { fork() };
    match child {
        0 => member.begin_child(row),
        -1 => member.forget(row),
        pid => member.name_child(row, pid as u32),
    }
    child
}

/// When this returns, a killed process has left the world and a stopped one is skipped.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn kill(pid: pid_t, signal: c_int) -> c_int {
    // SAFETY: the program's own call.
    let deliver =
        || unsafe { raw::call(libc::SYS_kill, [pid as usize, signal as usize, 0, 0, 0, 0]) };
    let changes = matches!(signal, libc::SIGKILL | libc::SIGSTOP | libc::SIGCONT);
    let is_other = pid > 0 && pid as u32 != raw::process_id();
    let Some(member) = member::member().filter(|_| changes && is_other) else {
        return raw::answer(deliver()) as c_int;
    };
    let pid = pid as u32;
    // Under the lock, so that none of its threads holds it.
    let answer = member.with_table(|table| {
        let sent = deliver();
        if sent == 0 {
            match signal {
                libc::SIGKILL => {
                    wait_until(|| alive::is_dead(pid));
                    table.strike_dead(pid);
                }
                libc::SIGSTOP => {
                    wait_until(|| alive::is_stopped(pid));
                    table.mark(pid, true);
                }
                _ => table.mark(pid, false),
            }
        }
        sent
    });
    raw::answer(answer) as c_int
}

/// Waits in real time until a signal has had its effect.
fn wait_until(done: impl Fn() -> bool) {
    let until = raw::clock(libc::CLOCK_MONOTONIC) + SIGNAL_DEADLINE.as_nanos() as u64;
    while !done() && raw::clock(libc::CLOCK_MONOTONIC) < until {
        raw::sleep(Duration::from_micros(100));
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn mmap(
    address: *mut c_void,
    length: usize,
    access: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
) -> *mut c_void {
    let arguments =
        [address as usize, length, access as usize, flags as usize, file as usize, offset as usize];
    // SAFETY: the program's own call.
    let mapped = raw::answer(unsafe { raw::call(libc::SYS_mmap, arguments) });
    keys::forget();
    mapped as *mut c_void
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn mmap64(
    address: *mut c_void,
    length: usize,
    access: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the program's own call; offsets have 64 bits by both names.
    unsafe { mmap(address, length, access, flags, file, offset) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn munmap(address: *mut c_void, length: usize) -> c_int {
    // SAFETY: the program's own call.
    let done =
        raw::answer(unsafe { raw::call(libc::SYS_munmap, [address as usize, length, 0, 0, 0, 0]) });
    keys::forget();
    done as c_int
}
