//! What a fork must not copy, and how a child learns that it is one.
//!
//! Between opening the account and hiding it from children, a fork in another thread would give
//! the child the lock that says this process lives; the slot would then outlive its process. So
//! those few instructions run under a lock that every fork takes first. The handlers are registered
//! when it is first needed, never when the library is loaded.
//!
//! A child made by a bare `clone` runs no handlers: it does not learn that it is one. What it could
//! inherit in that window ends with it.

use hami_limits::futex::pause;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Who holds the lock: `pid << 32 | tid`, or 0. The pid tells an inherited value from a real one.
static HOLDER: AtomicU64 = AtomicU64::new(0);
/// The holder is a fork that is under way.
static FORKING: AtomicBool = AtomicBool::new(false);
static REGISTERED: AtomicBool = AtomicBool::new(false);
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Far longer than anything that is done under the lock; a fork that waits this long goes ahead.
const DEADLINE: Duration = Duration::from_secs(1);

/// How many forks lie between the first process and this one. What a process of another generation
/// left in memory (a [`crate::Member`], a table of allocations) is not this one's.
#[inline]
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// While this exists, no other thread of this process forks.
pub(crate) struct NoFork(());

impl NoFork {
    pub fn begin() -> io::Result<Self> {
        if !take() {
            let message = "another thread kept the account from being opened for a second";
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
        let guard = Self(());
        if !REGISTERED.swap(true, Ordering::Relaxed) {
            // SAFETY: the handlers only use atomics and system calls.
            let failed = unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) };
            if failed != 0 {
                REGISTERED.store(false, Ordering::Relaxed);
                return Err(io::Error::from_raw_os_error(failed));
            }
        }
        Ok(guard)
    }
}

impl Drop for NoFork {
    fn drop(&mut self) {
        HOLDER.store(0, Ordering::Release);
    }
}

fn myself() -> u64 {
    // SAFETY: neither call takes arguments or can fail.
    let (pid, tid) = unsafe { (libc::getpid(), libc::syscall(libc::SYS_gettid)) };
    u64::from(pid as u32) << 32 | u64::from(tid as u32)
}

/// False after the deadline, or at once where this very thread holds the lock (a signal handler
/// that forks).
fn take() -> bool {
    let me = myself();
    let deadline = Instant::now() + DEADLINE;
    loop {
        let holder = HOLDER.load(Ordering::Relaxed);
        if holder == me {
            return false;
        }
        let inherited = holder >> 32 != me >> 32;
        if (holder == 0 || inherited)
            && HOLDER.compare_exchange(holder, me, Ordering::Acquire, Ordering::Relaxed).is_ok()
        {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        pause(Duration::from_micros(20));
    }
}

extern "C" fn before() {
    if take() {
        FORKING.store(true, Ordering::Relaxed);
    }
}

extern "C" fn parent() {
    // Only if `before` took it in this thread: it may have given up, and another may hold it.
    if HOLDER.load(Ordering::Relaxed) == myself() && FORKING.swap(false, Ordering::Relaxed) {
        HOLDER.store(0, Ordering::Release);
    }
}

extern "C" fn child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    FORKING.store(false, Ordering::Relaxed);
    HOLDER.store(0, Ordering::Release);
}
