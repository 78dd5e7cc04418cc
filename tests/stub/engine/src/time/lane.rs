//! A lane from its process's side: its number, and how many items were added.

use super::{Mark, PENDING_MAX};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// An in-order queue of the machine. It gets its number with its first item, so that a stream
/// without timed work never reaches the machine.
#[derive(Debug, Default)]
pub struct Lane {
    /// 0: no item yet.
    number: AtomicU32,
    /// Items added so far.
    last: AtomicU64,
    /// Items known to be done.
    done: AtomicU64,
}

impl Lane {
    /// Its number; 0: it never had an item.
    pub fn number(&self) -> u32 {
        self.number.load(Ordering::Acquire)
    }

    /// Whether it never had an item.
    pub fn is_unused(&self) -> bool {
        self.number() == 0
    }

    /// The position of its last item; [`Mark::NONE`] when that item is known to be done.
    pub fn last(&self) -> Mark {
        let number = self.number.load(Ordering::Acquire);
        let (last, done) = (self.last.load(Ordering::Acquire), self.done.load(Ordering::Acquire));
        if number == 0 || done >= last { Mark::NONE } else { Mark::new(number, last) }
    }

    /// The mark that must be done before there is room for one more item; [`Mark::NONE`] when there
    /// is.
    pub fn room(&self) -> Mark {
        let (last, done) = (self.last.load(Ordering::Acquire), self.done.load(Ordering::Acquire));
        if last.saturating_sub(done) < PENDING_MAX {
            return Mark::NONE;
        }
        Mark::new(self.number.load(Ordering::Acquire), last + 1 - PENDING_MAX)
    }

    /// Records that everything up to a mark of this lane is done.
    pub fn note_done(&self, mark: Mark) {
        if mark.lane() == self.number.load(Ordering::Acquire) {
            self.done.fetch_max(mark.position(), Ordering::AcqRel);
        }
    }

    /// The position of a new item. Only an engine calls this, under the lock under which it adds
    /// the item, so that items arrive in the order of their positions.
    pub(crate) fn add(&self, next_number: &mut u32) -> Mark {
        if self.is_unused() {
            *next_number += 1;
            self.number.store(*next_number, Ordering::Release);
        }
        let last = self.last.fetch_add(1, Ordering::AcqRel) + 1;
        Mark::new(self.number.load(Ordering::Acquire), last)
    }

    /// Resets the lane, for a handle that is used again.
    pub fn reset(&self) {
        self.number.store(0, Ordering::Release);
        self.last.store(0, Ordering::Release);
        self.done.store(0, Ordering::Release);
    }
}
