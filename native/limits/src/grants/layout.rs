//! The page as a type, and a grant as one word. No I/O.

use std::mem::{offset_of, size_of};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::file::FileKind;
use crate::page::MAX_ROWS;

/// The slots of an account.
pub const SLOTS: usize = 256;

pub(super) const SIZE: usize = size_of::<Layout>();
pub(super) const FILE: FileKind = FileKind { name: "grants page", magic: *b"HAMIGRA1", size: SIZE };

#[repr(C, align(4096))]
pub(super) struct Layout {
    head: [u8; 32],
    pub pulse: AtomicU64,
    pub regulated: AtomicU32,
    pub swept_at: AtomicU64,
    pub rows: [GrantRow; MAX_ROWS],
    pub departed: [AtomicU64; SLOTS],
}

#[repr(C, align(64))]
pub(super) struct GrantRow {
    /// Loaded and stored as a whole. Processes wait on its first half.
    word: AtomicU64,
    until: AtomicU64,
    depth: AtomicU64,
    others: AtomicU64,
    unblock: AtomicU64,
}

const _: () = assert!(SIZE == 4096 && size_of::<GrantRow>() == 64);
const _: () = assert!(offset_of!(Layout, pulse) == 32);
const _: () = assert!(offset_of!(Layout, regulated) == 40);
const _: () = assert!(offset_of!(Layout, swept_at) == 48);
const _: () = assert!(offset_of!(Layout, rows) == 64);
const _: () = assert!(offset_of!(Layout, departed) == 1088);
const _: () = assert!(offset_of!(GrantRow, word) == 0 && offset_of!(GrantRow, until) == 8);
const _: () = assert!(offset_of!(GrantRow, depth) == 16 && offset_of!(GrantRow, others) == 24);
const _: () = assert!(offset_of!(GrantRow, unblock) == 32);

/// The content of a row: which process may launch on the card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// The number of the grant. A process's answer carries the number of the grant that it answers.
    pub number: u32,
    /// Which processes may launch.
    pub kind: Kind,
    /// The processes that may launch; without meaning for [`Kind::Own`].
    pub holder: Holder,
    /// The end of the lease, in nanoseconds of `CLOCK_MONOTONIC`; only for [`Kind::Lease`].
    pub until: u64,
    /// The most work that a process should have in flight, in nanoseconds of engine time; 0 if there
    /// is no coordinator.
    pub depth: u64,
    /// How many processes of other slices have the card too; only for [`Kind::Lease`].
    pub others: u32,
    /// The launches of a slice whose work makes no progress, and that go on without admission. Bits
    /// 32 and up are the number of the round, of which no two that follow each other are equal; bit
    /// 31 is [`UNBLOCKS_IDLE`]; the others are how many of its waiting launches each process makes.
    /// 0 if there has been none.
    pub unblock: u64,
}

/// In [`Grant::unblock`]: only processes with nothing in flight take part in the round.
pub const UNBLOCKS_IDLE: u64 = 1 << 31;

/// The kinds of grants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// No coordinator decides here: each process limits itself by its own bucket.
    #[default]
    Own,
    /// The holder launches as its own bucket allows, without leases; others wait.
    Alone,
    /// Only the holder may launch, until `until`.
    Lease,
}

/// The processes of the slice that a grant is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Holder {
    /// No process of the slice.
    #[default]
    None,
    /// The process in this slot of the account.
    Slot(u16),
    /// Every process of the slice.
    All,
}

const ALL: u16 = 0xffff;
const NONE: u16 = 0xfffe;

impl Grant {
    pub(super) fn encode(self) -> u64 {
        let holder = match self.holder {
            Holder::All => ALL,
            Holder::None => NONE,
            Holder::Slot(slot) => slot,
        };
        u64::from(self.number) | (self.kind as u64) << 32 | u64::from(holder) << 48
    }

    /// Any word is safe to pass. An unknown kind counts as [`Kind::Own`].
    pub(super) fn decode(word: u64, [until, depth, others, unblock]: [u64; 4]) -> Self {
        let kind = match (word >> 32) as u16 {
            1 => Kind::Alone,
            2 => Kind::Lease,
            _ => Kind::Own,
        };
        let holder = match (word >> 48) as u16 {
            ALL => Holder::All,
            NONE => Holder::None,
            slot => Holder::Slot(slot),
        };
        Self { number: word as u32, kind, holder, until, depth, others: others as u32, unblock }
    }
}

impl GrantRow {
    /// The grant now. If the row changes several times during the call, a lease without a holder.
    pub fn read(&self) -> Grant {
        let mut word = self.load();
        for _ in 0..4 {
            let rest = [&self.until, &self.depth, &self.others, &self.unblock]
                .map(|field| u64::from_le(field.load(Ordering::Relaxed)));
            fence(Ordering::Acquire);
            let still = self.load();
            if still == word {
                return Grant::decode(word, rest);
            }
            word = still;
        }
        let number = Grant::decode(word, [0; 4]).number;
        Grant { number, kind: Kind::Lease, ..Grant::default() }
    }

    /// Stores a grant. Only the coordinator calls it.
    pub fn write(&self, grant: Grant) {
        let old = Grant::decode(self.load(), [0; 4]);
        let word = grant.encode();
        if old.kind == Kind::Lease && old.encode() != word {
            self.close(old.number);
        }
        self.unblock.store(grant.unblock.to_le(), Ordering::Relaxed);
        self.others.store(u64::from(grant.others).to_le(), Ordering::Relaxed);
        self.depth.store(grant.depth.to_le(), Ordering::Relaxed);
        self.until.store(grant.until.to_le(), Ordering::Relaxed);
        self.word.store(word.to_le(), Ordering::Release);
    }

    /// Takes the lease from its holder. Afterwards `until` may belong to another lease.
    pub(super) fn close(&self, number: u32) {
        let closed = Grant { number, kind: Kind::Lease, ..Grant::default() };
        self.word.store(closed.encode().to_le(), Ordering::Relaxed);
        fence(Ordering::Release);
    }

    /// The futex on which processes wait for another grant.
    pub fn number_word(&self) -> &AtomicU32 {
        // SAFETY: the first half of an aligned 8-byte word that lives as long as self. It is only
        // loaded or waited on, and the kernel compares only these four bytes.
        unsafe { &*self.word.as_ptr().cast::<AtomicU32>() }
    }

    // Only relaxed atomic loads are allowed on memory that is mapped read-only (std::sync::atomic,
    // "Atomic accesses to read-only memory"). Fences order them.
    fn load(&self) -> u64 {
        let word = u64::from_le(self.word.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        word
    }
}
