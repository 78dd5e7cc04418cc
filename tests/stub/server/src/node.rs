//! The server's state: the ledger under its lock, and what each client counts.
//!
//! Every answer to a client is made here, under one lock, so the order of charges in the ledger is
//! the order in which they were granted.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use stub_engine::counters::{Activity, Counters, Shared};
use stub_engine::durations::Durations;
use stub_engine::ledger::{ClientId, Kind, Ledger, State};
use stub_engine::profile::Card;
use stub_engine::symbols::Library;
use stub_engine::wire::{Operation, Reply, Request};
use stub_engine::{Usage, report};

/// A client's counters: live ones are read when asked for, the last word of a gone one is kept.
enum Seen {
    Live(Library, Shared),
    Last(Box<Activity>),
}

impl Seen {
    fn activity(&self) -> Activity {
        match self {
            Self::Live(library, counters) => counters.activity(*library),
            Self::Last(activity) => Activity::clone(activity),
        }
    }

    fn live(&self) -> Option<(Library, &Counters)> {
        match self {
            Self::Live(library, counters) => Some((*library, counters)),
            Self::Last(_) => None,
        }
    }
}

struct Book {
    ledger: Ledger,
    /// By client id.
    seen: Vec<Seen>,
    free_delay: Duration,
    durations: Durations,
    durations_version: u64,
    /// Library, place of the symbol, microseconds.
    delays: Vec<(Library, usize, u32)>,
    is_ending: bool,
}

/// The engine of all clients.
pub struct Node {
    /// Its cards.
    pub cards: Vec<Card>,
    book: Mutex<Book>,
    ending: Condvar,
}

impl Node {
    /// A node with these cards.
    pub fn new(cards: Vec<Card>, free_delay: Duration) -> Self {
        let book = Book {
            ledger: Ledger::new(&cards),
            seen: Vec::new(),
            free_delay,
            durations: Durations::default(),
            durations_version: 1,
            delays: Vec::new(),
            is_ending: false,
        };
        Self { cards, book: Mutex::new(book), ending: Condvar::new() }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client has come.
    pub fn attach(&self, pid: u32, group: &str, library: Library, counters: Shared) -> ClientId {
        let mut book = self.book();
        counters.durations_version.store(book.durations_version, Relaxed);
        for (of, symbol, us) in &book.delays {
            if *of == library {
                counters.delays_us[*symbol].store(*us, Relaxed);
            }
        }
        book.seen.push(Seen::Live(library, counters));
        book.ledger.attach(pid, group)
    }

    /// A client has gone: its bytes come back after the delay.
    pub fn detach(&self, client: ClientId) {
        let mut book = self.book();
        book.ledger.detach(client);
        // Its queued work dies with it.
        book.seen[client.0] = Seen::Last(Box::new(book.seen[client.0].activity()));
        let due = Instant::now() + book.free_delay;
        while let Some(left) = due.checked_duration_since(Instant::now())
            && !book.is_ending
        {
            let waited = self.ending.wait_timeout(book, left);
            book = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        book.ledger.free_all(client);
    }

    /// Answers a request; `None` when it makes no sense.
    pub fn answer(&self, client: ClientId, request: &Request) -> Option<Vec<u8>> {
        let card = request.card as usize;
        if card >= self.cards.len() {
            return None;
        }
        let kind = Kind::from_wire(request.kind)?;
        let mut book = self.book();
        let mut reply = Reply::default();
        let mut tail = Vec::new();
        match request.operation {
            Operation::Attach | Operation::Cards => return None,
            Operation::Charge => {
                let granted = book.ledger.charge(client, card, kind, request.amount);
                reply.status = u32::from(granted.is_err());
            }
            Operation::Release => {
                book.ledger.release(client, card, kind, request.amount).ok()?;
            }
            Operation::ChargePool => {
                let rooms = request.rooms;
                let granted = book.ledger.charge_pool(client, card, rooms, request.amount).ok()?;
                reply.status = u32::from(granted.is_none());
                reply.values[0] = granted.unwrap_or(0);
            }
            Operation::ReleasePool => {
                let room = request.rooms[0];
                book.ledger.release_pool(client, card, request.amount, room).ok()?;
            }
            Operation::Usage => {
                let Usage { used, busy_ns } = book.usage(card);
                reply.values = [used, busy_ns];
            }
            Operation::Processes => tail = book.processes(card),
            Operation::Durations => tail = book.durations.to_text().into_bytes(),
        }
        Some(reply.with_tail(&tail))
    }

    /// The ledger as JSON.
    pub fn report(&self) -> serde_json::Value {
        let book = self.book();
        let activities: Vec<_> = book.seen.iter().map(Seen::activity).collect();
        report::ledger(&self.cards, &book.ledger, &activities)
    }

    /// Lets peaks start from now.
    pub fn reset_peaks(&self) {
        self.book().ledger.reset_peaks();
    }

    /// Sets how long a gone process's bytes stay taken, for those that go from now on.
    pub fn set_free_delay(&self, delay: Duration) {
        self.book().free_delay = delay;
    }

    /// Sets the kernel durations, for every client's next launch.
    pub fn set_durations(&self, durations: Durations) {
        let mut book = self.book();
        book.durations = durations;
        book.durations_version += 1;
        for (_, counters) in book.seen.iter().filter_map(Seen::live) {
            counters.durations_version.store(book.durations_version, Relaxed);
        }
    }

    /// Makes every call of a symbol take longer, in every client.
    pub fn set_delay(&self, library: Library, symbol: usize, us: u32) {
        let mut book = self.book();
        book.delays.retain(|(of, place, _)| (*of, *place) != (library, symbol));
        book.delays.push((library, symbol, us));
        for (of, counters) in book.seen.iter().filter_map(Seen::live) {
            if of == library {
                counters.delays_us[symbol].store(us, Relaxed);
            }
        }
    }

    /// Plans an out-of-memory answer.
    pub fn refuse_nth(&self, card: usize, nth: u64) {
        self.book().ledger.refuse_nth(card, nth);
    }

    /// Ends every wait for a delay.
    pub fn end(&self) {
        self.book().is_ending = true;
        self.ending.notify_all();
    }
}

impl Book {
    fn busy_ns(seen: &Seen, card: usize) -> u64 {
        match seen {
            Seen::Live(_, counters) => counters.cards[card].busy_ns(),
            Seen::Last(activity) => activity.cards[card].1,
        }
    }

    fn usage(&self, card: usize) -> Usage {
        let busy_ns = self.seen.iter().map(|seen| Self::busy_ns(seen, card)).sum();
        Usage { used: self.ledger.used(card), busy_ns }
    }

    fn processes(&self, card: usize) -> Vec<u8> {
        let mut rows = Vec::new();
        for (client, seen) in self.ledger.clients.iter().zip(&self.seen) {
            let bytes = client.holdings[card].bytes();
            if client.state != State::Gone && bytes > 0 {
                let peak = client.holdings[card].bytes_peak();
                for word in [u64::from(client.pid), bytes, peak, Self::busy_ns(seen, card)] {
                    rows.extend_from_slice(&word.to_le_bytes());
                }
            }
        }
        rows
    }
}
