//! How a process becomes a member of an account: it takes a free slot and holds the slot's locks.

use crate::account::Account;
use crate::identity::ProcessIdentity;
use crate::layout::{FILE, FREE, Record, SLOTS, Slot, TAKEN};
use crate::member::Member;
use crate::slot_lock::{Probe, SlotLock, not_kept};
use crate::steps::{Step, at};
use hami_limits::FileError;
use hami_limits::clock::monotonic_ns;
use hami_limits::futex::pause;
use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long joining waits for the slots of processes that have just died.
const JOIN_DEADLINE: Duration = Duration::from_secs(1);

impl Account {
    /// Makes this process a member, so that it can charge. A forked child has to join itself.
    ///
    /// If every slot is taken, it waits a second for a free one, because some of the processes may
    /// have just died.
    pub fn join(&self) -> Result<Member<'_>, FileError> {
        let deadline = Instant::now() + JOIN_DEADLINE;
        loop {
            if let Some(member) = self.try_join()? {
                return Ok(member);
            }
            if Instant::now() >= deadline {
                return Err(FileError::Full { path: self.file.path.clone(), slots: SLOTS });
            }
            pause(Duration::from_millis(20));
        }
    }

    /// Like [`Self::join`], but without waiting: `None` if every slot is taken.
    pub fn try_join(&self) -> Result<Option<Member<'_>>, FileError> {
        let io_error = |e| FILE.io(&self.file.path, e);
        let mut joined = self.claim_free_slot().map_err(io_error)?;
        if joined.is_none() {
            self.reap_dead();
            joined = self.claim_free_slot().map_err(io_error)?;
        }
        // A program that starts after another one has died is often the first to notice the death.
        if let Some(member) = &joined {
            member.reap_dead();
        }
        Ok(joined)
    }

    pub(crate) fn claim_free_slot(&self) -> io::Result<Option<Member<'_>>> {
        for number in Slot::all() {
            let slot = number.index();
            let record = &self.layout().records[slot];
            if record.state.load(Ordering::Acquire) != FREE {
                continue;
            }
            let Some(lock) = SlotLock::try_take(&self.file, slot)? else { continue };
            if !Probe::open(&self.file)?.is_held(slot) {
                return Err(not_kept());
            }
            at(Step::SlotLocked);
            // Only the holder of the slot's locks changes the state to taken.
            if record.state.load(Ordering::Acquire) == FREE && !self.is_being_reaped(slot) {
                record.reset();
                record_identity(record);
                // This comes before anything is published in the slot: sums run up to this mark.
                self.layout().header.high_water.0.fetch_max(slot as u32 + 1, Ordering::SeqCst);
                record.state.store(TAKEN, Ordering::SeqCst);
                at(Step::SlotTaken);
                return Ok(Some(Member::new(self, number, lock)));
            }
        }
        Ok(None)
    }
}

fn record_identity(record: &Record) {
    let own = ProcessIdentity::own();
    record.pid.store(own.pid, Ordering::Relaxed);
    record.start_time.store(own.start_time, Ordering::Relaxed);
    record.pid_namespace.store(own.pid_namespace, Ordering::Relaxed);
    record.joined_at.store(monotonic_ns(), Ordering::Relaxed);
}
