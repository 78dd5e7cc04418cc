//! The `syscall` function, through which Rust's locks and this project's libraries wait and wake.

use crate::member::{self, Member};
use crate::table::{KEYS, Key, Woken};
use crate::{keys, raw, time};
use libc::{c_int, c_long, timespec};
use std::sync::atomic::{AtomicU32, Ordering};

const EVERY_BIT: u32 = u32::MAX;

/// One word of `futex_waitv`, in the kernel's layout.
#[repr(C)]
struct Waiter {
    value: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

fn key(address: usize, is_private: bool) -> Key {
    if is_private { keys::private(address) } else { keys::shared(address) }
}

/// Variadic in C; the registers are the same, and arguments that were not passed are not read.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn syscall(
    number: c_long,
    first: usize,
    second: usize,
    third: usize,
    fourth: usize,
    fifth: usize,
    sixth: usize,
) -> c_long {
    let arguments = [first, second, third, fourth, fifth, sixth];
    // SAFETY: the program's own call, with arguments as the number asks for.
    unsafe {
        match number {
            libc::SYS_clock_gettime => time::get(first as c_int, second as *mut timespec),
            libc::SYS_futex => futex(arguments),
            libc::SYS_futex_waitv => wait_any(arguments),
            _ => raw::answer(raw::call(number, arguments)),
        }
    }
}

/// `futex(address, operation, value, time, second address, bits)`
unsafe fn futex(arguments: [usize; 6]) -> c_long {
    let [address, operation, value, timeout, _, bits] = arguments;
    let operation = operation as c_int;
    let is_private = operation & libc::FUTEX_PRIVATE_FLAG != 0;
    let clock = if operation & libc::FUTEX_CLOCK_REALTIME == 0 {
        libc::CLOCK_MONOTONIC
    } else {
        libc::CLOCK_REALTIME
    };
    let command = operation & libc::FUTEX_CMD_MASK;
    let bits = match command {
        libc::FUTEX_WAIT_BITSET | libc::FUTEX_WAKE_BITSET => bits as u32,
        _ => EVERY_BIT,
    };
    let ours = matches!(
        command,
        libc::FUTEX_WAIT | libc::FUTEX_WAKE | libc::FUTEX_WAIT_BITSET | libc::FUTEX_WAKE_BITSET
    );
    let Some(member) = member::member().filter(|_| ours && address % 4 == 0 && bits != 0) else {
        // SAFETY: the program's own call.
        return raw::answer(unsafe { raw::call(libc::SYS_futex, arguments) });
    };
    let key = key(address, is_private);
    if matches!(command, libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET) {
        let woken = member.wake(key, value, bits);
        // Processes outside the world may wait in real time.
        let outside = [address, operation as usize, value - woken, 0, 0, bits as usize];
        // SAFETY: the program's own call, less what is done.
        return raw::answer(unsafe { raw::call(libc::SYS_futex, outside) })
            .max(0)
            .saturating_add(woken as c_long);
    }
    // SAFETY: a futex word that is waited for is mapped, and aligned as was looked at above.
    if unsafe { load(address) } != value as u32 {
        return raw::fail(libc::EAGAIN);
    }
    let is_absolute = command == libc::FUTEX_WAIT_BITSET;
    // SAFETY: the program's own pointer.
    match unsafe { wait(member, &[key], clock, timeout as *const timespec, is_absolute, bits) } {
        Ok(_) => 0,
        Err(error) => raw::fail(error),
    }
}

/// `futex_waitv(waiters, count, flags, absolute time, clock)`
unsafe fn wait_any(arguments: [usize; 6]) -> c_long {
    let [waiters, count, _, timeout, clock, _] = arguments;
    let Some(member) = member::member().filter(|_| (1..=KEYS).contains(&count)) else {
        // SAFETY: the program's own call.
        return raw::answer(unsafe { raw::call(libc::SYS_futex_waitv, arguments) });
    };
    // SAFETY: the program passes so many of them.
    let waiters = unsafe { std::slice::from_raw_parts(waiters as *const Waiter, count) };
    let mut keys = Vec::with_capacity(count);
    for waiter in waiters {
        let address = waiter.address as usize;
        // SAFETY: as in `futex`.
        if unsafe { load(address) } != waiter.value as u32 {
            return raw::fail(libc::EAGAIN);
        }
        keys.push(key(address, waiter.flags & libc::FUTEX_PRIVATE_FLAG as u32 != 0));
    }
    let timeout = timeout as *const timespec;
    // SAFETY: the program's own pointer.
    match unsafe { wait(member, &keys, clock as c_int, timeout, true, EVERY_BIT) } {
        Ok(word) => word as c_long,
        Err(error) => raw::fail(error),
    }
}

unsafe fn load(address: usize) -> u32 {
    // SAFETY: the caller answers for the address.
    unsafe { AtomicU32::from_ptr(address as *mut u32) }.load(Ordering::SeqCst)
}

unsafe fn wait(
    member: &Member,
    keys: &[Key],
    clock: libc::clockid_t,
    timeout: *const timespec,
    is_absolute: bool,
    bits: u32,
) -> Result<usize, c_int> {
    // SAFETY: the caller answers for the pointer.
    let until = unsafe { time::deadline(member, clock, timeout, is_absolute) }?;
    match member.wait(until, keys, bits) {
        Woken::By(word) => Ok(word),
        Woken::ByTime => Err(libc::ETIMEDOUT),
    }
}
