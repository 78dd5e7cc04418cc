//! How a process becomes a member of an account: it takes a free slot and holds the slot's lock.

use crate::account::Account;
use crate::identity::ProcessIdentity;
use crate::layout::{FILE, FREE, Record, SLOTS, TAKEN};
use crate::member::Member;
use crate::slot_lock::SlotLock;
use crate::steps::{Step, at};
use hami_limits::FileError;
use hami_limits::futex::pause;
use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long joining waits for the slots of processes that have just died.
const JOIN_DEADLINE: Duration = Duration::from_secs(1);

impl Account {
    /// Makes this process a member, so that it can charge. A forked child has to join itself.
    ///
    /// If every slot is taken, it waits for one for a second: their processes may have just died.
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
        // Look for dead processes here as well: a refusal, which also looks, may be long ago.
        self.reap_dead();
        self.claim_free_slot().map_err(|e| FILE.io(&self.file.path, e))
    }

    fn claim_free_slot(&self) -> io::Result<Option<Member<'_>>> {
        for (slot, record) in self.layout().records.iter().enumerate() {
            if record.state.load(Ordering::Acquire) != FREE {
                continue;
            }
            let Some(lock) = SlotLock::try_take(&self.file, slot)? else { continue };
            at(Step::SlotLocked);
            // Only the holder of the slot's lock changes its state.
            if record.state.load(Ordering::Acquire) == FREE {
                record_identity(record);
                // Before anything is published there: sums run up to this mark.
                self.layout().header.high_water.0.fetch_max(slot as u32 + 1, Ordering::SeqCst);
                record.state.store(TAKEN, Ordering::SeqCst);
                at(Step::SlotTaken);
                return Ok(Some(Member::new(self, slot, lock)));
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

fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a local variable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
