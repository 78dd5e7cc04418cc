//! The faults of the cards of a client's engine: XID errors, lost cards, failed row remapping.
//!
//! It is part of the client's page ([`crate::counters`]), so that NVML and the driver see it without
//! a message. The server writes it when a test orders a fault. In the in-process engine all cards
//! are healthy.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// XID errors that are kept. A reader that is further behind misses the oldest.
const KEPT: u64 = 64;

/// The state of all cards. Every field is valid when zero.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Health {
    /// The lost cards, one bit for each index.
    pub lost: CardSet,
    /// The cards with a failed row remapping.
    pub remap_failed: CardSet,
    /// The XID errors so far.
    pub xids: Xids,
}

/// A set of cards.
#[repr(C)]
#[derive(Debug, Default)]
pub struct CardSet(AtomicU32);

const _: () = assert!(crate::MAX_CARDS <= u32::BITS as usize);

impl CardSet {
    /// Whether the card is in the set.
    #[inline]
    pub fn has(&self, card: usize) -> bool {
        self.0.load(Ordering::Relaxed) >> card & 1 == 1
    }

    /// Adds or removes a card.
    pub fn set(&self, card: usize, is_in: bool) {
        let bit = 1 << card;
        if is_in {
            self.0.fetch_or(bit, Ordering::Relaxed);
        } else {
            self.0.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// Has the same cards as another set.
    pub fn copy_from(&self, other: &Self) {
        self.0.store(other.0.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// An XID error on a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xid {
    /// The card's index.
    pub card: usize,
    /// The number of the error.
    pub xid: u32,
}

/// The latest XID errors, in order. One writer at a time.
#[repr(C)]
#[derive(Debug)]
pub struct Xids {
    /// How many there were in total.
    written: AtomicU64,
    items: [AtomicU64; KEPT as usize],
}

impl Default for Xids {
    fn default() -> Self {
        Self { written: AtomicU64::new(0), items: [const { AtomicU64::new(0) }; KEPT as usize] }
    }
}

impl Xids {
    /// How many errors there were so far: the number of the next one.
    pub fn count(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Adds an error.
    pub fn push(&self, error: Xid) {
        let number = self.written.load(Ordering::Relaxed);
        let word = u64::from(error.xid) << 32 | error.card as u64;
        self.items[(number % KEPT) as usize].store(word, Ordering::Relaxed);
        self.written.store(number + 1, Ordering::Release);
    }

    /// The error of number `next` or the oldest kept after it, and its number.
    pub fn get(&self, next: u64) -> Option<(u64, Xid)> {
        let written = self.count();
        let number = next.max(written.saturating_sub(KEPT));
        if number >= written {
            return None;
        }
        let word = self.items[(number % KEPT) as usize].load(Ordering::Relaxed);
        Some((number, Xid { card: word as u32 as usize, xid: (word >> 32) as u32 }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_cards_that_were_added() {
        let set = CardSet::default();
        set.set(0, true);
        set.set(15, true);
        set.set(0, false);
        let copy = CardSet::default();
        copy.set(1, true);
        copy.copy_from(&set);
        for set in [set, copy] {
            assert!(set.has(15) && !set.has(0) && !set.has(1));
        }
    }

    #[test]
    fn errors_are_read_in_order_and_the_oldest_are_lost() {
        let xids = Xids::default();
        assert_eq!(xids.get(0), None);
        for xid in 0..KEPT as u32 {
            xids.push(Xid { card: 15, xid });
        }
        assert_eq!(xids.get(0), Some((0, Xid { card: 15, xid: 0 })));
        xids.push(Xid { card: 0, xid: u32::MAX });
        assert_eq!(xids.get(0), Some((1, Xid { card: 15, xid: 1 })));
        assert_eq!(xids.get(KEPT), Some((KEPT, Xid { card: 0, xid: u32::MAX })));
        assert_eq!(xids.get(KEPT + 1), None);
    }
}
