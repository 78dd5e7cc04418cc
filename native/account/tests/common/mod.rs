//! Shared memory, child processes and a ledger, for tests of several processes.
#![allow(dead_code, reason = "each test file uses a part of it")]

use hami_account::Account;
use std::mem::{size_of, zeroed};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

pub const MIB: u64 = 1 << 20;

/// An empty account in its own directory, removed at the end of the test.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let scratch = Self::empty(name);
        Account::create(&scratch.path()).unwrap();
        scratch
    }

    /// Without an account.
    pub fn empty(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (pid, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(format!("account-{name}-{pid}-{count}"));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    pub fn path(&self) -> PathBuf {
        self.0.join("account")
    }

    pub fn folder(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Zeroed memory that this process and its children share, for the rest of their lives.
///
/// # Safety
/// Zero bytes must be a value of `T`, and `T` must be usable from several processes.
pub unsafe fn shared<T>() -> &'static T {
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, large enough for T and never unmapped.
    unsafe {
        let map = libc::mmap(null_mut(), size_of::<T>(), access, flags, -1, 0);
        assert_ne!(map, libc::MAP_FAILED);
        &*map.cast::<T>()
    }
}

/// A forked process, killed at the end of its test.
pub struct Child(libc::pid_t);

impl Child {
    /// Runs `body` in a child that exits after five minutes at the latest, whatever happens to its
    /// parent.
    pub fn run(body: impl FnOnce()) -> Self {
        print_panics_of_children();
        // SAFETY: the child does what glibc allows after fork, and leaves through _exit.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: no memory is passed.
                unsafe { libc::alarm(300) };
                let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
                // SAFETY: ends the child without running the test harness again.
                unsafe { libc::_exit(i32::from(done.is_err())) }
            }
            pid => {
                assert!(pid > 0, "fork failed");
                Self(pid)
            }
        }
    }

    pub fn pid(&self) -> i32 {
        self.0
    }

    pub fn kill(&self) {
        self.signal(libc::SIGKILL);
    }

    pub fn signal(&self, signal: libc::c_int) {
        // SAFETY: our own child, not yet reaped.
        unsafe { libc::kill(self.0, signal) };
    }

    /// Whether it still runs.
    pub fn is_alive(&self) -> bool {
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: siginfo_t is plain data for which zero is a value, and valid for the call.
        unsafe {
            let mut ended: libc::siginfo_t = zeroed();
            let asked = libc::waitid(libc::P_PID, self.0 as libc::id_t, &raw mut ended, flags);
            asked == 0 && ended.si_pid() == 0
        }
    }

    /// Waits until it is stopped; returns at once if it has ended.
    pub fn wait_until_stopped(&self) {
        let flags = libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT;
        // SAFETY: siginfo_t is plain data for which zero is a value, and valid for the call.
        unsafe {
            let mut stopped: libc::siginfo_t = zeroed();
            let pid = self.0 as libc::id_t;
            assert_eq!(libc::waitid(libc::P_PID, pid, &raw mut stopped, flags), 0);
        }
    }

    /// Waits for its exit: the exit code, or minus the signal that killed it.
    pub fn wait(self) -> i32 {
        let mut status = 0;
        // SAFETY: our own child, not yet reaped.
        unsafe { libc::waitpid(self.0, &raw mut status, 0) };
        std::mem::forget(self);
        if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) }
    }

    pub fn kill_and_wait(self) {
        self.kill();
        self.wait();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
        // SAFETY: as in `wait`.
        unsafe { libc::waitpid(self.0, null_mut(), 0) };
    }
}

/// From now on, a panic of a child is written to standard error. The test harness collects in memory
/// what a panic prints, and a child's memory ends with it.
fn print_panics_of_children() {
    static ONCE: Once = Once::new();
    // It has ended before any fork, so no child waits for it.
    ONCE.call_once(|| {
        let (parent, print) = (std::process::id(), std::panic::take_hook());
        std::panic::set_hook(Box::new(move |panic| {
            if std::process::id() == parent {
                return print(panic);
            }
            let text = format!("child {}: {panic}\n", std::process::id());
            // SAFETY: the text is valid for its length.
            unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
        }));
    });
}

/// A barrier for processes. It is libc's, so the tests use nothing that they test.
pub struct Barrier(libc::pthread_barrier_t);

impl Barrier {
    pub fn init(&self, processes: u32) {
        // SAFETY: called once, before its first use; attributes live for the calls.
        unsafe {
            let mut attributes = zeroed();
            libc::pthread_barrierattr_init(&raw mut attributes);
            libc::pthread_barrierattr_setpshared(&raw mut attributes, libc::PTHREAD_PROCESS_SHARED);
            let barrier = (&raw const self.0).cast_mut();
            assert_eq!(libc::pthread_barrier_init(barrier, &raw const attributes, processes), 0);
        }
    }

    pub fn wait(&self) {
        // SAFETY: initialised before the processes were started.
        unsafe { libc::pthread_barrier_wait((&raw const self.0).cast_mut()) };
    }
}

/// The bytes that the processes hold, guarded by an ordinary mutex: the oracle of the race tests.
/// It shares no code and no mechanism with the account.
pub struct Ledger {
    mutex: libc::pthread_mutex_t,
    held: u64,
}

impl Ledger {
    pub fn init(&self) {
        // SAFETY: called once, before its first use; attributes live for the calls.
        unsafe {
            let mut attributes = zeroed();
            libc::pthread_mutexattr_init(&raw mut attributes);
            libc::pthread_mutexattr_setpshared(&raw mut attributes, libc::PTHREAD_PROCESS_SHARED);
            let mutex = (&raw const self.mutex).cast_mut();
            assert_eq!(libc::pthread_mutex_init(mutex, &raw const attributes), 0);
        }
    }

    /// Changes what is held and returns what `change` returns.
    pub fn with<T>(&self, change: impl FnOnce(&mut u64) -> T) -> T {
        // SAFETY: the mutex is initialised and makes this the only access to `held`.
        unsafe {
            let mutex = (&raw const self.mutex).cast_mut();
            assert_eq!(libc::pthread_mutex_lock(mutex), 0);
            let result = change(&mut *(&raw const self.held).cast_mut());
            libc::pthread_mutex_unlock(mutex);
            result
        }
    }
}

/// The same random numbers in every run.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % end
    }
}

pub fn yield_now() {
    // SAFETY: no memory is passed.
    unsafe { libc::sched_yield() };
}

/// Waits until `flag` is not zero. The child's alarm ends a wait that never succeeds.
pub fn wait_for(flag: &AtomicU32) {
    while flag.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
}
