//! Who holds how many bytes of which card, now and at most.
//!
//! This is the oracle of every memory test, so it is kept inside the very lock under which memory
//! is granted: no byte is ever granted that it has not seen, and a peak is exact, not sampled.
//! It does no I/O and knows no clock.
//!
//! Bytes are of three kinds when they are asked for ([`Kind`]), and of a fourth when a memory pool
//! keeps them: room on the card that no allocation lives in, *cached*. [`Holding`] says how they add up.
//!
//! A *client* is one connection of one process; a *group* is all clients that attached under the
//! same name (`STUB_GPU_GROUP`), so that the processes of one slice can be summed from outside.

mod holding;
#[cfg(test)]
mod tests;

pub use holding::{Holding, Kind, Level};

use crate::Refusal;
use crate::profile::Card;

/// One card's page.
#[derive(Clone, Debug)]
pub struct CardBook {
    capacity: u64,
    /// All clients together.
    pub all: Holding,
    /// Charges that were refused.
    pub refused: u64,
    /// Allocations still to be let through before each planned refusal.
    planned_refusals: Vec<u64>,
}

/// The largest managed allocation: more than any machine has, and sums of it stay far from overflow.
const MANAGED_MAX: u64 = 1 << 47;

/// A client's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its connection is open.
    Alive,
    /// It is gone, its bytes are not back yet.
    Freeing,
    /// It is gone, and so are its bytes.
    Gone,
}

/// One client's page.
#[derive(Clone, Debug)]
pub struct ClientBook {
    /// Its process.
    pub pid: u32,
    /// Index into [`Ledger::groups`].
    pub group: usize,
    /// Whether it still lives.
    pub state: State,
    /// What it holds, by card.
    pub holdings: Vec<Holding>,
}

/// One group's page.
#[derive(Clone, Debug)]
pub struct GroupBook {
    /// Its name; the default group has none.
    pub name: String,
    /// What its clients hold, by card.
    pub holdings: Vec<Holding>,
}

/// A client's number, for as long as the ledger lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientId(pub usize);

/// A release without its charge: a bug of the stub's driver, which must not go unseen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotHeld;

/// The whole book.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// By card index.
    pub cards: Vec<CardBook>,
    /// By client id; the gone ones stay, their peaks are what tests ask for.
    pub clients: Vec<ClientBook>,
    /// By group index.
    pub groups: Vec<GroupBook>,
}

impl Ledger {
    /// An empty book over these cards.
    pub fn new(cards: &[Card]) -> Self {
        let cards = cards
            .iter()
            .map(|card| CardBook {
                capacity: card.profile.usable(),
                all: Holding::default(),
                refused: 0,
                planned_refusals: Vec::new(),
            })
            .collect();
        Self { cards, clients: Vec::new(), groups: Vec::new() }
    }

    /// Opens a page for a client.
    pub fn attach(&mut self, pid: u32, group: &str) -> ClientId {
        let holdings = vec![Holding::default(); self.cards.len()];
        let known = self.groups.iter().position(|book| book.name == group);
        let group = known.unwrap_or_else(|| {
            self.groups.push(GroupBook { name: group.to_owned(), holdings: holdings.clone() });
            self.groups.len() - 1
        });
        self.clients.push(ClientBook { pid, group, state: State::Alive, holdings });
        ClientId(self.clients.len() - 1)
    }

    /// Grants or refuses `bytes` of `card`. Managed bytes live on the host: they need no room there.
    pub fn charge(
        &mut self,
        client: ClientId,
        card: usize,
        kind: Kind,
        bytes: u64,
    ) -> Result<(), Refusal> {
        let book = &mut self.cards[card];
        let planned = kind != Kind::Context && book.is_planned_refusal();
        let has_room =
            if kind == Kind::Managed { bytes <= MANAGED_MAX } else { bytes <= book.left() };
        if planned || !has_room {
            book.refused += 1;
            return Err(Refusal::OutOfMemory);
        }
        self.each(client, card, |holding| holding.add(kind, bytes));
        Ok(())
    }

    /// Takes back one charge; refuses what would leave less than nothing.
    pub fn release(
        &mut self,
        client: ClientId,
        card: usize,
        kind: Kind,
        bytes: u64,
    ) -> Result<(), NotHeld> {
        if !self.clients[client.0].holdings[card].holds(kind, bytes) {
            return Err(NotHeld);
        }
        self.each(client, card, |holding| holding.take(kind, bytes));
        Ok(())
    }

    /// An allocation of `bytes` from a memory pool, which grows by the first of `rooms` that fits; a
    /// room of 0 says that it lives in what the pool has already. Returns how much the pool grew;
    /// `None` when no room fits.
    pub fn charge_pool(
        &mut self,
        client: ClientId,
        card: usize,
        rooms: [u64; 2],
        bytes: u64,
    ) -> Result<Option<u64>, NotHeld> {
        let book = &mut self.cards[card];
        let planned = book.is_planned_refusal();
        let left = book.left();
        let room = rooms.into_iter().find(|room| *room <= left && !planned);
        let Some(room) = room else {
            book.refused += 1;
            return Ok(None);
        };
        let cached = self.clients[client.0].holdings[card].cached.now;
        if bytes == 0 || bytes > cached + room {
            return Err(NotHeld);
        }
        self.each(client, card, |holding| holding.add_pooled(room, bytes));
        Ok(Some(room))
    }

    /// An allocation of `bytes` from a memory pool has ended, where `bytes` is not 0; then the pool
    /// gives `room` back to the card.
    pub fn release_pool(
        &mut self,
        client: ClientId,
        card: usize,
        bytes: u64,
        room: u64,
    ) -> Result<(), NotHeld> {
        let held = &self.clients[client.0].holdings[card];
        let is_live = bytes == 0 || held.holds(Kind::Requested, bytes);
        if !is_live || room > held.cached.now + bytes {
            return Err(NotHeld);
        }
        self.each(client, card, |holding| holding.take_pooled(bytes, room));
        Ok(())
    }

    /// Changes what the card, the client and its group hold, all three alike.
    #[inline]
    fn each(&mut self, client: ClientId, card: usize, change: impl Fn(&mut Holding)) {
        change(&mut self.cards[card].all);
        let client = &mut self.clients[client.0];
        change(&mut client.holdings[card]);
        change(&mut self.groups[client.group].holdings[card]);
    }

    /// The client is gone; its bytes stay booked until [`Ledger::free_all`].
    pub fn detach(&mut self, client: ClientId) {
        self.clients[client.0].state = State::Freeing;
    }

    /// Gives back everything a client holds.
    pub fn free_all(&mut self, client: ClientId) {
        for card in 0..self.cards.len() {
            let held = self.clients[client.0].holdings[card];
            self.each(client, card, |holding| holding.take_all(&held));
        }
        self.clients[client.0].state = State::Gone;
    }

    /// Bytes of a card in use.
    pub fn used(&self, card: usize) -> u64 {
        self.cards[card].all.bytes()
    }

    /// Lets every peak start again from what is held now.
    pub fn reset_peaks(&mut self) {
        for book in &mut self.cards {
            book.all.forget_peaks();
            book.refused = 0;
        }
        let clients = self.clients.iter_mut().map(|book| &mut book.holdings);
        let groups = self.groups.iter_mut().map(|book| &mut book.holdings);
        clients.chain(groups).flatten().for_each(Holding::forget_peaks);
    }

    /// Plans a fault: the `nth` allocation on `card` from now (1 is the next) is refused, whether it
    /// is linear, managed or from a pool.
    pub fn refuse_nth(&mut self, card: usize, nth: u64) {
        self.cards[card].planned_refusals.push(nth);
    }
}

impl CardBook {
    /// Bytes that are not in use.
    fn left(&self) -> u64 {
        self.capacity - self.all.bytes()
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
