//! Charging near the limit, or beside other processes that charge at the same time.

use crate::layout::{SHARED, SLOTS, Word};
use crate::member::{Member, Published, Refused, Request};
use crate::steps::{Step, at};
use hami_limits::futex::pause;
use std::hint::spin_loop;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a request that may fit waits for competing requests to be decided. They are decided in
/// nanoseconds, unless the kernel does not run their processes: on two cores with thirty busy
/// processes, 20 ms were too short for one request in ten thousand, and a refusal here ends a
/// program.
const DEADLINE: Duration = Duration::from_secs(1);

/// How long a request waits for competing requests before it revokes them. A process that runs
/// decides its request sooner. A process that is stopped, or has died, never does.
const REVOKE_AFTER: Duration = Duration::from_millis(1);

/// How often a request that waits for the memory of dead processes checks whether it is free.
const POLL: Duration = Duration::from_millis(2);

enum Outcome {
    Granted,
    /// The committed bytes alone leave too little room.
    Over,
    /// The request does not fit into a word: no process can hold that much.
    TooMuch,
    /// Another process has revoked the request. It is withdrawn now.
    Revoked,
    TimedOut,
}

impl Member<'_> {
    /// How long a charge waits for the memory of processes that have died: longer than
    /// [`crate::Account::GRACE`].
    pub const DEPARTURE: Duration = Duration::from_secs(2);

    /// The rare case: the limit is near, or another process is charging at the same time.
    #[cold]
    pub(crate) fn charge_slowly(
        &self,
        request: &Request,
        patience: Duration,
    ) -> Result<(), Refused> {
        let begin = Instant::now();
        let mut deadline = begin + DEADLINE;
        loop {
            let outcome =
                if self.is_over(request) { Outcome::Over } else { self.contend(request, deadline) };
            match outcome {
                Outcome::Granted => return Ok(()),
                Outcome::Revoked => {}
                Outcome::TooMuch => return Err(Refused::OverLimit),
                Outcome::TimedOut => return Err(Refused::Busy),
                Outcome::Over => {
                    self.make_room(request, begin + patience)?;
                    deadline = Instant::now() + DEADLINE;
                }
            }
        }
    }

    /// Reaps dead processes, for a request for which the committed bytes leave too little room.
    /// `Ok` means that the caller should try again: now there is room, or this has waited a moment
    /// because the driver may still free enough. Otherwise, and after the deadline, it refuses.
    pub(crate) fn make_room(&self, request: &Request, deadline: Instant) -> Result<(), Refused> {
        let pending = self.reap_dead_holders(request.card);
        self.release_closed(SHARED);
        let committed = self.committed_at_once(request);
        if committed + request.units <= request.limit {
            return Ok(());
        }
        if committed + request.units > request.limit + pending || Instant::now() >= deadline {
            return Err(Refused::OverLimit);
        }
        pause(POLL);
        Ok(())
    }

    /// Publishes the request and waits until it fits. The slow lock lets only one request at a time
    /// wait while it is published.
    fn contend(&self, request: &Request, deadline: Instant) -> Outcome {
        let Some(_lock) = self.account().slow_lock(usize::from(self.slot()), deadline) else {
            return Outcome::TimedOut;
        };
        loop {
            match self.publish(request) {
                Published::Yes => break,
                Published::TooMuch => return Outcome::TooMuch,
                // Another thread of this process still has to withdraw its revoked request.
                Published::Revoked => pause(Duration::from_micros(50)),
            }
            if Instant::now() >= deadline {
                return Outcome::TimedOut;
            }
        }
        let outcome = self.wait_for_room(request, deadline);
        if !matches!(outcome, Outcome::Granted) {
            self.withdraw(request);
        }
        outcome
    }

    /// Waits until a published request fits, and commits it.
    fn wait_for_room(&self, request: &Request, deadline: Instant) -> Outcome {
        let mut revoke_at = Instant::now() + REVOKE_AFTER;
        for attempt in 0_u32.. {
            if let Some(total) = self.fits(request) {
                let is_charged = self.commit(request, total);
                return if is_charged { Outcome::Granted } else { Outcome::Revoked };
            }
            if self.is_over(request) {
                return Outcome::Over;
            }
            let now = Instant::now();
            if now >= deadline {
                break;
            }
            if now >= revoke_at {
                self.revoke_others(request);
                // A process may have died during an uncharge. Until its death is noticed, its bytes
                // count in `fits` but not in `is_over`, and neither decides the request.
                self.reap_dead();
                revoke_at = Instant::now() + REVOKE_AFTER;
            } else if attempt < 16 {
                spin_loop();
            } else {
                pause(Duration::from_micros(50));
            }
        }
        Outcome::TimedOut
    }

    /// Takes the requests of all other processes out of the sums. A process that runs publishes its
    /// request again.
    fn revoke_others(&self, request: &Request) {
        let own = usize::from(self.slot());
        let words = self.account().words(request.card).iter().enumerate();
        for (_, word) in words.filter(|(slot, _)| *slot != own) {
            let revoked = |old| Word(old).revoke().map(|new| new.0);
            let _ = word.fetch_update(Ordering::SeqCst, Ordering::Relaxed, revoked);
            at(Step::Revoked);
        }
    }

    /// Whether the committed bytes alone certainly leave too little room for the request.
    pub(crate) fn is_over(&self, request: &Request) -> bool {
        self.committed_at_once(request) + request.units > request.limit
    }

    /// A number of units that were all committed at one instant during the call.
    ///
    /// A plain sum of the committed units can be too high: if units are released from a word that
    /// was read, and charged in a word that was not read yet, they count twice. So a word counts
    /// only if nothing was released from it until all words were read.
    #[inline(never)] // or the stack frames of several callers would have room for the numbers
    fn committed_at_once(&self, request: &Request) -> u64 {
        let records = &self.account().layout().records;
        let words = self.account().words(request.card);
        // A program may have a small stack: both numbers fit in 32 bits.
        let mut seen = [(0_u32, 0_u32); SLOTS];
        for (seen, (word, record)) in seen.iter_mut().zip(words.iter().zip(records)) {
            at(Step::Summing);
            let done = record.releases_done.load(Ordering::SeqCst);
            *seen = (done, Word(word.load(Ordering::SeqCst)).committed() as u32);
        }
        let (shared, account) = (self.account().shared_sum(request.card), self.account());
        at(Step::Counted);
        // Shared units count if no entry has changed in between.
        let is_same = account.shared_sum(request.card) == shared;
        let still_there = seen
            .iter()
            .zip(records)
            .filter(|((done, _), record)| record.releases_begun.load(Ordering::SeqCst) == *done);
        let committed: u64 = still_there.map(|((_, committed), _)| u64::from(*committed)).sum();
        committed + if is_same { shared.units } else { 0 }
    }
}
