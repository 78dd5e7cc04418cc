//! The cards' time: the machine of all clients, and the rings in which their work arrives.
//!
//! With each request the server takes work from the rings, in the order of the clients' clocks and
//! up to the time of the requesting client. The server reads a clock of its own only for the
//! control socket and when a client ends. With a virtual clock it uses the latest instant that a
//! client has reported instead.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use stub_engine::clock::{Clock, RealClock};
use stub_engine::ring::Shared;
use stub_engine::time::{Item, Machine, Query, Slicing, Status};

/// A client's page, and how much has been taken from its ring.
struct Source {
    page: Arc<Shared>,
    taken: u64,
    /// The instant of its last item: an item of a delayed thread cannot be before it.
    last: u64,
    /// The card of which it uses a MIG device, and the device's index in the machine.
    device: Option<(u32, u32)>,
}

/// Machine and rings.
pub struct Timekeeper {
    /// Clients have the same numbers as in the ledger.
    pub machine: Machine,
    /// By client; `None` when it has ended.
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

    /// Adds a client.
    pub fn attach(&mut self, group: &str, page: Arc<Shared>) {
        self.machine.attach(group);
        self.sources.push(Some(Source { page, taken: 0, last: 0, device: None }));
    }

    /// Puts a client's work for a card on a MIG device of it.
    pub fn open(&mut self, client: usize, card: usize, device: usize) {
        self.machine.grow(device + 1);
        if let Some(source) = &mut self.sources[client] {
            source.device = Some((card as u32, device as u32));
        }
    }

    /// Removes a client.
    pub fn detach(&mut self, client: usize) {
        let now = self.catch_up();
        self.machine.client_ended(client, now);
        self.sources[client] = None;
    }

    /// Takes all clients' work up to an instant, and advances the machine to it.
    pub fn advance(&mut self, until: u64) {
        self.take_in(until);
        self.machine.advance(until);
    }

    fn take_in(&mut self, until: u64) {
        let mut items: Vec<(usize, Item)> = Vec::new();
        for (client, source) in self.sources.iter_mut().enumerate() {
            let Some(Source { page, taken, last, device }) = source else { continue };
            page.ring.take(taken, until, |mut item| {
                item.at = item.at.max(*last);
                *last = item.at;
                if let Some((card, device)) = *device
                    && item.card == card
                {
                    item.card = device;
                }
                items.push((client, item));
            });
        }
        // A stable sort: the order of a client's own work stays.
        items.sort_by_key(|(_, item)| item.at);
        for (client, item) in items {
            self.machine.submit(client, &item);
        }
    }

    /// Advances to now and returns it.
    pub fn catch_up(&mut self) -> u64 {
        if self.has_virtual_clock {
            self.take_in(u64::MAX);
            let latest_of = |source: &Source| source.page.latest.load(Ordering::Acquire);
            let latest = self.sources.iter().flatten().map(latest_of).max();
            self.machine.advance(latest.unwrap_or(0));
        } else {
            self.advance(RealClock.now());
        }
        self.machine.now()
    }

    /// The status of a client's mark at an instant of its clock.
    pub fn status(&mut self, client: usize, query: &Query, now: u64) -> Status {
        self.advance(now);
        self.machine.status(client, query)
    }
}
