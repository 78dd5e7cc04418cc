//! How many bytes of which card each process holds, now and at peak.
//!
//! The ledger is the oracle of every memory test. It is updated under the same lock under which
//! memory is allocated, so it contains every allocated byte, and peaks are exact. It does no I/O
//! and has no clock.
//!
//! A charge has a [`Kind`]: bytes that a program requests, or bytes that the driver takes. Beside
//! these there are *cached* bytes, which a memory pool keeps and no allocation uses, and *rounding*:
//! what an allocation takes beyond the requested bytes. [`Holding`] defines how they add up.
//!
//! A *client* is one connection of one process. A *group* is all clients that attached under the
//! same name (`STUB_GPU_GROUP`); with it, tests sum the processes of one slice from outside.

mod holding;
mod shared;
#[cfg(test)]
mod tests;

pub use holding::{Holding, Kind, Level, Walk};
pub use shared::{ObjectId, Probe, SharedRecord};

use crate::Refusal;
use crate::memory_limits::MemoryLimits;
use crate::profile::{Card, Profile};
use std::collections::{BTreeMap, BTreeSet};

/// The record of one card.
#[derive(Clone, Debug)]
pub struct CardRecord {
    profile: Profile,
    capacity: u64,
    /// All clients together.
    pub all: Holding,
    /// Charges that were refused.
    pub refused: u64,
    /// For each planned refusal, how many allocations are left until it happens.
    planned_refusals: Vec<u64>,
    /// The card and GPU instance whose memory it is, if it is a MIG device. The devices of one GPU
    /// instance share its memory.
    instance: Option<(usize, u32)>,
}

/// The largest managed allocation: more than any machine has, and small enough that sums do not
/// overflow.
const MANAGED_MAX: u64 = 1 << 47;

/// The state of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its connection is open.
    Alive,
    /// It has ended; its memory is still allocated.
    Freeing,
    /// It has ended, and its memory is free.
    Freed,
}

/// The record of one client.
#[derive(Clone, Debug)]
pub struct ClientRecord {
    /// Its process.
    pub pid: u32,
    /// Index into [`Ledger::groups`].
    pub group: usize,
    /// Its state.
    pub state: State,
    /// Its memory, by card.
    pub holdings: Vec<Holding>,
}

/// The record of one group.
#[derive(Clone, Debug)]
pub struct GroupRecord {
    /// Its name; the default group has none.
    pub name: String,
    /// The memory of its clients, by card.
    pub holdings: Vec<Holding>,
}

/// A client's number, which is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientId(pub usize);

/// A release without a charge: a bug in the stub's driver, which must be reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotHeld;

/// The ledger of all cards.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// By card index.
    pub cards: Vec<CardRecord>,
    /// By client id. Records of ended clients stay, because tests read their peaks.
    pub clients: Vec<ClientRecord>,
    /// By group index.
    pub groups: Vec<GroupRecord>,
    /// The allocations that several clients can hold.
    pub shared: BTreeMap<ObjectId, SharedRecord>,
    /// Those of them that no client holds, and exported descriptors keep.
    pub kept: BTreeSet<ObjectId>,
    /// The driver's own limits of cgroups.
    pub limits: MemoryLimits,
}

impl Ledger {
    /// An empty ledger of these cards.
    pub fn new(cards: &[Card]) -> Self {
        let cards = cards.iter().map(|card| CardRecord::new(&card.profile)).collect();
        Self {
            cards,
            clients: Vec::new(),
            groups: Vec::new(),
            shared: BTreeMap::new(),
            kept: BTreeSet::new(),
            limits: MemoryLimits::default(),
        }
    }

    /// Begins the record of a MIG device, behind those of the cards. Nobody holds its memory.
    pub fn put_device(&mut self, index: usize, profile: &Profile, instance: (usize, u32)) {
        let count = self.cards.len().max(index + 1);
        self.cards.resize_with(count, || CardRecord::new(profile));
        self.cards[index] = CardRecord { instance: Some(instance), ..CardRecord::new(profile) };
        let clients = self.clients.iter_mut().map(|record| &mut record.holdings);
        clients.for_each(|holdings| holdings.resize(count, Holding::default()));
        for group in &mut self.groups {
            group.holdings.resize(count, Holding::default());
            group.holdings[index] = Holding::default();
        }
    }

    /// Adds a client.
    pub fn attach(&mut self, pid: u32, group: &str) -> ClientId {
        let holdings = vec![Holding::default(); self.cards.len()];
        let known = self.groups.iter().position(|record| record.name == group);
        let group = known.unwrap_or_else(|| {
            self.groups.push(GroupRecord { name: group.to_owned(), holdings: holdings.clone() });
            self.groups.len() - 1
        });
        self.clients.push(ClientRecord { pid, group, state: State::Alive, holdings });
        ClientId(self.clients.len() - 1)
    }

    /// Charges `bytes` of `card`, or refuses. Managed bytes are on the host and need no room on the
    /// card.
    pub fn charge(
        &mut self,
        client: ClientId,
        card: usize,
        kind: Kind,
        bytes: u64,
    ) -> Result<(), Refusal> {
        let left = self.left(client, card);
        let record = &mut self.cards[card];
        let planned = kind.is_requested() && record.is_planned_refusal();
        let rounding = record.rounding(kind, bytes);
        let has_room = if kind == Kind::Managed {
            bytes <= MANAGED_MAX
        } else {
            bytes.saturating_add(rounding) <= left
        };
        if planned || !has_room {
            record.refused += 1;
            return Err(Refusal::OutOfMemory);
        }
        self.each(client, card, |holding| holding.add(kind, bytes, rounding));
        Ok(())
    }

    /// Releases one charge; refuses a release of more than is held.
    pub fn release(
        &mut self,
        client: ClientId,
        card: usize,
        kind: Kind,
        bytes: u64,
    ) -> Result<(), NotHeld> {
        let rounding = self.cards[card].rounding(kind, bytes);
        if !self.clients[client.0].holdings[card].holds(kind, bytes, rounding) {
            return Err(NotHeld);
        }
        self.each(client, card, |holding| holding.take(kind, bytes, rounding));
        Ok(())
    }

    /// Charges an allocation of `bytes` from a memory pool, which grows by the first of `rooms`
    /// that fits; a room of 0 means that the pool has enough already. Returns how much the pool
    /// grew; `None` when no room fits.
    pub fn charge_pool(
        &mut self,
        client: ClientId,
        card: usize,
        rooms: [u64; 2],
        bytes: u64,
    ) -> Result<Option<u64>, NotHeld> {
        let left = self.left(client, card);
        let record = &mut self.cards[card];
        let planned = record.is_planned_refusal();
        let room = rooms.into_iter().find(|room| *room <= left && !planned);
        let Some(room) = room else {
            record.refused += 1;
            return Ok(None);
        };
        let cached = self.clients[client.0].holdings[card].cached.now;
        if bytes == 0 || bytes > cached + room {
            return Err(NotHeld);
        }
        self.each(client, card, |holding| holding.add_pooled(room, bytes));
        Ok(Some(room))
    }

    /// Releases an allocation of `bytes` from a memory pool, if `bytes` is not 0; then the pool
    /// returns `room` to the card.
    pub fn release_pool(
        &mut self,
        client: ClientId,
        card: usize,
        bytes: u64,
        room: u64,
    ) -> Result<(), NotHeld> {
        let held = &self.clients[client.0].holdings[card];
        let is_live = bytes == 0 || held.holds(Kind::Requested, bytes, 0);
        if !is_live || room > held.cached.now + bytes {
            return Err(NotHeld);
        }
        self.each(client, card, |holding| holding.take_pooled(bytes, room));
        Ok(())
    }

    /// Records the allocations and frees of a graph's launch, in memory that the graph memory pool
    /// has reserved.
    pub fn walk_graph(
        &mut self,
        client: ClientId,
        card: usize,
        walk: &Walk,
    ) -> Result<(), NotHeld> {
        if !self.clients[client.0].holdings[card].can_walk(walk) {
            return Err(NotHeld);
        }
        self.each(client, card, |holding| holding.walk(walk));
        Ok(())
    }

    /// Applies a change to what the card, the client and its group hold.
    #[inline]
    fn each(&mut self, client: ClientId, card: usize, change: impl Fn(&mut Holding)) {
        change(&mut self.cards[card].all);
        let record = &mut self.clients[client.0];
        let before = record.holdings[card].bytes();
        change(&mut record.holdings[card]);
        change(&mut self.groups[record.group].holdings[card]);
        if self.limits.backend.is_some() && self.cards[card].instance.is_none() {
            self.limits.change(card, client, before, record.holdings[card].bytes());
        }
    }

    /// Marks a client as ended; its bytes stay charged until [`Ledger::free_all`].
    pub fn detach(&mut self, client: ClientId) {
        self.clients[client.0].state = State::Freeing;
    }

    /// Releases everything that a client holds.
    pub fn free_all(&mut self, client: ClientId) {
        self.drop_all_holds(client);
        for card in 0..self.cards.len() {
            let held = self.clients[client.0].holdings[card];
            self.each(client, card, |holding| holding.take_all(&held));
        }
        self.clients[client.0].state = State::Freed;
    }

    /// Whether the memory of a client is free.
    pub fn is_freed(&self, client: ClientId) -> bool {
        self.clients[client.0].state == State::Freed
    }

    /// Whether a client has memory of a card.
    pub fn has_memory(&self, client: ClientId, card: usize) -> bool {
        self.clients[client.0].holdings[card].bytes() > 0
    }

    /// Bytes of a card that a client can allocate.
    fn left(&self, client: ClientId, card: usize) -> u64 {
        let record = &self.cards[card];
        let Some(instance) = record.instance else {
            return record.left().min(self.limits.left(card, client));
        };
        let others = self.cards.iter().filter(|other| other.instance == Some(instance));
        record.capacity - others.map(|other| other.all.bytes()).sum::<u64>()
    }

    /// Bytes of a card in use.
    pub fn used(&self, card: usize) -> u64 {
        self.cards[card].all.bytes()
    }

    /// Sets every peak to what is held now.
    pub fn reset_peaks(&mut self) {
        for record in &mut self.cards {
            record.all.reset_peaks();
            record.refused = 0;
        }
        let clients = self.clients.iter_mut().map(|record| &mut record.holdings);
        let groups = self.groups.iter_mut().map(|record| &mut record.holdings);
        clients.chain(groups).flatten().for_each(Holding::reset_peaks);
    }

    /// Plans a fault: the `nth` allocation on `card` from now (1 is the next) is refused, whether
    /// it is linear, managed, from a pool, physical or external.
    pub fn refuse_nth(&mut self, card: usize, nth: u64) {
        self.cards[card].planned_refusals.push(nth);
    }
}

impl CardRecord {
    fn new(profile: &Profile) -> Self {
        Self {
            profile: profile.clone(),
            capacity: profile.usable(),
            all: Holding::default(),
            refused: 0,
            planned_refusals: Vec::new(),
            instance: None,
        }
    }

    /// Bytes that are not in use.
    fn left(&self) -> u64 {
        self.capacity - self.all.bytes()
    }

    /// Bytes that an allocation takes beyond the requested ones. It depends only on the size, so a
    /// release finds the same number as the charge.
    #[inline]
    fn rounding(&self, kind: Kind, bytes: u64) -> u64 {
        if kind == Kind::Requested { self.profile.rounding(bytes) } else { 0 }
    }

    fn is_planned_refusal(&mut self) -> bool {
        if self.planned_refusals.is_empty() {
            return false;
        }
        for left in &mut self.planned_refusals {
            *left -= 1;
        }
        let before = self.planned_refusals.len();
        self.planned_refusals.retain(|left| *left > 0);
        self.planned_refusals.len() < before
    }
}
