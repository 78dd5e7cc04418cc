//! An account that this process has mapped: everything but charging.

use crate::error::AccountError;
use crate::file::{self, Descriptor, Place};
use crate::fork::NoFork;
use crate::identity::ProcessIdentity;
use crate::layout::{FREE, Layout, Record, SIZE, SLOTS, TAKEN, UNIT, Word};
use crate::member::Member;
use crate::slot_lock::SlotLock;
use crate::steps::{Step, at};
use crate::wait::pause;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long joining waits for the slots of processes that have just died.
const JOIN_DEADLINE: Duration = Duration::from_secs(1);

/// Whether the driver has freed everything that a dead process held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departed {
    /// Its bytes may be handed out now.
    Yes,
    /// The driver still lists it.
    No,
    /// Nobody can say: its bytes are handed out after [`crate::Account::GRACE`].
    Unknown,
}

/// Asked about dead processes only. It may be called by any thread that charges or joins.
pub type Oracle = fn(&ProcessIdentity) -> Departed;

/// The account file of a slice, mapped for the life of this value. It holds no descriptor.
#[derive(Debug)]
pub struct Account {
    map: NonNull<Layout>,
    pub(crate) place: Place,
    pub(crate) departed: Oracle,
}

// SAFETY: the mapping is shared with other processes and only accessed through atomics.
unsafe impl Send for Account {}
// SAFETY: as above.
unsafe impl Sync for Account {}

impl Account {
    /// Makes an empty account. The file must not exist; only its owner may use it (mode 0600),
    /// until the caller allows more.
    pub fn create(path: &Path) -> Result<(), AccountError> {
        file::create(path).map_err(|e| AccountError::io(path, e))
    }

    /// Maps an existing account. Bytes of the dead come back after [`Self::GRACE`].
    pub fn attach(path: &Path) -> Result<Self, AccountError> {
        Self::attach_with(path, |_| Departed::Unknown)
    }

    /// Maps an existing account; `departed` says when bytes of the dead may be handed out.
    pub fn attach_with(path: &Path, departed: Oracle) -> Result<Self, AccountError> {
        let _no_fork = NoFork::begin().map_err(|e| AccountError::io(path, e))?;
        let (place, file) = Place::find(path)?;
        let map = map(&file).map_err(|e| AccountError::io(path, e))?;
        Ok(Self { map, place, departed })
    }

    /// Makes this process a member, so that it can charge. A forked child has to join for itself.
    ///
    /// Where every slot is taken by a process that has just died, it waits for one, for a second.
    pub fn join(&self) -> Result<Member<'_>, AccountError> {
        let deadline = Instant::now() + JOIN_DEADLINE;
        loop {
            if let Some(member) = self.try_join()? {
                return Ok(member);
            }
            if Instant::now() >= deadline {
                return Err(AccountError::Full { path: self.place.path.clone() });
            }
            pause(Duration::from_millis(20));
        }
    }

    /// As [`Self::join`], but without waiting: `None` where every slot is taken.
    pub fn try_join(&self) -> Result<Option<Member<'_>>, AccountError> {
        // Deaths are noticed here as well: nobody may have been refused for a long time.
        self.reap_dead();
        self.claim_free_slot().map_err(|e| AccountError::io(&self.place.path, e))
    }

    fn claim_free_slot(&self) -> io::Result<Option<Member<'_>>> {
        for (slot, record) in self.layout().records.iter().enumerate() {
            if record.state.load(Ordering::Acquire) != FREE {
                continue;
            }
            let Some(lock) = SlotLock::try_take(&self.place, slot)? else { continue };
            at(Step::SlotLocked);
            // Only who holds the slot's lock changes its state.
            if record.state.load(Ordering::Acquire) == FREE {
                introduce(record);
                // Before anything is published there: sums run up to this mark.
                self.layout().header.high_water.0.fetch_max(slot as u32 + 1, Ordering::SeqCst);
                record.state.store(TAKEN, Ordering::SeqCst);
                at(Step::SlotTaken);
                return Ok(Some(Member::new(self, slot, lock)));
            }
        }
        Ok(None)
    }

    /// Bytes committed on a card by all processes, also those of the dead that were not reaped.
    #[inline]
    pub fn used(&self, card: usize) -> u64 {
        let words = self.words(card).iter();
        words.map(|word| Word(word.load(Ordering::Relaxed)).committed()).sum::<u64>() * UNIT
    }

    /// When the process that has a slot joined, in nanoseconds of `CLOCK_MONOTONIC`: whoever has the
    /// slot after it has joined later.
    pub fn joined_at(&self, slot: usize) -> u64 {
        self.layout().records[slot].joined_at.load(Ordering::Relaxed)
    }

    /// Which process has a slot, dead or alive; `None` where nobody has.
    #[inline]
    pub fn holder(&self, slot: usize) -> Option<ProcessIdentity> {
        let record = self.layout().records.get(slot)?;
        (record.state.load(Ordering::Acquire) == TAKEN).then(|| record.identity())
    }

    /// Every slot from here on was never used.
    #[inline]
    pub fn high_water(&self) -> usize {
        (self.layout().header.high_water.0.load(Ordering::SeqCst) as usize).min(SLOTS)
    }

    /// Where it is mapped, for a process that has to live with a file that is cut short meanwhile.
    pub fn mapped_at(&self) -> Range<usize> {
        let start = self.map.addr().get();
        start..start + SIZE
    }

    pub(crate) fn layout(&self) -> &Layout {
        // SAFETY: the mapping is a whole Layout and lives as long as self; all its fields that are
        // accessed are atomics, for which any bytes are a value.
        unsafe { self.map.as_ref() }
    }

    /// The words of a card that were ever used; none for a card that no account has.
    #[inline]
    pub(crate) fn words(&self, card: usize) -> &[AtomicU64] {
        let used = self.high_water();
        self.layout().words.get(card).map_or(&[], |words| &words[..used])
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing borrowed from it outlives the account.
        unsafe { libc::munmap(self.map.as_ptr().cast(), SIZE) };
    }
}

fn map(file: &Descriptor) -> io::Result<NonNull<Layout>> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping; no memory of ours is replaced.
    let map = unsafe { libc::mmap(null_mut(), SIZE, access, libc::MAP_SHARED, file.fd, 0) };
    if map == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    match NonNull::new(map.cast::<Layout>()) {
        Some(map) if file.is_ours() => Ok(map),
        _ => {
            // SAFETY: whatever was mapped, it was mapped here and nothing refers to it.
            unsafe { libc::munmap(map, SIZE) };
            Err(io::Error::other("its descriptor was closed by the program; try again"))
        }
    }
}

/// Writes down who this process is.
fn introduce(record: &Record) {
    let own = ProcessIdentity::own();
    record.pid.store(own.pid, Ordering::Relaxed);
    record.start_time.store(own.start_time, Ordering::Relaxed);
    record.pid_namespace.store(own.pid_namespace, Ordering::Relaxed);
    record.joined_at.store(monotonic_ns(), Ordering::Relaxed);
}

fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a local variable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
