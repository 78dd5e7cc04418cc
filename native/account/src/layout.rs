//! The account file as a type: what is where, and how a word is put together.

use hami_limits::FileKind;
use std::mem::{offset_of, size_of};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Processes of a slice. Probing their locks costs the kernel the square of this.
pub const SLOTS: usize = 256;
/// Cards of a slice: row i of the limits page is card i.
pub const CARDS: usize = hami_limits::page::MAX_ROWS;
/// Bytes per unit; a request is rounded up to whole units.
pub const UNIT: u64 = 512;

pub(crate) const SIZE: usize = size_of::<Layout>();
pub(crate) const FILE: FileKind =
    FileKind { name: "account", magic: *b"HAMIACC1", version: 2, size: SIZE };

/// `Record::state`: nobody's. All words of a free slot are zero.
pub(crate) const FREE: u32 = 0;
/// `Record::state`: a process's, or a dead process's that was not reaped yet.
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
    pub bell: Line<AtomicU32>,
    pub departed_compute: ComputeSums,
}

/// The part of the header that never changes; checked through `pread`, never through the mapping.
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
    /// How often the process has begun to lower one of its words, and how often it has done so.
    pub releases_begun: AtomicU32,
    pub releases_done: AtomicU32,
    /// When the process joined, in nanoseconds since boot: exec makes another of it under the same pid.
    pub joined_at: AtomicU64,
    pub counters: Counters,
}

/// What is told about; no decision depends on it.
#[repr(C, align(64))]
pub(crate) struct Counters {
    pub refusals: [AtomicU64; CARDS],
    /// Subtractions that would have gone below zero.
    pub anomalies: AtomicU64,
}

/// One process on one card, written by that process alone. Times are nanoseconds.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct ComputeWords {
    /// A [`crate::ComputeState`] in the low half, in the high half the turn of the grant that the process
    /// had seen when it wrote it: an older turn than the one in force answers an older grant.
    pub state: AtomicU64,
    /// Engine time so far: how long the card was busy with kernels of the process.
    pub used_ns: AtomicU64,
    /// Wall time for which threads of the process waited for permission to launch.
    pub throttled_ns: AtomicU64,
    /// How far the process's own bucket is below zero now.
    pub debt_ns: AtomicU64,
    /// When the process last looked at its work there (`CLOCK_MONOTONIC`); a heartbeat while it runs.
    pub active_at: AtomicU64,
    /// The same for who shares the slice where nobody coordinates; also of a slice inside another,
    /// whose turns are the outer one's.
    pub metered_at: AtomicU64,
    /// What the process's own bucket owes ([`crate::Owed::to_word`]).
    pub owed: AtomicU64,
    reserved: u64,
}

/// Per card, of processes whose slots are free again.
#[repr(C, align(64))]
pub(crate) struct ComputeSums {
    pub used_ns: [AtomicU64; CARDS],
    pub throttled_ns: [AtomicU64; CARDS],
    /// The debt of them that would be paid last.
    pub owed: [AtomicU64; CARDS],
}

/// A cache line of its own.
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
const _: () = assert!(offset_of!(Header, bell) == 448);
const _: () = assert!(offset_of!(Header, departed_compute) == 512);
const _: () = assert!(offset_of!(Record, counters) == 64);
const _: () = assert!(size_of::<ComputeWords>() == 64);
const _: () = assert!(offset_of!(ComputeWords, used_ns) == 8);
const _: () = assert!(offset_of!(ComputeWords, throttled_ns) == 16);
const _: () = assert!(offset_of!(ComputeWords, debt_ns) == 24);
const _: () = assert!(offset_of!(ComputeWords, active_at) == 32);
const _: () = assert!(offset_of!(ComputeWords, metered_at) == 40);
const _: () = assert!(offset_of!(ComputeWords, owed) == 48);

/// One process's units on one card: `committed` was granted, `tentative` is being asked for.
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

    /// The word with `units` more asked for, unless the halves could then run into each other.
    pub const fn publish(self, units: u64) -> Option<Word> {
        if self.total() + units > 0xffff_ffff { None } else { Some(Word(self.0 + units)) }
    }

    /// What to add to a word so that `units` of its tentative become committed.
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
    fn a_word_never_lets_one_half_run_into_the_other() {
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
    fn both_halves_move_apart() {
        let word = Word(0).publish(7).unwrap().publish(5).unwrap();
        let word = Word(word.0 + Word::commit(7));
        assert_eq!((word.committed(), word.tentative(), word.total()), (7, 5, 12));
        assert_eq!(word.without_committed(), Word(5));
        assert_eq!(word.without_tentative(), Word(7 << 32));
        assert_eq!(word.withdraw(5).unwrap().release(7), Some(Word(0)));
    }
}
