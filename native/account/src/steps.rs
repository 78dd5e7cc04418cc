//! Named instants at which a test can delay or kill a process.
//!
//! Races in this crate last nanoseconds, and a crash test must hit single instructions; tests that
//! wait for chance pass with broken code. A release build has no hook and no cost.

/// An instant between two instructions that another process could observe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Joining: the slot's lock is held, the slot is still free.
    SlotLocked,
    /// Joining: the slot is taken.
    SlotTaken,
    /// Charging: the request is tentative in the own word, and nothing was summed yet.
    Published,
    /// Charging: between two words of a sum.
    Summing,
    /// Charging: the request fits and will be committed next.
    BeforeCommit,
    /// Charging: the request is committed, and the caller does not know yet.
    Committed,
    /// Charging: the request does not fit and will be withdrawn next.
    BeforeWithdraw,
    /// Charging: between the two readings of the committed words that a refusal needs.
    Counted,
    /// Charging: the slow lock is held, and nothing is published.
    SlowLocked,
    /// Charging: the slow lock will be released next.
    BeforeSlowUnlock,
    /// Charging: the requests of others are being revoked.
    Revoked,
    /// Uncharging: the word will be lowered next.
    BeforeUncharge,
    /// Uncharging: the word is lowered, and the release is not counted yet.
    Uncharged,
    /// Reaping: no process can join in the dead process's slot, and nothing was changed.
    Reaping,
    /// Reaping: tentative bytes are dropped, and committed ones still count.
    TentativeDropped,
    /// Reaping: between the words of two cards.
    CardCleared,
    /// Reaping: all words are zero, and the slot is still taken.
    BeforeFree,
}

#[cfg(debug_assertions)]
mod hook {
    use super::Step;
    use std::sync::atomic::{AtomicPtr, Ordering};

    static HOOK: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

    /// Calls `hook` at every step from now on, in this process and those it forks.
    pub fn set_hook(hook: Option<fn(Step)>) {
        HOOK.store(hook.map_or(std::ptr::null_mut(), |hook| hook as *mut ()), Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn at(step: Step) {
        let hook = HOOK.load(Ordering::Relaxed);
        if !hook.is_null() {
            // SAFETY: only `set_hook` stores here, and only such function pointers.
            let hook = unsafe { std::mem::transmute::<*mut (), fn(Step)>(hook) };
            hook(step);
        }
    }
}

#[cfg(not(debug_assertions))]
mod hook {
    #[inline(always)]
    pub(crate) fn at(_: super::Step) {}
}

pub(crate) use hook::at;
#[cfg(debug_assertions)]
pub use hook::set_hook;
