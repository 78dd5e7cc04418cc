//! Who holds how many bytes of which card, now and at most.
//!
//! This is the oracle of every memory test, so it is kept inside the very lock under which memory
//! is granted: no byte is ever granted that it has not seen, and a peak is exact, not sampled.
//! It does no I/O and knows no clock.
//!
//! A *client* is one connection of one process; a *group* is all clients that attached under the
//! same name (`STUB_GPU_GROUP`), so that the processes of one slice can be summed from outside.

use crate::Refusal;
use crate::profile::Card;

/// What a charge is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes that the program asked for.
    Requested,
    /// Bytes that the driver takes because a context exists.
    Context,
}

/// A quantity and the most it has been.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// Now.
    pub now: u64,
    /// The most since the start or the last [`Ledger::reset_peaks`].
    pub peak: u64,
}

impl Level {
    fn add(&mut self, amount: u64) {
        self.now += amount;
        self.peak = self.peak.max(self.now);
    }
}

/// What one client, one group or all of them hold of one card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// Bytes programs asked for.
    pub requested: Level,
    /// Bytes of contexts.
    pub context: Level,
    /// Live allocations.
    pub allocations: u64,
}

impl Holding {
    fn add(&mut self, kind: Kind, bytes: u64) {
        match kind {
            Kind::Requested => {
                self.requested.add(bytes);
                self.allocations += 1;
            }
            Kind::Context => self.context.add(bytes),
        }
    }

    fn take(&mut self, kind: Kind, bytes: u64, allocations: u64) {
        match kind {
            Kind::Requested => {
                self.requested.now -= bytes;
                self.allocations -= allocations;
            }
            Kind::Context => self.context.now -= bytes,
        }
    }

    fn forget_peaks(&mut self) {
        self.requested.peak = self.requested.now;
        self.context.peak = self.context.now;
    }

    /// Bytes in use, of whatever kind.
    pub fn bytes(&self) -> u64 {
        self.requested.now + self.context.now
    }
}

/// One card's page.
#[derive(Clone, Debug)]
pub struct CardBook {
    capacity: u64,
    /// All clients together.
    pub all: Holding,
    /// Charges that were refused.
    pub refused: u64,
    /// Requested charges still to be let through before each planned refusal.
    planned_refusals: Vec<u64>,
}

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

    /// Grants or refuses `bytes` of `card`.
    pub fn charge(
        &mut self,
        client: ClientId,
        card: usize,
        kind: Kind,
        bytes: u64,
    ) -> Result<(), Refusal> {
        let book = &mut self.cards[card];
        let planned = kind == Kind::Requested && book.is_planned_refusal();
        if planned || bytes > book.capacity - book.all.bytes() {
            book.refused += 1;
            return Err(Refusal::OutOfMemory);
        }
        book.all.add(kind, bytes);
        let client = &mut self.clients[client.0];
        client.holdings[card].add(kind, bytes);
        self.groups[client.group].holdings[card].add(kind, bytes);
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
        let held = &self.clients[client.0].holdings[card];
        let is_held = match kind {
            Kind::Requested => bytes <= held.requested.now && held.allocations > 0,
            Kind::Context => bytes <= held.context.now,
        };
        if !is_held {
            return Err(NotHeld);
        }
        self.take(client, card, kind, bytes, 1);
        Ok(())
    }

    fn take(&mut self, client: ClientId, card: usize, kind: Kind, bytes: u64, allocations: u64) {
        self.cards[card].all.take(kind, bytes, allocations);
        let client = &mut self.clients[client.0];
        client.holdings[card].take(kind, bytes, allocations);
        self.groups[client.group].holdings[card].take(kind, bytes, allocations);
    }

    /// The client is gone; its bytes stay booked until [`Ledger::free_all`].
    pub fn detach(&mut self, client: ClientId) {
        self.clients[client.0].state = State::Freeing;
    }

    /// Gives back everything a client holds.
    pub fn free_all(&mut self, client: ClientId) {
        for card in 0..self.cards.len() {
            let held = self.clients[client.0].holdings[card];
            self.take(client, card, Kind::Requested, held.requested.now, held.allocations);
            self.take(client, card, Kind::Context, held.context.now, 0);
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

    /// Plans a fault: the `nth` requested charge on `card` from now (1 is the next) is refused.
    pub fn refuse_nth(&mut self, card: usize, nth: u64) {
        self.cards[card].planned_refusals.push(nth);
    }
}

impl CardBook {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile;

    fn ledger() -> Ledger {
        Ledger::new(&profile::cards("t4,t4").expect("cards"))
    }

    #[test]
    fn a_card_grants_its_last_byte_and_not_one_more() {
        let mut ledger = ledger();
        let capacity = ledger.cards[0].capacity;
        let client = ledger.attach(1, "");
        ledger.charge(client, 0, Kind::Context, 100).expect("context");
        ledger.charge(client, 0, Kind::Requested, capacity - 101).expect("nearly all");
        assert_eq!(ledger.charge(client, 0, Kind::Requested, 2), Err(Refusal::OutOfMemory));
        assert_eq!(ledger.charge(client, 0, Kind::Requested, u64::MAX), Err(Refusal::OutOfMemory));
        ledger.charge(client, 0, Kind::Requested, 1).expect("the last byte");
        assert_eq!((ledger.used(0), ledger.used(1)), (capacity, 0));
        assert_eq!(ledger.cards[0].refused, 2);
    }

    #[test]
    fn peaks_are_kept_by_card_client_and_group() {
        let mut ledger = ledger();
        let (first, second) = (ledger.attach(1, "a"), ledger.attach(2, "a"));
        let other = ledger.attach(3, "b");
        ledger.charge(first, 0, Kind::Requested, 10).expect("10");
        ledger.charge(second, 0, Kind::Requested, 5).expect("5");
        ledger.release(first, 0, Kind::Requested, 10).expect("held");
        ledger.charge(second, 0, Kind::Requested, 1).expect("1");
        ledger.release(second, 0, Kind::Requested, 1).expect("held");
        ledger.charge(other, 0, Kind::Requested, 12).expect("12");
        let requested = |holding: &Holding| (holding.requested.now, holding.requested.peak);
        assert_eq!(requested(&ledger.cards[0].all), (17, 17));
        assert_eq!(requested(&ledger.groups[0].holdings[0]), (5, 15));
        assert_eq!(requested(&ledger.clients[first.0].holdings[0]), (0, 10));
        assert_eq!(ledger.release(second, 0, Kind::Requested, 6), Err(NotHeld));
        assert_eq!(ledger.release(second, 1, Kind::Requested, 0), Err(NotHeld));
        assert_eq!(ledger.release(first, 0, Kind::Context, 1), Err(NotHeld));
        ledger.reset_peaks();
        assert_eq!(requested(&ledger.groups[0].holdings[0]), (5, 5));
    }

    #[test]
    fn a_gone_client_holds_its_bytes_until_they_are_freed() {
        let mut ledger = ledger();
        let client = ledger.attach(1, "");
        ledger.charge(client, 1, Kind::Context, 7).expect("7");
        ledger.charge(client, 1, Kind::Requested, 8).expect("8");
        ledger.charge(client, 1, Kind::Requested, 9).expect("9");
        ledger.detach(client);
        assert_eq!(ledger.used(1), 24);
        ledger.free_all(client);
        assert_eq!(ledger.used(1), 0);
        assert_eq!(ledger.cards[1].all.allocations, 0);
        assert_eq!(ledger.clients[client.0].state, State::Gone);
    }

    #[test]
    fn planned_refusals_count_requests_and_strike_once() {
        let mut ledger = ledger();
        let client = ledger.attach(1, "");
        ledger.refuse_nth(0, 2);
        let mut charge = |kind| ledger.charge(client, 0, kind, 1).is_ok();
        assert!(charge(Kind::Requested) && charge(Kind::Context));
        assert!(!charge(Kind::Requested));
        assert!(charge(Kind::Requested));
    }
}
