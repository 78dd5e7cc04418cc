//! The account file as a type, and a word as a number. The layout is documented in `lib.rs`.

use hami_limits::FileKind;
use std::mem::{offset_of, size_of};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// The most processes of a slice. The kernel's time to probe their locks grows with the square.
pub const SLOTS: usize = 256;
/// The most cards of a slice. Row i of the limits page is card i.
pub const CARDS: usize = hami_limits::page::MAX_ROWS;
/// Bytes per unit; a request is rounded up to whole units.
pub const UNIT: u64 = 512;

pub(crate) const SIZE: usize = size_of::<Layout>();
pub(crate) const FILE: FileKind =
    FileKind { name: "account", magic: *b"HAMIACC1", version: 2, size: SIZE };

/// `Record::state` of a free slot. All its words are zero.
pub(crate) const FREE: u32 = 0;
/// `Record::state` of the slot of a process, alive or dead but not reaped.
pub(crate) const TAKEN: u32 = 1;

#[repr(C, align(4096))]
pub(crate) struct Layout {
    pub header: Header,
    pub words: [[AtomicU64; SLOTS]; CARDS],
    pub records: [Record; SLOTS],
    pub compute: [[ComputeWords; SLOTS]; CARDS],
}

#[repr(C, align(4096))]
pub(crate) struct Header {
    pub identity: Identity,
    pub high_water: Line<AtomicU32>,
    pub slow_lock: Line<AtomicU32>,
    pub probed_at: Line<AtomicU64>,
    pub departed: Counters,
    pub wake: Line<AtomicU32>,
    pub departed_compute: ComputeSums,
}

/// The part of the header that never changes. It is checked by `pread`, never in the mapping.
#[repr(C, align(64))]
pub(crate) struct Identity {
    pub magic: [u8; 8],
    pub version: u32,
    pub size: u32,
}

#[repr(C, align(256))]
pub(crate) struct Record {
    pub state: AtomicU32,
    pub pid: AtomicU32,
    pub start_time: AtomicU64,
    pub pid_namespace: AtomicU64,
    pub dead_since: AtomicU64,
    /// How often the process has started to lower one of its words, and how often it has finished.
    pub releases_begun: AtomicU32,
    pub releases_done: AtomicU32,
    /// When the process joined, in nanoseconds since boot. It distinguishes a process from the one that runs
    /// under the same pid after exec.
    pub joined_at: AtomicU64,
    pub counters: Counters,
}

/// Counters for people; no decision depends on them.
#[repr(C, align(64))]
pub(crate) struct Counters {
    pub refusals: [AtomicU64; CARDS],
    /// Subtractions that would have gone below zero.
    pub anomalies: AtomicU64,
}

/// One process's use of a card's engine. Only that process writes it. Times are nanoseconds.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct ComputeWords {
    /// A [`crate::ComputeState`] in the low half; in the high half the turn that the process had seen
    /// when it wrote the state. If that turn is not the current one, the state answers an older grant.
    pub state: AtomicU64,
    /// Engine time so far: how long the card was busy with kernels of the process.
    pub used_ns: AtomicU64,
    /// Wall time for which threads of the process waited for permission to launch.
    pub throttled_ns: AtomicU64,
    /// How far the process's own bucket is below zero now.
    pub debt_ns: AtomicU64,
    /// When the process last checked its work on the card (`CLOCK_MONOTONIC`): a heartbeat while work
    /// runs.
    pub active_at: AtomicU64,
    /// The same time for the other processes of the slice, which divide its share if there is no
    /// coordinator, or if the slice is inside another one that has the turns.
    pub metered_at: AtomicU64,
    /// The debt of the process's own bucket ([`crate::Owed::to_word`]).
    pub owed: AtomicU64,
    reserved: u64,
}

/// Sums per card over the processes whose slots are free again.
#[repr(C, align(64))]
pub(crate) struct ComputeSums {
    pub used_ns: [AtomicU64; CARDS],
    pub throttled_ns: [AtomicU64; CARDS],
    /// The one of their debts that would be paid last.
    pub owed: [AtomicU64; CARDS],
}

/// A value in its own cache line.
#[repr(C, align(64))]
pub(crate) struct Line<T>(pub T);

const _: () = assert!(SIZE == 364_544);
const _: () = assert!(offset_of!(Layout, words) == 4096);
const _: () = assert!(offset_of!(Layout, records) == 36_864);
const _: () = assert!(offset_of!(Layout, compute) == 102_400);
const _: () = assert!(offset_of!(Header, high_water) == 64);
const _: () = assert!(offset_of!(Header, slow_lock) == 128);
const _: () = assert!(offset_of!(Header, probed_at) == 192);
const _: () = assert!(offset_of!(Header, departed) == 256);
const _: () = assert!(offset_of!(Header, wake) == 448);
const _: () = assert!(offset_of!(Header, departed_compute) == 512);
const _: () = assert!(offset_of!(Record, counters) == 64);
const _: () = assert!(size_of::<ComputeWords>() == 64);
const _: () = assert!(offset_of!(ComputeWords, used_ns) == 8);
const _: () = assert!(offset_of!(ComputeWords, throttled_ns) == 16);
const _: () = assert!(offset_of!(ComputeWords, debt_ns) == 24);
const _: () = assert!(offset_of!(ComputeWords, active_at) == 32);
const _: () = assert!(offset_of!(ComputeWords, metered_at) == 40);
const _: () = assert!(offset_of!(ComputeWords, owed) == 48);

/// One process's units on one card: `committed` is charged, `tentative` is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(pub u64);

impl Word {
    pub const fn committed(self) -> u64 {
        self.0 >> 32
    }

    pub const fn tentative(self) -> u64 {
        self.0 & 0xffff_ffff
    }

    pub const fn total(self) -> u64 {
        self.committed() + self.tentative()
    }

    /// The word with `units` more tentative; `None` if one half could then overflow into the other.
    pub const fn publish(self, units: u64) -> Option<Word> {
        if self.total() + units > 0xffff_ffff { None } else { Some(Word(self.0 + units)) }
    }

    /// The number that, added to a word, turns `units` of its tentative into committed.
    pub const fn commit(units: u64) -> u64 {
        (units << 32) - units
    }

    /// The word without `units` of its tentative.
    pub const fn withdraw(self, units: u64) -> Option<Word> {
        if self.tentative() < units { None } else { Some(Word(self.0 - units)) }
    }

    /// The word without `units` of its committed.
    pub const fn release(self, units: u64) -> Option<Word> {
        if self.committed() < units { None } else { Some(Word(self.0 - (units << 32))) }
    }

    pub const fn without_committed(self) -> Word {
        Word(self.tentative())
    }

    pub const fn without_tentative(self) -> Word {
        Word(self.committed() << 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_half_of_a_word_never_overflows_into_the_other() {
        let full = Word(0).publish(0xffff_ffff).unwrap();
        assert_eq!((full.committed(), full.tentative()), (0, 0xffff_ffff));
        assert_eq!(full.publish(1), None);
        let committed = Word(full.0 + Word::commit(0xffff_ffff));
        assert_eq!((committed.committed(), committed.tentative()), (0xffff_ffff, 0));
        assert_eq!(committed.publish(1), None);
        assert_eq!(committed.withdraw(1), None);
        assert_eq!(committed.release(0xffff_ffff), Some(Word(0)));
        assert_eq!(Word(0).release(1), None);
    }

    #[test]
    fn the_halves_change_separately() {
        let word = Word(0).publish(7).unwrap().publish(5).unwrap();
        let word = Word(word.0 + Word::commit(7));
        assert_eq!((word.committed(), word.tentative(), word.total()), (7, 5, 12));
        assert_eq!(word.without_committed(), Word(5));
        assert_eq!(word.without_tentative(), Word(7 << 32));
        assert_eq!(word.withdraw(5).unwrap().release(7), Some(Word(0)));
    }
}
