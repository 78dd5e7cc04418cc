//! The cards' time: the machine of all clients, and the rings in which their work arrives.
//!
//! Work is taken in whenever somebody asks something, in the order of the clients' clocks, up to the
//! instant on the clock of whoever asks. The server looks at a clock of its own only for the control
//! socket and for a client's death, and not even then where the clients' clock is a virtual one: there
//! it is the latest instant that a client has written down.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use stub_engine::clock::{Clock, RealClock};
use stub_engine::ring::Shared;
use stub_engine::time::{Item, Look, Machine, Question, Slicing};

/// A client's page, and what has been taken from its ring.
struct Source {
    page: Arc<Shared>,
    taken: u64,
    /// The instant of its last item: a thread that was held up cannot go back before it.
    last: u64,
}

/// Machine and rings.
pub struct Timekeeper {
    /// Knows clients by their ledger's numbers.
    pub machine: Machine,
    /// By client; `None`: it has gone.
    sources: Vec<Option<Source>>,
    has_virtual_clock: bool,
}

impl Timekeeper {
    /// For so many cards. `has_virtual_clock`: the clients' clock is not this machine's.
    pub fn new(cards: usize, slicing: Slicing, has_virtual_clock: bool) -> Self {
        let mut machine = Machine::new(cards);
        machine.set_slicing(slicing, 0);
        Self { machine, sources: Vec::new(), has_virtual_clock }
    }

    /// A client has come.
    pub fn attach(&mut self, group: &str, page: Arc<Shared>) {
        self.machine.attach(group);
        self.sources.push(Some(Source { page, taken: 0, last: 0 }));
    }

    /// A client has gone.
    pub fn detach(&mut self, client: usize) {
        let now = self.catch_up();
        self.machine.client_gone(client, now);
        self.sources[client] = None;
    }

    /// Takes in everybody's work up to an instant, and goes there.
    pub fn advance(&mut self, until: u64) {
        self.take_in(until);
        self.machine.advance(until);
    }

    fn take_in(&mut self, until: u64) {
        let mut items: Vec<(usize, Item)> = Vec::new();
        for (client, source) in self.sources.iter_mut().enumerate() {
            let Some(Source { page, taken, last }) = source else { continue };
            page.ring.take(taken, until, |mut item| {
                item.at = item.at.max(*last);
                *last = item.at;
                items.push((client, item));
            });
        }
        // Stable: the order of a client's own work stays.
        items.sort_by_key(|(_, item)| item.at);
        for (client, item) in items {
            self.machine.submit(client, &item);
        }
    }

    /// Goes to now; returns it.
    pub fn catch_up(&mut self) -> u64 {
        if self.has_virtual_clock {
            self.take_in(u64::MAX);
            let told = |source: &Source| source.page.told.load(Ordering::Acquire);
            let latest = self.sources.iter().flatten().map(told).max();
            self.machine.advance(latest.unwrap_or(0));
        } else {
            self.advance(RealClock.now());
        }
        self.machine.now()
    }

    /// How far a client's mark has come at an instant of its clock.
    pub fn look(&mut self, client: usize, question: &Question, now: u64) -> Look {
        self.advance(now);
        self.machine.look(client, question)
    }
}
