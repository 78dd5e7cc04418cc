//! A value that is decided once, without anybody waiting for anybody.
//!
//! std's OnceLock lets one thread decide and the others wait. A fork in that moment leaves a child in
//! which the deciding thread does not exist, and whoever asks there waits for ever. Here racing
//! threads decide for themselves, and the first answer stands.

use std::sync::atomic::{AtomicPtr, Ordering};

/// Empty until the first answer; then the same for the rest of the process's life.
pub(crate) struct Settled<T: 'static>(AtomicPtr<T>);

impl<T> Settled<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// The answer, if there is one yet.
    #[inline]
    pub(crate) fn get(&self) -> Option<&'static T> {
        // SAFETY: what is stored here was leaked by `get_or_decide` and never changes.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// The answer; `decide` gives it where there is none yet, and may be called in vain.
    #[inline]
    pub(crate) fn get_or_decide(&self, decide: impl FnOnce() -> T) -> &'static T {
        self.get().unwrap_or_else(|| self.settle(decide()))
    }

    #[cold]
    fn settle(&self, answer: T) -> &'static T {
        let mine = Box::into_raw(Box::new(answer));
        let empty = std::ptr::null_mut();
        match self.0.compare_exchange(empty, mine, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: stored now, and so never freed.
            Ok(_) => unsafe { &*mine },
            Err(first) => {
                // SAFETY: nobody else has seen `mine`; `first` is stored, and so never freed.
                unsafe {
                    drop(Box::from_raw(mine));
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
    fn all_threads_get_the_first_answer() {
        static VALUE: Settled<usize> = Settled::new();
        static START: Barrier = Barrier::new(8);
        assert!(VALUE.get().is_none());
        let ask = |mine: usize| {
            thread::spawn(move || {
                START.wait();
                *VALUE.get_or_decide(|| mine)
            })
        };
        let threads: Vec<_> = (0..8).map(ask).collect();
        let answers: Vec<_> = threads.into_iter().filter_map(|thread| thread.join().ok()).collect();
        assert_eq!(answers.len(), 8);
        assert!(answers.iter().all(|answer| Some(answer) == VALUE.get()));
    }

    /// In the child of a fork nobody is deciding any more; it decides for itself.
    #[test]
    fn a_child_forked_while_a_thread_decides_gets_an_answer() {
        static VALUE: Settled<u32> = Settled::new();
        static DECIDING: Barrier = Barrier::new(2);
        static FORKED: Barrier = Barrier::new(2);
        let decider = thread::spawn(|| {
            *VALUE.get_or_decide(|| {
                DECIDING.wait();
                FORKED.wait();
                1
            })
        });
        DECIDING.wait();
        // SAFETY: the child only asks and leaves; the alarm ends it if it waits for ever.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            unsafe {
                libc::alarm(10);
                libc::_exit(i32::from(*VALUE.get_or_decide(|| 2) != 2));
            }
        }
        FORKED.wait();
        let mut status = -1;
        // SAFETY: our own child and a local variable.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0);
        assert_eq!(decider.join().ok(), Some(1));
    }
}
