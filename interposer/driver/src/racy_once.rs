//! A value that is set once. No thread waits for another one to set it.
//!
//! With std's `OnceLock` one thread computes the value and the others wait. If the process forks at
//! that moment, the child has no such thread, and a thread of the child waits forever. Here threads
//! that race all compute a value, and the first one stays.

use std::sync::atomic::{AtomicPtr, Ordering};

/// A cell that is empty until a value is set, which then stays for the life of the process.
pub struct RacyOnce<T: 'static>(AtomicPtr<T>);

impl<T> RacyOnce<T> {
    /// An empty cell.
    #[allow(clippy::new_without_default)] // only statics are made of it
    pub const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// The value, if it is set.
    #[inline]
    pub fn get(&self) -> Option<&'static T> {
        // SAFETY: `set` leaked what is stored here, and it never changes.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// The value. If it is not set, `compute` makes one, which is dropped if another thread was
    /// first.
    #[inline]
    pub fn get_or_init(&self, compute: impl FnOnce() -> T) -> &'static T {
        self.get().unwrap_or_else(|| self.set(compute))
    }

    #[cold]
    #[inline(never)] // or the stack frame of each caller would have room for the value
    fn set(&self, compute: impl FnOnce() -> T) -> &'static T {
        let ours = Box::into_raw(Box::new(compute()));
        let empty = std::ptr::null_mut();
        match self.0.compare_exchange(empty, ours, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: stored now, and so never freed.
            Ok(_) => unsafe { &*ours },
            Err(first) => {
                // SAFETY: only this thread has `ours`; `first` is stored, and so never freed.
                unsafe {
                    drop(Box::from_raw(ours));
                    &*first
                }
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // this is our own process, threads and all
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::thread;

    #[test]
    fn all_threads_get_the_first_value() {
        static VALUE: RacyOnce<usize> = RacyOnce::new();
        static START: Barrier = Barrier::new(8);
        assert!(VALUE.get().is_none());
        let get = |own: usize| {
            thread::spawn(move || {
                START.wait();
                *VALUE.get_or_init(|| own)
            })
        };
        let threads: Vec<_> = (0..8).map(get).collect();
        let values: Vec<_> = threads.into_iter().filter_map(|thread| thread.join().ok()).collect();
        assert_eq!(values.len(), 8);
        assert!(values.iter().all(|value| Some(value) == VALUE.get()));
    }

    #[test]
    fn a_child_forked_while_a_thread_computes_the_value_computes_its_own() {
        static VALUE: RacyOnce<u32> = RacyOnce::new();
        static COMPUTING: Barrier = Barrier::new(2);
        static FORKED: Barrier = Barrier::new(2);
        let computing = thread::spawn(|| {
            *VALUE.get_or_init(|| {
                COMPUTING.wait();
                FORKED.wait();
                1
            })
        });
        COMPUTING.wait();
        // SAFETY: the child only reads the value and exits; the alarm ends it if it waits forever.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            unsafe {
                libc::alarm(10);
                libc::_exit(i32::from(*VALUE.get_or_init(|| 2) != 2));
            }
        }
        FORKED.wait();
        let mut status = -1;
        // SAFETY: our own child and a local variable.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0);
        assert_eq!(computing.join().ok(), Some(1));
    }
}
