//! Calls that must not come back to this library's own interposed functions: direct system calls,
//! and the C library's functions.

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A system call; a negative result is an error number.
#[cfg(target_arch = "x86_64")]
pub unsafe fn call(number: libc::c_long, a: [usize; 6]) -> isize {
    let answer;
    // SAFETY: the caller answers for the arguments; the kernel changes these three registers alone.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2], in("r10") a[3], in("r8") a[4],
            in("r9") a[5], lateout("rcx") _, lateout("r11") _, options(nostack),
        );
    }
    answer
}

/// A system call; a negative result is an error number.
#[cfg(target_arch = "aarch64")]
pub unsafe fn call(number: libc::c_long, a: [usize; 6]) -> isize {
    let answer;
    // SAFETY: as above.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number, inlateout("x0") a[0] as isize => answer,
            in("x1") a[1], in("x2") a[2], in("x3") a[3], in("x4") a[4], in("x5") a[5],
            options(nostack),
        );
    }
    answer
}

/// A result in libc's form: -1 and `errno`.
pub fn answer(value: isize) -> libc::c_long {
    if (-4095..0).contains(&value) {
        return fail(-value as i32);
    }
    value as libc::c_long
}

/// -1, with this `errno`.
pub fn fail(error: i32) -> libc::c_long {
    // SAFETY: the address is this thread's own.
    unsafe { *libc::__errno_location() = error };
    -1
}

/// The kernel's number of this thread.
pub fn thread_id() -> u32 {
    // SAFETY: no arguments, no failure.
    unsafe { call(libc::SYS_gettid, [0; 6]) as u32 }
}

/// The kernel's number of this process.
pub fn process_id() -> u32 {
    // SAFETY: no arguments, no failure.
    unsafe { call(libc::SYS_getpid, [0; 6]) as u32 }
}

/// The system's own clock in nanoseconds.
pub fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a place for the answer.
    unsafe { call(libc::SYS_clock_gettime, [id as usize, &raw mut time as usize, 0, 0, 0, 0]) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Sleeps in real time.
pub fn sleep(time: Duration) {
    let time = timespec(time);
    // SAFETY: `time` is valid; an early wake-up is harmless.
    unsafe { call(libc::SYS_nanosleep, [&raw const time as usize, 0, 0, 0, 0, 0]) };
}

/// Waits in real time, at most so long, while the word is `expected`; may return early.
pub fn futex_wait(word: *const u32, expected: u32, time: Duration) {
    let time = timespec(time);
    let arguments = [
        word as usize,
        libc::FUTEX_WAIT as usize,
        expected as usize,
        &raw const time as usize,
        0,
        0,
    ];
    // SAFETY: the word is mapped for as long as this process lives.
    unsafe { call(libc::SYS_futex, arguments) };
}

/// Wakes a thread that waits for the word in real time.
pub fn futex_wake(word: *const u32) {
    // SAFETY: as in `futex_wait`.
    unsafe {
        call(libc::SYS_futex, [word as usize, libc::FUTEX_WAKE as usize, 1, 0, 0, 0]);
    }
}

fn timespec(time: Duration) -> libc::timespec {
    libc::timespec { tv_sec: time.as_secs() as libc::time_t, tv_nsec: time.subsec_nanos().into() }
}

/// One function, looked up when it is first needed.
#[derive(Debug)]
pub struct Real {
    name: &'static CStr,
    address: AtomicUsize,
}

impl Real {
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicUsize::new(0) }
    }

    /// Its address; the program ends if there is none.
    pub fn address(&self) -> usize {
        match self.address.load(Ordering::Relaxed) {
            0 => self.find(),
            address => address,
        }
    }

    #[cold]
    fn find(&self) -> usize {
        // SAFETY: the name is a C string.
        let address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) } as usize;
        assert_ne!(address, 0, "stub-clock: {:?} is not there", self.name);
        self.address.store(address, Ordering::Relaxed);
        address
    }
}

/// `real!(usleep as fn(libc::useconds_t) -> c_int)` is the C library's function of that name; for
/// use in `unsafe`, since nothing checks that it has this signature.
macro_rules! real {
    ($name:ident as fn($($argument:ty),* $(,)?) -> $result:ty) => {{
        static REAL: $crate::raw::Real = {
            const NAME: &str = concat!(stringify!($name), "\0");
            match std::ffi::CStr::from_bytes_with_nul(NAME.as_bytes()) {
                Ok(name) => $crate::raw::Real::new(name),
                Err(_) => panic!("a name without zeroes"),
            }
        };
        std::mem::transmute::<usize, unsafe extern "C" fn($($argument),*) -> $result>(REAL.address())
    }};
}
pub(crate) use real;
