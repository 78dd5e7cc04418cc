//! Charging and uncharging: the path of every allocation.

use crate::account::Account;
use crate::fork::generation;
use crate::layout::{CARDS, ComputeWords, Record, SLOTS, UNIT, Word};
use crate::slot_lock::SlotLock;
use crate::steps::{Step, at};
use hami_limits::futex::{pause, wake_all};
use std::fmt;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a request that may fit waits for competing requests to be decided. Those need nanoseconds,
/// unless the scheduler keeps their processes from running: on two cores with thirty busy processes,
/// 20 ms were too short for one request in ten thousand, and a refusal here ends a program. Dead
/// processes do not delay a request that long, because it looks for them before.
const DEADLINE: Duration = Duration::from_secs(1);

/// Why a charge was refused. The program sees "out of memory" in each case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The committed bytes leave less room than the request needs.
    OverLimit,
    /// Competing requests were undecided until the deadline. A retry may succeed.
    Busy,
    /// This process is a forked child of the member: it has to join itself.
    Forked,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OverLimit => "it would exceed the memory limit",
            Self::Busy => "other processes kept requesting the same memory",
            Self::Forked => "this process was forked and has not joined the account",
        })
    }
}

impl std::error::Error for Refused {}

/// The membership of this process in an account. Any number of threads may charge through it at once.
///
/// It ends when it is dropped, when the process exits, or with `exec`. Another process then releases
/// the bytes that it still holds, by [`Account::reap_dead`].
#[derive(Debug)]
pub struct Member<'a> {
    account: &'a Account,
    slot: usize,
    generation: u32,
    _lock: SlotLock,
}

struct Request {
    card: usize,
    units: u64,
    limit: u64,
}

enum Outcome {
    Granted,
    Over,
    TimedOut,
}

impl<'a> Member<'a> {
    pub(crate) fn new(account: &'a Account, slot: usize, lock: SlotLock) -> Self {
        Self { account, slot, generation: generation(), _lock: lock }
    }

    /// The account that was joined.
    pub fn account(&self) -> &'a Account {
        self.account
    }

    /// Charges `bytes` on a card whose limit for the whole slice is `limit` bytes, or refuses. A
    /// card that no account has is refused.
    ///
    /// It never takes the committed sum over the limit. It never refuses a request that fits throughout
    /// the call, unless competing processes cannot run for the whole deadline of a second.
    #[inline]
    pub fn charge(&self, card: usize, bytes: u64, limit: u64) -> Result<(), Refused> {
        self.try_charge(card, bytes, limit).inspect_err(|refused| self.count(card, *refused))
    }

    /// Like [`Self::charge`], for a request that the program has not made: a refusal is not counted.
    #[inline]
    pub fn try_charge(&self, card: usize, bytes: u64, limit: u64) -> Result<(), Refused> {
        let request = self.request(card, bytes, limit)?;
        // Only read: a request that cannot be granted must not block others.
        let committed: u64 = self.words(&request).map(Word::committed).sum();
        if committed + request.units <= request.limit && self.publish(&request) {
            if self.fits(&request) {
                self.commit(&request);
                return Ok(());
            }
            self.withdraw(&request);
        }
        self.charge_slowly(&request)
    }

    /// Refuses a request that [`Self::charge`] would refuse now, without charging. A process that
    /// charges several accounts calls it first, so that it takes nothing from one account if another
    /// refuses. A refusal is counted.
    pub fn admits(&self, card: usize, bytes: u64, limit: u64) -> Result<(), Refused> {
        self.would_admit(card, bytes, limit).inspect_err(|refused| self.count(card, *refused))
    }

    /// Like [`Self::admits`], for a request that the program has not made: a refusal is not counted.
    pub fn would_admit(&self, card: usize, bytes: u64, limit: u64) -> Result<(), Refused> {
        let request = self.request(card, bytes, limit)?;
        while self.is_over(&request) {
            if self.account.reap_dead_holders(card) == 0 {
                return Err(Refused::OverLimit);
            }
        }
        Ok(())
    }

    /// Uncharges `bytes` on a card. If that is more than was charged, all of the charge is released and
    /// an anomaly is counted. In a forked child nothing happens, because the child holds nothing.
    #[inline]
    pub fn uncharge(&self, card: usize, bytes: u64) {
        if self.generation != generation() || card >= CARDS {
            return;
        }
        let units = bytes.div_ceil(UNIT);
        let record = self.record();
        record.releases_begun.fetch_add(1, Ordering::SeqCst);
        at(Step::BeforeUncharge);
        self.lower(card, |word| word.release(units), Word::without_committed);
        at(Step::Uncharged);
        record.releases_done.fetch_add(1, Ordering::SeqCst);
    }

    /// Bytes that this process holds on a card.
    pub fn held(&self, card: usize) -> u64 {
        if self.generation != generation() || card >= CARDS {
            return 0;
        }
        Word(self.word(card).load(Ordering::Relaxed)).committed() * UNIT
    }

    /// The slot of this process in the account. Grants name processes by their slots.
    pub fn slot(&self) -> u16 {
        self.slot as u16
    }

    /// The words in which this process reports its use of a card's engine. `None` for a card that no
    /// account has, and in a forked child, which has to join itself.
    #[inline]
    pub fn compute(&self, card: usize) -> Option<&'a ComputeWords> {
        let mine = self.generation == generation() && card < CARDS;
        mine.then(|| self.account.compute(self.slot, card))
    }

    /// Wakes the coordinator, if one waits, to read a new state of this process.
    #[inline]
    pub fn wake_coordinator(&self) {
        let word = self.account.wake_word();
        word.fetch_add(1, Ordering::SeqCst);
        wake_all(word);
    }

    #[inline]
    fn request(&self, card: usize, bytes: u64, limit: u64) -> Result<Request, Refused> {
        if self.generation != generation() {
            return Err(Refused::Forked);
        }
        if card >= CARDS {
            return Err(Refused::OverLimit);
        }
        Ok(Request { card, units: bytes.div_ceil(UNIT), limit: limit / UNIT })
    }

    /// The rare case: the limit is near, or another process is charging at the same time.
    #[cold]
    fn charge_slowly(&self, request: &Request) -> Result<(), Refused> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let outcome =
                if self.is_over(request) { Outcome::Over } else { self.contend(request, deadline) };
            let refused = match outcome {
                Outcome::Granted => return Ok(()),
                Outcome::Over => Refused::OverLimit,
                Outcome::TimedOut => Refused::Busy,
            };
            // The bytes in the way may belong to dead processes.
            if self.account.reap_dead_holders(request.card) == 0 {
                return Err(refused);
            }
        }
    }

    /// Stays published until the request fits. The slow lock makes sure that no other request does.
    fn contend(&self, request: &Request, deadline: Instant) -> Outcome {
        let Some(_lock) = self.account.slow_lock(self.slot, deadline) else {
            return Outcome::TimedOut;
        };
        if !self.publish(request) {
            return Outcome::Over;
        }
        for attempt in 0_u32.. {
            if self.fits(request) {
                self.commit(request);
                return Outcome::Granted;
            }
            if self.is_over(request) {
                self.withdraw(request);
                return Outcome::Over;
            }
            if Instant::now() >= deadline {
                break;
            }
            if attempt < 16 {
                spin_loop();
            } else {
                // A process with a published request was interrupted, or has died.
                self.account.reap_dead();
                pause(Duration::from_micros(50));
            }
        }
        self.withdraw(request);
        Outcome::TimedOut
    }

    /// Makes the request visible to all sums. False if one process cannot hold that much.
    ///
    /// The exchange and the loads of [`Self::fits`] are sequentially consistent: of two racing
    /// processes, at least one sees the other.
    #[inline]
    fn publish(&self, request: &Request) -> bool {
        let word = self.word(request.card);
        let add = |old| Word(old).publish(request.units).map(|new| new.0);
        let published = word.fetch_update(Ordering::SeqCst, Ordering::Relaxed, add).is_ok();
        if published {
            at(Step::Published);
        }
        published
    }

    #[inline]
    fn fits(&self, request: &Request) -> bool {
        self.words(request).map(Word::total).sum::<u64>() <= request.limit
    }

    #[inline]
    fn commit(&self, request: &Request) {
        at(Step::BeforeCommit);
        self.word(request.card).fetch_add(Word::commit(request.units), Ordering::SeqCst);
        at(Step::Committed);
    }

    fn withdraw(&self, request: &Request) {
        at(Step::BeforeWithdraw);
        self.lower(request.card, |word| word.withdraw(request.units), Word::without_tentative);
    }

    /// Whether the committed bytes alone refuse the request, beyond doubt.
    ///
    /// One sum is no proof: while it runs, bytes may leave a word that was read, enter a word that was
    /// not, and be counted twice. So a word counts only if nothing was taken from it until all words
    /// were read: then all bytes that count were committed at one instant.
    fn is_over(&self, request: &Request) -> bool {
        let records = &self.account.layout().records;
        let words = self.account.words(request.card);
        let mut seen = [(0, 0); SLOTS];
        for (seen, (word, record)) in seen.iter_mut().zip(words.iter().zip(records)) {
            at(Step::Summing);
            let done = record.releases_done.load(Ordering::SeqCst);
            *seen = (done, Word(word.load(Ordering::SeqCst)).committed());
        }
        at(Step::Counted);
        let still_there = seen
            .iter()
            .zip(records)
            .filter(|((done, _), record)| record.releases_begun.load(Ordering::SeqCst) == *done);
        let committed: u64 = still_there.map(|((_, committed), _)| committed).sum();
        committed + request.units > request.limit
    }

    #[inline]
    fn words(&self, request: &Request) -> impl Iterator<Item = Word> {
        self.account.words(request.card).iter().map(|word| {
            at(Step::Summing);
            Word(word.load(Ordering::SeqCst))
        })
    }

    /// This process's own word.
    #[inline]
    fn word(&self, card: usize) -> &AtomicU64 {
        &self.account.layout().words[card][self.slot]
    }

    /// Lowers the own word. If the result would be below zero, it becomes zero.
    #[inline]
    fn lower(&self, card: usize, checked: impl Fn(Word) -> Option<Word>, zero: fn(Word) -> Word) {
        let word = self.word(card);
        let mut old = word.load(Ordering::Relaxed);
        loop {
            let new = checked(Word(old));
            let target = new.unwrap_or_else(|| zero(Word(old))).0;
            match word.compare_exchange_weak(old, target, Ordering::SeqCst, Ordering::Relaxed) {
                Err(now) => old = now,
                Ok(_) if new.is_some() => return,
                Ok(_) => {
                    self.record().counters.anomalies.fetch_add(1, Ordering::Relaxed);
                    return;
                }
            }
        }
    }

    /// Counts a refusal, if this process has an account for it.
    #[cold]
    fn count(&self, card: usize, refused: Refused) {
        if refused != Refused::Forked
            && let Some(refusals) = self.record().counters.refusals.get(card)
        {
            refusals.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn record(&self) -> &Record {
        &self.account.layout().records[self.slot]
    }
}
