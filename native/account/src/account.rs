//! A mapped account: its slots, their processes, and how much is used. Charging is in `member`.

use crate::file::{AccountFile, Descriptor};
use crate::fork::NoFork;
use crate::identity::{ProcessIdentity, own_namespace};
use crate::layout::{CARDS, FILE, Layout, SIZE, SLOTS, Slot, TAKEN, UNIT, Word};
use crate::slot_lock::{keeps_locks, not_kept};
use hami_limits::{FileError, failed};
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Whether the driver has freed everything that a dead process held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departed {
    /// Its bytes may be used by others now.
    Yes,
    /// The driver still lists it.
    No,
    /// It cannot be known: its bytes may be used after [`crate::Account::GRACE`].
    Unknown,
}

/// A living member of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Living {
    /// Its pid, in the PID namespace that it shares with the caller.
    pub pid: u32,
    /// The bytes that it holds on the requested card.
    pub bytes: u64,
}

/// What a process holds of a card, by its own charges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// The charged bytes.
    pub bytes: u64,
    /// Those of them that the process knows to be the driver's own.
    pub driver_memory: u64,
    /// How often the process has lowered a charge. If neither this nor the bytes have changed, it has
    /// allocated and freed nothing in between.
    pub releases: u32,
}

/// A process that has died and still holds bytes in its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dead {
    /// Its slot in the account.
    pub slot: usize,
    /// When it joined ([`Account::joined_at`]).
    pub joined_at: u64,
    /// The process.
    pub identity: ProcessIdentity,
}

/// A function that returns whether the driver has freed the memory of a dead process. Any thread
/// that charges or joins may call it, and several at once.
type Oracle = Box<dyn Fn(&Dead) -> Departed + Send + Sync>;

/// The account file of a slice, mapped for the life of this value, with a descriptor for probes.
pub struct Account {
    map: NonNull<Layout>,
    pub(crate) file: AccountFile,
    pub(crate) departed: Oracle,
    /// Whether this process has probed the locks through this value.
    pub(crate) has_probed: AtomicBool,
}

// SAFETY: the mapping is shared with other processes and only accessed through atomics.
unsafe impl Send for Account {}
// SAFETY: as above.
unsafe impl Sync for Account {}

impl Account {
    /// Creates an empty account. The file must not exist. Only its owner may use it (mode 0600),
    /// until the caller changes the mode. Fails on a file system that does not keep locks
    /// ([`keeps_locks`]).
    pub fn create(path: &Path) -> Result<(), FileError> {
        let directory = path.parent().unwrap_or(path);
        if !keeps_locks(directory).map_err(|e| FILE.io(path, e))? {
            return Err(FILE.io(path, not_kept()));
        }
        FILE.create(path, 0o600, &FILE.head()).map(drop)
    }

    /// Maps an existing account. Bytes of dead processes come back after [`Self::GRACE`].
    pub fn attach(path: &Path) -> Result<Self, FileError> {
        Self::attach_with(path, |_| Departed::Unknown)
    }

    /// Maps an existing account. `departed` decides when the bytes of a dead process come back.
    pub fn attach_with(
        path: &Path,
        departed: impl Fn(&Dead) -> Departed + Send + Sync + 'static,
    ) -> Result<Self, FileError> {
        let no_fork = NoFork::begin().map_err(|e| FILE.io(path, e))?;
        let (file, descriptor) = AccountFile::find(path, &FILE)?;
        let map = map(&descriptor).map_err(|e| FILE.io(path, e))?;
        let account =
            Self { map, file, departed: Box::new(departed), has_probed: AtomicBool::new(false) };
        drop((descriptor, no_fork));
        // If it cannot be kept now, the first probe tries again.
        let _ = account.file.kept();
        Ok(account)
    }

    /// Bytes committed on a card by all processes, including dead ones that were not reaped, shared
    /// ones, and the measured ones.
    #[inline]
    pub fn used(&self, card: usize) -> u64 {
        let words = self.words(card).iter();
        let committed =
            words.map(|word| Word(word.load(Ordering::Relaxed)).committed()).sum::<u64>();
        ((committed + self.shared_units(card)) * UNIT).saturating_add(self.measured(card))
    }

    /// The bytes of a card that a request finds in use: [`Self::used`] without the memory of dead
    /// processes for which a request waits.
    #[inline]
    pub fn in_use(&self, card: usize) -> u64 {
        match self.layout().header.deaths.0.awaited_until.load(Ordering::Relaxed) {
            0 => self.used(card),
            until => self.used(card).saturating_sub(self.awaited(card, until)),
        }
    }

    /// The bytes that the driver holds for the processes on a card beyond what they are charged, as
    /// measured from outside. Charges find as much less room.
    #[inline]
    pub fn measured(&self, card: usize) -> u64 {
        let measured = self.layout().header.measured.0.get(card);
        measured.map_or(0, |bytes| bytes.load(Ordering::Relaxed))
    }

    /// Sets what was measured. Only the coordinator does.
    pub fn set_measured(&self, card: usize, bytes: u64) {
        if let Some(measured) = self.layout().header.measured.0.get(card)
            && measured.load(Ordering::Relaxed) != bytes
        {
            measured.store(bytes, Ordering::Relaxed);
            self.note_peak(card, self.used(card));
        }
    }

    /// Notes that so many units were charged and requested at once, when one of the requests is
    /// granted. Of the requests that are charged at one instant, the one that was published last
    /// has counted all others, so the peak is never too low.
    #[inline]
    pub(crate) fn raise_peak(&self, card: usize, units: u64) {
        self.note_peak(card, (units * UNIT).saturating_add(self.measured(card)));
    }

    #[inline]
    fn note_peak(&self, card: usize, bytes: u64) {
        if let Some(peak) = self.layout().header.peak.0.get(card)
            && peak.load(Ordering::Relaxed) < bytes
        {
            peak.fetch_max(bytes, Ordering::Relaxed);
        }
    }

    /// The memory of a card that the process in a slot holds, to compare with NVML's figure: its
    /// charges, and what it shares.
    pub fn holding(&self, slot: usize, card: usize) -> Holding {
        let record = &self.layout().records[slot];
        let releases = record.releases_done.load(Ordering::SeqCst);
        let driver = self.compute(slot, card).driver_memory.load(Ordering::Relaxed);
        Holding { bytes: self.held_in(slot, card), driver_memory: driver, releases }
    }

    /// When the process in a slot joined, in nanoseconds of `CLOCK_MONOTONIC`. The next process in
    /// the slot has a later time.
    pub fn joined_at(&self, slot: usize) -> u64 {
        self.layout().records[slot].joined_at.load(Ordering::Relaxed)
    }

    /// The process that has a slot, dead or alive; `None` if the slot is free.
    #[inline]
    pub fn holder(&self, slot: usize) -> Option<ProcessIdentity> {
        let record = self.layout().records.get(slot)?;
        (record.state.load(Ordering::Acquire) == TAKEN).then(|| ProcessIdentity::of(record))
    }

    /// The living members in the PID namespace of the calling process, with the bytes that each
    /// holds on a card (0 for a card that no account has).
    ///
    /// It probes the lock of each of them. If the locks cannot be probed, all count as alive.
    /// Unlike a [`crate::Snapshot`] it reads the mapping, one number after the other, and copies
    /// nothing: a process that joins or exits in the meantime may be included or not.
    pub fn living(&self, card: usize) -> impl Iterator<Item = Living> {
        let namespace = own_namespace();
        let records = &self.layout().records;
        let is_here =
            move |slot: usize| records[slot].pid_namespace.load(Ordering::Relaxed) == namespace;
        let dead = self.find_dead(is_here);
        (0..SLOTS)
            .filter(move |slot| {
                records[*slot].state.load(Ordering::Acquire) == TAKEN
                    && is_here(*slot)
                    && !dead[*slot]
            })
            .map(move |slot| Living {
                pid: records[slot].pid.load(Ordering::Relaxed),
                bytes: self.held_in(slot, card),
            })
    }

    fn held_in(&self, slot: usize, card: usize) -> u64 {
        let Some(number) = Slot::new(slot).filter(|_| card < CARDS) else { return 0 };
        let charged = Word(self.layout().words[card][slot].load(Ordering::Relaxed)).committed();
        (charged + self.shared_in(number, card)) * UNIT
    }

    /// The first slot that was never used, as none after it was.
    #[inline]
    pub fn high_water(&self) -> usize {
        (self.layout().header.high_water.0.load(Ordering::SeqCst) as usize).min(SLOTS)
    }

    /// The addresses of the mapping, for a process that must survive a truncated file.
    pub fn mapped_at(&self) -> Range<usize> {
        let start = self.map.addr().get();
        start..start + SIZE
    }

    pub(crate) fn layout(&self) -> &Layout {
        // SAFETY: the mapping is a Layout and lives as long as self; all its fields that are
        // accessed are atomics, for which any bytes are a value.
        unsafe { self.map.as_ref() }
    }

    /// The words of a card up to the high-water mark; none for a card that no account has.
    #[inline]
    pub(crate) fn words(&self, card: usize) -> &[AtomicU64] {
        let used = self.high_water();
        self.layout().words.get(card).map_or(&[], |words| &words[..used])
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing borrowed from it outlives the account.
        unsafe { libc::munmap(self.map.as_ptr().cast(), SIZE) };
    }
}

fn map(file: &Descriptor) -> io::Result<NonNull<Layout>> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping; no memory of ours is replaced.
    let map = unsafe { libc::mmap(null_mut(), SIZE, access, libc::MAP_SHARED, file.fd, 0) };
    if map == libc::MAP_FAILED {
        return Err(failed("mmap"));
    }
    match NonNull::new(map.cast::<Layout>()) {
        Some(map) if file.is_ours() => Ok(map),
        _ => {
            // SAFETY: it was mapped above, and nothing refers to it.
            unsafe { libc::munmap(map, SIZE) };
            Err(io::Error::other("the program closed its descriptor; try again"))
        }
    }
}
