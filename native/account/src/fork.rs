//! The fork lock, and the number by which a child recognises that it is one.
//!
//! While one thread opens the account and has not yet hidden it from children, a fork in another
//! thread would give the child the lock that proves that this process lives; the slot would then
//! outlive its process. So those few instructions run under a lock that every fork takes first. The
//! handlers are registered when the lock is first needed, never when the library is loaded.
//!
//! A child that a bare `clone` creates runs no handlers and is not recognised. A lock that it
//! inherits in that window is released when the child exits.

use hami_limits::futex::pause;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The thread that holds the lock, `pid << 32 | tid`, or 0. The pid identifies inherited values.
static HOLDER: AtomicU64 = AtomicU64::new(0);
/// Whether the holder is a fork in progress.
static FORKING: AtomicBool = AtomicBool::new(false);
static REGISTERED: AtomicBool = AtomicBool::new(false);
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Far longer than any work under the lock. A fork that has waited this long proceeds.
const DEADLINE: Duration = Duration::from_secs(1);

/// The number of forks between the first process and this one. Values in memory from another
/// generation (a [`crate::Member`], a table of allocations) do not belong to this process.
#[inline]
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// While this exists, no other thread of this process forks.
pub(crate) struct NoFork(());

impl NoFork {
    pub fn begin() -> io::Result<Self> {
        if !take() {
            let message = "another thread has held the fork lock for a second";
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
        let guard = Self(());
        if !REGISTERED.load(Ordering::Relaxed) {
            // SAFETY: the handlers only use atomics and system calls.
            let failed = unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) };
            if failed != 0 {
                return Err(io::Error::from_raw_os_error(failed));
            }
            // Only afterwards: a fork meanwhile takes no lock yet, and a child that inherited this
            // without the handlers would never register them. If it inherits the handlers without
            // this, it registers them twice, which does no harm.
            REGISTERED.store(true, Ordering::Release);
        }
        Ok(guard)
    }
}

impl Drop for NoFork {
    fn drop(&mut self) {
        HOLDER.store(0, Ordering::Release);
    }
}

fn this_thread() -> u64 {
    // SAFETY: neither call takes arguments or can fail.
    let (pid, tid) = unsafe { (libc::getpid(), libc::syscall(libc::SYS_gettid)) };
    u64::from(pid as u32) << 32 | u64::from(tid as u32)
}

/// False after the deadline, or at once if this thread already holds the lock (a signal handler
/// that forks).
fn take() -> bool {
    let me = this_thread();
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
    // Only if `before` took the lock in this thread: it may have timed out, and another thread may
    // hold it.
    if HOLDER.load(Ordering::Relaxed) == this_thread() && FORKING.swap(false, Ordering::Relaxed) {
        HOLDER.store(0, Ordering::Release);
    }
}

extern "C" fn child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    FORKING.store(false, Ordering::Relaxed);
    HOLDER.store(0, Ordering::Release);
}
