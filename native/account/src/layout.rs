//! The account file as a type, and a word as a number. The layout is documented in `lib.rs`.

use hami_limits::FileKind;
use std::mem::{offset_of, size_of};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// The most processes of a slice. The kernel's time to probe their locks grows with the square.
pub const SLOTS: usize = hami_limits::grants::SLOTS;
/// The most cards of a slice. Row i of the limits page is card i.
pub const CARDS: usize = hami_limits::page::MAX_ROWS;
/// Bytes per unit; a request is rounded up to whole units.
pub const UNIT: u64 = 512;

/// The most shared allocations of a slice. No process can share more.
pub(crate) const SHARED: usize = 4096;
/// Room for the path of the file behind descriptors, in words.
pub(crate) const PATH: usize = 16;

/// Bytes of an account.
pub const SIZE: usize = size_of::<Layout>();
pub(crate) const FILE: FileKind = FileKind { name: "account", magic: *b"HAMIACC1", size: SIZE };

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
    pub shared: SharedTable,
}

#[repr(C, align(4096))]
pub(crate) struct Header {
    pub identity: Identity,
    pub high_water: Line<AtomicU32>,
    pub slow_lock: Line<AtomicU32>,
    pub deaths: Line<Deaths>,
    pub departed: Counters,
    pub wake: Line<AtomicU32>,
    pub departed_compute: ComputeSums,
    /// Per card, the bytes that the driver holds for the processes beyond what they are charged, as
    /// the coordinator has measured it.
    pub measured: Line<[AtomicU64; CARDS]>,
    /// In its lower half ([`HIGH`]): how many entries of `Layout::shared` may be in use. The upper half
    /// counts how often one was taken.
    pub shared_high: AtomicU32,
    /// Whether descriptors may be all that keeps some memory: 0, [`KEPT_NEWLY`] or [`KEPT`].
    pub any_kept: AtomicU32,
    /// The path of the file behind the marked descriptors, with a zero byte behind it.
    pub descriptor_path: [AtomicU64; PATH],
    /// Per card, the most bytes that a granted request has found in use, with its own.
    pub peak: Line<[AtomicU64; CARDS]>,
}

/// Times for finding deaths, in milliseconds since boot.
#[repr(C)]
pub(crate) struct Deaths {
    /// When all locks were last probed.
    pub probed_at: AtomicU64,
    /// Until when requests may wait for the memory of a dead process; 0 if there is none.
    pub awaited_until: AtomicU64,
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
    /// When the process joined, in nanoseconds since boot. It distinguishes a process from the one
    /// that runs under the same pid after exec.
    pub joined_at: AtomicU64,
    /// 1 + the slot of the dead process that this process is reaping now, or 0. While this process
    /// lives, no process joins in that slot.
    pub reaping: AtomicU32,
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
    /// A [`crate::Report`]. If the grant in it is not the current one, the report answers an older
    /// grant.
    pub state: AtomicU64,
    /// Engine time so far: how long the card was busy with kernels of the process.
    pub used_ns: AtomicU64,
    /// Wall time for which threads of the process waited for admission to launch.
    pub throttled_ns: AtomicU64,
    /// How far the process's own bucket is below zero now.
    pub debt_ns: AtomicU64,
    /// When the process last checked its work on the card (`CLOCK_MONOTONIC`): a heartbeat while
    /// work runs.
    pub active_at: AtomicU64,
    /// The same time for the other processes of the slice, which divide its share if there is no
    /// coordinator, or if the slice is inside another one that has the leases.
    pub metered_at: AtomicU64,
    /// The debt of the process's own bucket ([`crate::Debt::to_word`]).
    pub debt: AtomicU64,
    /// The bytes of the process's committed units that the driver has taken for itself, such as for
    /// its context.
    pub driver_memory: AtomicU64,
}

/// Sums per card over the processes whose slots are free again.
#[repr(C, align(64))]
pub(crate) struct ComputeSums {
    pub used_ns: [AtomicU64; CARDS],
    pub throttled_ns: [AtomicU64; CARDS],
    /// The largest of their debts.
    pub debt: [AtomicU64; CARDS],
}

/// The allocations that processes of the slice share; see `shared`. Every charge reads the charges,
/// so they are packed.
#[repr(C, align(4096))]
pub(crate) struct SharedTable {
    /// By entry, a [`SharedCharge`].
    pub charges: [AtomicU64; SHARED],
    /// By entry, which memory it is; 0 while the entry is free, and while a process fills it.
    pub keys: [AtomicU64; SHARED],
    pub entries: [Shared; SHARED],
}

/// The number of a slot. A number from the file becomes one only if an account has such a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(u8);

const _: () = assert!(SLOTS == 1 << u8::BITS);

impl Slot {
    pub fn new(number: impl TryInto<u8>) -> Option<Self> {
        number.try_into().ok().map(Self)
    }

    pub fn all() -> impl Iterator<Item = Self> {
        (0..=u8::MAX).map(Self)
    }

    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The other words of a shared allocation.
#[repr(C)]
pub(crate) struct Shared {
    /// [`VACANT`], [`READY`], or [`Shared::changed_by`] a process.
    pub state: AtomicU32,
    /// The slot of the process that has exported it, or [`NOBODY`]: to show the memory for a process.
    pub exporter: AtomicU32,
    /// The file behind its descriptors; 0 if none has a mark that can be looked up.
    pub file: AtomicU64,
    /// A bit for the slot of each process that has the memory.
    pub holders: [AtomicU64; SLOTS / 64],
}

/// `Header::any_kept` if processes were seen to leave memory since the descriptors were looked up.
pub(crate) const KEPT_NEWLY: u32 = 1;
/// `Header::any_kept` if some of the descriptors were open then.
pub(crate) const KEPT: u32 = 2;

/// `Shared::exporter` of a process that has died.
pub(crate) const NOBODY: u32 = u32::MAX;
/// The lower half of `Header::shared_high`.
pub(crate) const HIGH: u32 = 0xffff;

/// `Shared::state` of a free entry.
pub(crate) const VACANT: u32 = 0;
/// `Shared::state` of an entry with memory.
pub(crate) const READY: u32 = 1;

/// The charge of a shared allocation, as a word: `times:28 | card:4 | units:32`.
#[derive(Clone, Copy)]
pub(crate) struct SharedCharge {
    /// How often the entry was filled, so that a reader notices that it was filled again.
    pub times: u64,
    pub card: usize,
    pub units: u64,
}

impl SharedCharge {
    pub const fn of(word: u64) -> Self {
        let card = (word >> 32) as usize % CARDS;
        Self { times: word >> 36, card, units: word & MAX_COMMITTED }
    }

    pub const fn word(self) -> u64 {
        self.times << 36 | (self.card as u64) << 32 | self.units
    }
}

/// A value in its own cache line.
#[repr(C, align(64))]
pub(crate) struct Line<T>(pub T);

const _: () = assert!(offset_of!(Layout, shared) == 364_544 && SIZE == 626_688);
const _: () = assert!(CARDS == 16 && size_of::<Shared>() == 48);
const _: () = assert!(offset_of!(Layout, words) == 4096);
const _: () = assert!(offset_of!(Layout, records) == 36_864);
const _: () = assert!(offset_of!(Layout, compute) == 102_400);
const _: () = assert!(offset_of!(Header, high_water) == 64);
const _: () = assert!(offset_of!(Header, slow_lock) == 128);
const _: () = assert!(offset_of!(Header, deaths) == 192);
const _: () = assert!(offset_of!(Header, departed) == 256);
const _: () = assert!(offset_of!(Header, wake) == 448);
const _: () = assert!(offset_of!(Header, departed_compute) == 512);
const _: () = assert!(offset_of!(Header, measured) == 896);
const _: () = assert!(offset_of!(Header, shared_high) == 1024);
const _: () = assert!(offset_of!(Header, peak) == 1216);
const _: () = assert!(offset_of!(Record, reaping) == 48);
const _: () = assert!(offset_of!(Record, counters) == 64);
const _: () = assert!(size_of::<ComputeWords>() == 64);
const _: () = assert!(offset_of!(ComputeWords, used_ns) == 8);
const _: () = assert!(offset_of!(ComputeWords, throttled_ns) == 16);
const _: () = assert!(offset_of!(ComputeWords, debt_ns) == 24);
const _: () = assert!(offset_of!(ComputeWords, active_at) == 32);
const _: () = assert!(offset_of!(ComputeWords, metered_at) == 40);
const _: () = assert!(offset_of!(ComputeWords, debt) == 48);
const _: () = assert!(offset_of!(ComputeWords, driver_memory) == 56);

/// One process's units on one card: `committed` is charged, `tentative` is requested.
///
/// The tentative units of a *revoked* word count in no sum and cannot be committed. The word stays
/// revoked until all of them are withdrawn, so that a commit can tell a revoked request from a new
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(pub u64);

const REVOKED: u64 = 1 << 31;
const TENTATIVE: u64 = REVOKED - 1;
const MAX_COMMITTED: u64 = 0xffff_ffff;

impl Word {
    pub const fn committed(self) -> u64 {
        self.0 >> 32
    }

    /// The units that are requested, whether revoked or not.
    pub const fn tentative(self) -> u64 {
        self.0 & TENTATIVE
    }

    pub const fn is_revoked(self) -> bool {
        self.0 & REVOKED != 0
    }

    /// The units that count against a limit.
    pub const fn total(self) -> u64 {
        self.committed() + if self.is_revoked() { 0 } else { self.tentative() }
    }

    /// The word with `units` more tentative; `None` if one part could then overflow into another.
    pub const fn publish(self, units: u64) -> Option<Word> {
        let tentative = self.tentative() + units;
        if tentative > TENTATIVE || self.committed() + tentative > MAX_COMMITTED {
            return None;
        }
        Some(Word(self.0 + units))
    }

    /// The word with `units` of its tentative committed; `None` if it is revoked.
    pub const fn commit(self, units: u64) -> Option<Word> {
        if self.is_revoked() { None } else { Some(Word(self.0 + (units << 32) - units)) }
    }

    /// The revoked word; `None` if there is nothing to revoke.
    pub const fn revoke(self) -> Option<Word> {
        if self.tentative() == 0 || self.is_revoked() { None } else { Some(Word(self.0 | REVOKED)) }
    }

    /// The word without `units` of its tentative.
    pub const fn withdraw(self, units: u64) -> Option<Word> {
        match self.tentative() {
            tentative if tentative < units => None,
            tentative if tentative == units => Some(self.without_tentative()),
            _ => Some(Word(self.0 - units)),
        }
    }

    /// The word without `units` of its committed.
    pub const fn release(self, units: u64) -> Option<Word> {
        if self.committed() < units { None } else { Some(Word(self.0 - (units << 32))) }
    }

    pub const fn without_committed(self) -> Word {
        Word(self.0 & (TENTATIVE | REVOKED))
    }

    pub const fn without_tentative(self) -> Word {
        Word(self.committed() << 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_of_a_word_overflows_into_another() {
        let most = Word(0).publish(TENTATIVE).unwrap();
        assert_eq!((most.committed(), most.tentative()), (0, TENTATIVE));
        assert_eq!(most.publish(1), None);
        let half = most.commit(TENTATIVE).unwrap();
        let full = half.publish(TENTATIVE).unwrap().commit(TENTATIVE).unwrap();
        let full = full.publish(1).unwrap().commit(1).unwrap();
        assert_eq!((full.committed(), full.tentative()), (MAX_COMMITTED, 0));
        assert_eq!(full.publish(1), None);
        assert_eq!(full.withdraw(1), None);
        assert_eq!(full.release(MAX_COMMITTED), Some(Word(0)));
        assert_eq!(Word(0).release(1), None);
    }

    #[test]
    fn the_parts_change_separately() {
        let word = Word(0).publish(7).unwrap().publish(5).unwrap().commit(7).unwrap();
        assert_eq!((word.committed(), word.tentative(), word.total()), (7, 5, 12));
        assert_eq!(word.without_committed(), Word(5));
        assert_eq!(word.without_tentative(), Word(7 << 32));
        assert_eq!(word.withdraw(5).unwrap().release(7), Some(Word(0)));
    }

    #[test]
    fn a_word_is_revoked_until_all_its_requests_are_withdrawn() {
        let word = Word(0).publish(3).unwrap().commit(3).unwrap();
        assert_eq!(word.revoke(), None, "nothing is requested");
        let word = word.publish(5).unwrap().publish(7).unwrap().revoke().unwrap();
        assert_eq!((word.committed(), word.tentative(), word.total()), (3, 12, 3));
        assert_eq!((word.commit(5), word.revoke()), (None, None));
        let word = word.release(3).unwrap().withdraw(5).unwrap();
        assert!(word.is_revoked() && word.without_committed() == word);
        assert_eq!(word.withdraw(7), Some(Word(0)));
    }
}
