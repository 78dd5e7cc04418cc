//! Charging and uncharging: the path of every allocation. The rare cases are in `contend`.

use crate::account::Account;
use crate::fork::generation;
use crate::layout::{CARDS, ComputeWords, Record, Slot, UNIT, Word};
use crate::slot_lock::SlotLock;
use crate::steps::{Step, at};
use hami_limits::futex::wake_all;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Why a charge was refused. The program sees "out of memory" in each case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The committed bytes leave less room than the request needs.
    OverLimit,
    /// Competing requests were in the way until the deadline. A retry may succeed.
    Busy,
    /// This process is a forked child of the member: it has to join itself.
    Forked,
}

/// The origin of a request for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requester {
    /// It sees a refusal. So its request waits for the memory of processes that have died, two
    /// seconds at most, and a refusal is counted.
    Program,
    /// Its request does not wait, and a refusal is not counted.
    Library,
}

impl Requester {
    fn patience(self) -> Duration {
        if self == Self::Program { Member::DEPARTURE } else { Duration::ZERO }
    }
}

/// The membership of this process in an account. Any number of threads may charge through it at
/// once.
///
/// It ends when this value is dropped, when the process exits, or when it calls `exec`. Another
/// process then releases the bytes that the process still holds, by [`Member::reap_dead`].
#[derive(Debug)]
pub struct Member<'a> {
    account: &'a Account,
    slot: Slot,
    generation: u32,
    _lock: SlotLock,
}

/// A request for units of a card.
pub(crate) struct Request {
    pub card: usize,
    pub units: u64,
    pub limit: u64,
}

/// The result of [`Member::publish`].
pub(crate) enum Published {
    Yes,
    /// One process cannot hold that much.
    TooMuch,
    /// Older requests of this process are revoked and not withdrawn yet.
    Revoked,
}

impl<'a> Member<'a> {
    pub(crate) fn new(account: &'a Account, slot: Slot, lock: SlotLock) -> Self {
        Self { account, slot, generation: generation(), _lock: lock }
    }

    /// The account that was joined.
    pub fn account(&self) -> &'a Account {
        self.account
    }

    /// Charges `bytes` on a card whose limit for the whole slice is `limit` bytes, or refuses. A
    /// card that no account has ([`CARDS`] or more) is refused.
    ///
    /// The committed sum never exceeds the limit. A request that fits throughout the call is not
    /// refused, unless the kernel does not run this process for a whole second.
    #[inline]
    pub fn charge(
        &self,
        card: usize,
        bytes: u64,
        limit: u64,
        requester: Requester,
    ) -> Result<(), Refused> {
        let request = self.request(card, bytes, limit)?;
        // Only read: a request that cannot be granted must not block others.
        let committed: u64 = self.words(&request).map(Word::committed).sum();
        if committed + self.account.shared_units(card) + request.units <= request.limit
            && let Published::Yes = self.publish(&request)
        {
            if let Some(total) = self.fits(&request)
                && self.commit(&request, total)
            {
                return Ok(());
            }
            self.withdraw(&request);
        }
        let charged = self.charge_slowly(&request, requester.patience());
        charged.inspect_err(|_| self.count(card, requester))
    }

    /// Refuses a request that [`Self::charge`] would refuse now, without charging. A process that
    /// charges several accounts calls it first, so that it charges none of them if one refuses.
    #[inline(never)] // only slices inside one another need it, and all charges would be slower
    pub fn admits(
        &self,
        card: usize,
        bytes: u64,
        limit: u64,
        requester: Requester,
    ) -> Result<(), Refused> {
        let request = self.request(card, bytes, limit)?;
        let deadline = Instant::now() + requester.patience();
        while self.is_over(&request) {
            let room = self.make_room(&request, deadline);
            room.inspect_err(|_| self.count(card, requester))?;
        }
        Ok(())
    }

    /// Uncharges `bytes` on a card. If that is more than was charged, all of the charge is released
    /// and an anomaly is counted. In a forked child nothing happens, because the child holds
    /// nothing.
    #[inline]
    pub fn uncharge(&self, card: usize, bytes: u64) {
        if self.generation != generation() || card >= CARDS {
            return;
        }
        self.release(card, bytes.div_ceil(UNIT), || {});
    }

    /// Lowers this process's word. Sums that prove refusals ignore it until that is done, so `first`
    /// may charge the same units elsewhere.
    #[inline]
    pub(crate) fn release(&self, card: usize, units: u64, first: impl FnOnce()) {
        let record = self.record();
        record.releases_begun.fetch_add(1, Ordering::SeqCst);
        first();
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

    /// Records that the driver has taken `bytes` of the charged bytes for itself, so that they can
    /// be shown separately.
    pub fn add_driver_memory(&self, card: usize, bytes: u64) {
        if let Some(words) = self.compute(card) {
            words.driver_memory.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Undoes [`Self::add_driver_memory`]; call it before the bytes are uncharged.
    pub fn remove_driver_memory(&self, card: usize, bytes: u64) {
        if let Some(words) = self.compute(card) {
            words.driver_memory.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// The slot of this process in the account. Grants name processes by their slots.
    pub fn slot(&self) -> u16 {
        self.slot.index() as u16
    }

    pub(crate) fn slot_number(&self) -> Slot {
        self.slot
    }

    /// The words in which this process reports its use of a card's engine. `None` for a card that
    /// no account has, and in a forked child, which has to join itself.
    #[inline]
    pub fn compute(&self, card: usize) -> Option<&'a ComputeWords> {
        let mine = self.generation == generation() && card < CARDS;
        mine.then(|| self.account.compute(self.slot.index(), card))
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
        let limit = limit.saturating_sub(self.account.measured(card));
        Ok(Request { card, units: bytes.div_ceil(UNIT), limit: limit / UNIT })
    }

    /// Makes the request visible to all sums.
    ///
    /// The exchange here and the loads of [`Self::fits`] are sequentially consistent. So of two
    /// processes that race, at least one sees the other.
    #[inline]
    pub(crate) fn publish(&self, request: &Request) -> Published {
        let word = self.word(request.card);
        let mut old = word.load(Ordering::Relaxed);
        loop {
            if Word(old).is_revoked() {
                return Published::Revoked;
            }
            let Some(new) = Word(old).publish(request.units) else { return Published::TooMuch };
            match word.compare_exchange_weak(old, new.0, Ordering::SeqCst, Ordering::Relaxed) {
                Err(now) => old = now,
                Ok(_) => break,
            }
        }
        at(Step::Published);
        Published::Yes
    }

    /// The units that are charged and requested with a published request, if that fits.
    #[inline]
    pub(crate) fn fits(&self, request: &Request) -> Option<u64> {
        let words = self.words(request).map(Word::total).sum::<u64>();
        let total = words + self.account.shared_units(request.card);
        (total <= request.limit).then_some(total)
    }

    /// Charges a published request that fits, with this `total`. False if another process has
    /// revoked it. Then the caller must withdraw it, because others may have been granted the same
    /// memory.
    #[inline]
    pub(crate) fn commit(&self, request: &Request, total: u64) -> bool {
        at(Step::BeforeCommit);
        let word = self.word(request.card);
        let mut old = word.load(Ordering::Relaxed);
        loop {
            let Some(new) = Word(old).commit(request.units) else { return false };
            match word.compare_exchange_weak(old, new.0, Ordering::SeqCst, Ordering::Relaxed) {
                Err(now) => old = now,
                Ok(_) => break,
            }
        }
        at(Step::Committed);
        self.account.raise_peak(request.card, total);
        true
    }

    pub(crate) fn withdraw(&self, request: &Request) {
        at(Step::BeforeWithdraw);
        self.lower(request.card, |word| word.withdraw(request.units), Word::without_tentative);
    }

    #[inline]
    pub(crate) fn words(&self, request: &Request) -> impl Iterator<Item = Word> {
        self.account.words(request.card).iter().map(|word| {
            at(Step::Summing);
            Word(word.load(Ordering::SeqCst))
        })
    }

    /// This process's own word.
    #[inline]
    fn word(&self, card: usize) -> &AtomicU64 {
        &self.account.layout().words[card][self.slot.index()]
    }

    /// Lowers this process's word. If the result would be below zero, it becomes zero, and an
    /// anomaly is counted.
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

    /// Counts a refusal, if the program sees it.
    #[cold]
    fn count(&self, card: usize, requester: Requester) {
        if requester == Requester::Program
            && let Some(refusals) = self.record().counters.refusals.get(card)
        {
            refusals.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn record(&self) -> &Record {
        &self.account.layout().records[self.slot.index()]
    }
}
