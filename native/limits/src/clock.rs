//! The clock of the times in the files, which is the same in all processes of a machine.
//!
//! Processes compare the times of other processes with their own. Two things may shift the clock of
//! a process. Tools such as libfaketime replace the C library's `clock_gettime`. So the kernel's own
//! function is called, in the vDSO. And a time namespace has an offset, as in a container that CRIU
//! has restored. So the offset is subtracted.

use crate::elf::Dynamic;
use std::mem::{size_of, transmute};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

/// Nanoseconds of the host's `CLOCK_MONOTONIC`.
pub fn monotonic_ns() -> u64 {
    own_ns().wrapping_add_signed(-offset())
}

/// An instant of this clock as the kernel expects it from this process, to wait until then.
pub fn timespec(instant: u64) -> libc::timespec {
    let instant = instant.saturating_add_signed(offset());
    libc::timespec {
        tv_sec: (instant / SECOND) as libc::time_t,
        tv_nsec: (instant % SECOND) as libc::c_long,
    }
}

const SECOND: u64 = 1_000_000_000;

type GetTime = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> libc::c_int;

/// `CLOCK_MONOTONIC` in the time namespace of this process.
fn own_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let (clock, place) = (libc::CLOCK_MONOTONIC, &raw mut now);
    // SAFETY: the vDSO's function takes what `clock_gettime` does, and `now` is a local variable. The
    // call cannot fail for this clock.
    unsafe {
        match vdso() {
            Some(get_time) => _ = get_time(clock, place),
            None => _ = libc::syscall(libc::SYS_clock_gettime, clock, place),
        }
    }
    now.tv_sec as u64 * SECOND + now.tv_nsec as u64
}

/// The kernel's function; `None` if the process has no vDSO.
#[inline]
fn vdso() -> Option<GetTime> {
    static FUNCTION: AtomicUsize = AtomicUsize::new(UNKNOWN);
    const UNKNOWN: usize = 0;
    const NONE: usize = 1;
    let mut function = FUNCTION.load(Ordering::Relaxed);
    if function == UNKNOWN {
        function = find_in_vdso().unwrap_or(NONE);
        FUNCTION.store(function, Ordering::Relaxed);
    }
    // SAFETY: the address of a function of this type, which stays mapped.
    (function != NONE).then(|| unsafe { transmute::<usize, GetTime>(function) })
}

#[cold]
fn find_in_vdso() -> Option<usize> {
    let name: &[u8] = match std::env::consts::ARCH {
        "aarch64" => b"__kernel_clock_gettime",
        _ => b"__vdso_clock_gettime",
    };
    // SAFETY: no memory is passed.
    let start = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
    if start == 0 {
        return None;
    }
    // SAFETY: the kernel maps a complete ELF object there.
    unsafe {
        let header = &*(start as *const libc::Elf64_Ehdr);
        let headers = (start + header.e_phoff as usize) as *const libc::Elf64_Phdr;
        let headers = std::slice::from_raw_parts(headers, usize::from(header.e_phnum));
        let loaded = headers.iter().find(|header| header.p_type == libc::PT_LOAD)?;
        let base = start.wrapping_add(loaded.p_offset as usize) - loaded.p_vaddr as usize;
        let dynamic = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
        let entries = (start + dynamic.p_offset as usize) as *const [u64; 2];
        Dynamic::new(base, entries).function(name)
    }
}

/// How far the clock of this process's time namespace is ahead of the host's, in nanoseconds.
#[inline]
fn offset() -> i64 {
    static OFFSET: AtomicI64 = AtomicI64::new(UNKNOWN);
    const UNKNOWN: i64 = i64::MIN;
    let mut offset = OFFSET.load(Ordering::Relaxed);
    if offset == UNKNOWN {
        offset = read_offset().unwrap_or(0);
        OFFSET.store(offset, Ordering::Relaxed);
    }
    offset
}

/// The first line of the file is such as `monotonic           1000         0`. The file is about the
/// namespace of future children, which is another one after `unshare`.
#[cold]
fn read_offset() -> Option<i64> {
    let is_ours = inode(c"/proc/self/ns/time")? == inode(c"/proc/self/ns/time_for_children")?;
    let mut text = [0; 256];
    // SAFETY: a C string; the buffer and its size. Bare system calls are no cancellation points.
    let length = unsafe {
        let (path, flags) = (c"/proc/self/timens_offsets", libc::O_RDONLY | libc::O_CLOEXEC);
        let file = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags);
        if file < 0 {
            return None;
        }
        let length = libc::syscall(libc::SYS_read, file, text.as_mut_ptr(), text.len());
        libc::syscall(libc::SYS_close, file);
        usize::try_from(length).ok()?
    };
    let text = std::str::from_utf8(text.get(..length)?).ok()?;
    let mut words = text.lines().next()?.split_whitespace();
    if !is_ours || words.next()? != "monotonic" {
        return None;
    }
    let (seconds, nanoseconds): (i64, i64) =
        (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    seconds.checked_mul(SECOND as i64)?.checked_add(nanoseconds)
}

fn inode(path: &std::ffi::CStr) -> Option<u64> {
    // SAFETY: stat is plain data for which zero is a value; a C string and a local variable.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        (libc::stat(path.as_ptr(), &raw mut status) == 0).then_some(status.st_ino)
    }
}

const _: () = assert!(size_of::<GetTime>() == size_of::<usize>());

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn it_is_the_monotonic_clock() {
        assert!(vdso().is_some());
        let before = libc_ns();
        let now = monotonic_ns();
        assert!((before..=libc_ns()).contains(&now.wrapping_add_signed(offset())));
        let until = timespec(now + SECOND);
        let own = until.tv_sec as u64 * SECOND + until.tv_nsec as u64;
        assert_eq!(own, now.wrapping_add_signed(offset()) + SECOND);
    }

    fn libc_ns() -> u64 {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a local variable.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32).as_nanos() as u64
    }
}
