//! The page as a type, and a grant as one word. No I/O.

use std::mem::{offset_of, size_of};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::file::FileKind;
use crate::page::MAX_ROWS;

pub(super) const SIZE: usize = size_of::<Layout>();
pub(super) const FILE: FileKind =
    FileKind { name: "grants page", magic: *b"HAMIGRA1", version: 1, size: SIZE };

#[repr(C, align(4096))]
pub(super) struct Layout {
    head: [u8; 32],
    pub pulse: AtomicU64,
    pub regulated: AtomicU32,
    pub rows: [Row; MAX_ROWS],
}

#[repr(C, align(64))]
pub(super) struct Row {
    /// Read and stored as a whole; processes wait for its first half.
    word: AtomicU64,
    until: AtomicU64,
}

const _: () = assert!(SIZE == 4096 && size_of::<Row>() == 64);
const _: () = assert!(offset_of!(Layout, pulse) == 32);
const _: () = assert!(offset_of!(Layout, regulated) == 40);
const _: () = assert!(offset_of!(Layout, rows) == 64);
const _: () = assert!(offset_of!(Row, word) == 0 && offset_of!(Row, until) == 8);

/// What a row of the page says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Counts the grants of this row; what a process answers carries the turn that it answers to.
    pub turn: u32,
    /// What is granted.
    pub kind: Kind,
    /// To whom; without meaning for [`Kind::Own`].
    pub holder: Holder,
    /// Until when, in nanoseconds of `CLOCK_MONOTONIC`; for [`Kind::Turn`] alone.
    pub until: u64,
}

/// What a grant allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Nobody coordinates here: each process keeps to its own bucket.
    #[default]
    Own,
    /// The holder has the card to itself and launches as its own bucket allows; others wait.
    Alone,
    /// Only the holder launches, until `until`.
    Turn,
}

/// Whom a grant is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Holder {
    /// No process of this slice.
    #[default]
    Nobody,
    /// The process that has this slot of the account.
    Slot(u16),
    /// Every process of this slice.
    Everyone,
}

const EVERYONE: u16 = 0xffff;
const NOBODY: u16 = 0xfffe;

impl Grant {
    pub(super) fn encode(self) -> u64 {
        let holder = match self.holder {
            Holder::Everyone => EVERYONE,
            Holder::Nobody => NOBODY,
            Holder::Slot(slot) => slot,
        };
        u64::from(self.turn) | (self.kind as u64) << 32 | u64::from(holder) << 48
    }

    /// Any word is safe to pass. One that no coordinator writes is as if there were none.
    pub(super) fn decode(word: u64, until: u64) -> Self {
        let kind = match (word >> 32) as u16 {
            1 => Kind::Alone,
            2 => Kind::Turn,
            _ => Kind::Own,
        };
        let holder = match (word >> 48) as u16 {
            EVERYONE => Holder::Everyone,
            NOBODY => Holder::Nobody,
            slot => Holder::Slot(slot),
        };
        Self { turn: word as u32, kind, holder, until }
    }
}

impl Row {
    /// What the row says. While it is being changed a few times in a row, a turn that is nobody's.
    pub fn read(&self) -> Grant {
        let mut word = self.load();
        for _ in 0..4 {
            let until = u64::from_le(self.until.load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            let still = self.load();
            if still == word {
                return Grant::decode(word, until);
            }
            word = still;
        }
        let turn = Grant::decode(word, 0).turn;
        Grant { turn, kind: Kind::Turn, holder: Holder::Nobody, until: 0 }
    }

    /// For the one who writes; says whether it differs from what was there.
    pub fn write(&self, grant: Grant) {
        let old = Grant::decode(self.load(), 0);
        let word = grant.encode();
        if old.kind == Kind::Turn && old.encode() != word {
            self.close(old.turn);
        }
        self.until.store(grant.until.to_le(), Ordering::Relaxed);
        self.word.store(word.to_le(), Ordering::Release);
    }

    /// Takes the turn from its holder: from here on `until` may be that of another turn.
    pub(super) fn close(&self, turn: u32) {
        let closed = Grant { turn, kind: Kind::Turn, holder: Holder::Nobody, until: 0 };
        self.word.store(closed.encode().to_le(), Ordering::Relaxed);
        fence(Ordering::Release);
    }

    /// Where processes wait for another turn.
    pub fn turn_word(&self) -> &AtomicU32 {
        // SAFETY: the first half of an aligned 8-byte word that lives as long as self. It is only
        // loaded from or waited for, and the kernel compares those four bytes alone.
        unsafe { &*self.word.as_ptr().cast::<AtomicU32>() }
    }

    // Memory that is mapped read-only may be loaded from atomically only with relaxed ordering
    // (std::sync::atomic, "Atomic accesses to read-only memory"), hence the fences.
    fn load(&self) -> u64 {
        let word = u64::from_le(self.word.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        word
    }
}
