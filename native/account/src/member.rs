//! Charging and giving back: the path of every allocation.

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

/// How long a request that may fit waits for others to make up their minds. They need nanoseconds,
/// or as long as the scheduler keeps them from running: on two cores with thirty busy processes 20
/// ms were too short for one request in ten thousand, and what is refused here ends a program. Of
/// the dead nobody waits that long: they are looked for before.
const DEADLINE: Duration = Duration::from_secs(1);

/// Why a charge was refused. To the program each of them is "out of memory".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// What others hold leaves less room than was asked for.
    OverLimit,
    /// Others kept asking at the same time until the deadline; asking again may succeed.
    Busy,
    /// This process is a forked child of the member: it has to join for itself.
    Forked,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OverLimit => "it would exceed the memory limit",
            Self::Busy => "other processes kept asking for the same memory",
            Self::Forked => "this process was forked and has not joined the account",
        })
    }
}

impl std::error::Error for Refused {}

/// This process's place in an account. Any number of threads may charge through it at once.
///
/// It ends with the process, with `exec`, or when it is dropped; what it still holds then is given
/// back by [`Account::reap_dead`] of another process.
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
    /// Never grants what takes the committed sum over the limit, and never refuses what fits
    /// throughout the call, unless others are kept from running for the whole deadline of a second.
    #[inline]
    pub fn charge(&self, card: usize, bytes: u64, limit: u64) -> Result<(), Refused> {
        self.try_charge(card, bytes, limit).inspect_err(|refused| self.count(card, *refused))
    }

    /// As [`Self::charge`], for what the program has not asked for: a refusal is not counted.
    #[inline]
    pub fn try_charge(&self, card: usize, bytes: u64, limit: u64) -> Result<(), Refused> {
        let request = self.request(card, bytes, limit)?;
        // Only looking: a request that cannot be granted must not get in the way of others.
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

    /// Refuses what [`Self::charge`] would refuse now, without charging: for who has to ask several
    /// accounts, and must not take from one what another refuses. A refusal is counted.
    pub fn admits(&self, card: usize, bytes: u64, limit: u64) -> Result<(), Refused> {
        self.would_admit(card, bytes, limit).inspect_err(|refused| self.count(card, *refused))
    }

    /// As [`Self::admits`], for what the program has not asked for: a refusal is not counted.
    pub fn would_admit(&self, card: usize, bytes: u64, limit: u64) -> Result<(), Refused> {
        let request = self.request(card, bytes, limit)?;
        while self.is_over(&request) {
            if self.account.reap_dead_holders(card) == 0 {
                return Err(Refused::OverLimit);
            }
        }
        Ok(())
    }

    /// Gives back `bytes` of what was charged on a card. More than was charged is given back as
    /// that, and counted as an anomaly. In a forked child nothing happens: it holds nothing.
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

    /// The slot of the account that this process has: what a coordinator calls it by.
    pub fn slot(&self) -> u16 {
        self.slot as u16
    }

    /// Where this process says how it uses the engine of a card. `None` for a card that no account
    /// has, and in a forked child, which has to join for itself.
    #[inline]
    pub fn compute(&self, card: usize) -> Option<&'a ComputeWords> {
        let mine = self.generation == generation() && card < CARDS;
        mine.then(|| self.account.compute(self.slot, card))
    }

    /// Tells the coordinator, if one waits, that this process has said something new.
    #[inline]
    pub fn ring(&self) {
        let bell = self.account.bell();
        bell.fetch_add(1, Ordering::SeqCst);
        wake_all(bell);
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

    /// The rare part: the limit is near, or somebody is asking at the same time.
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
            // Perhaps it was the dead who were in the way.
            if self.account.reap_dead_holders(request.card) == 0 {
                return Err(refused);
            }
        }
    }

    /// Stays published until the request fits, as the only one that does.
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
                // Somebody who is published was interrupted, or has died.
                self.account.reap_dead();
                pause(Duration::from_micros(50));
            }
        }
        self.withdraw(request);
        Outcome::TimedOut
    }

    /// Makes the request visible to all who sum. False if one process cannot hold that much.
    ///
    /// The exchange and the loads of [`Self::fits`] are sequentially consistent: of two racers at
    /// least one sees the other.
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
    /// One sum is no proof: while it runs, bytes may leave a word that was read and enter one that
    /// was not, and be counted twice. So a word only counts if nothing was taken from it until all
    /// were read: then everything that counts was there at one instant.
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

    /// Lowers the own word; where that would go below zero, to zero.
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

    /// Counts a refusal, where there is an account to count it in.
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
