//! The engine inside the program's own process: for benchmarks, and for tests of one process.

use crate::counters::Counters;
use crate::durations::Durations;
use crate::exported::Exported;
use crate::ledger::{ClientId, Kind, Ledger, ObjectId, Walk};
use crate::profile::{self, Card};
use crate::settings::Settings;
use crate::symbols::Library;
use crate::time::{Item, Lane, Machine, Mark, Query, Status, Work};
use crate::{Engine, MAX_CARDS, ProcessUse, Refusal, Usage, Watch, report};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Cards, ledger and counters of one process.
#[derive(Debug)]
pub struct Local {
    cards: Vec<Card>,
    ledger: Mutex<Ledger>,
    client: ClientId,
    /// Bytes in use by card: written under the ledger's lock, read without it.
    used: [AtomicU64; MAX_CARDS],
    /// Whether descriptors keep memory that the process may have closed since.
    is_keeping: AtomicBool,
    counters: Box<Counters>,
    durations: Durations,
    time: Mutex<Time>,
    exported: Mutex<Exported>,
}

/// The cards' time. Its only client has the number 0, as in the ledger.
#[derive(Debug)]
struct Time {
    machine: Machine,
    /// The number of the newest lane.
    last_lane: u32,
}

impl Local {
    /// The engine with the environment's settings.
    pub fn new(settings: &Settings) -> Result<Self, String> {
        let cards = profile::cards(&settings.cards)
            .map_err(|error| format!("STUB_GPU_PROFILE: {error}"))?;
        let durations = Durations::parse(&settings.kernels)
            .map_err(|error| format!("STUB_GPU_KERNELS: {error}"))?;
        let mut ledger = Ledger::new(&cards);
        let client = ledger.attach(std::process::id(), &settings.group);
        let used = [const { AtomicU64::new(0) }; MAX_CARDS];
        let mut machine = Machine::new(cards.len());
        machine.attach(&settings.group);
        Ok(Self {
            cards,
            ledger: Mutex::new(ledger),
            client,
            used,
            is_keeping: AtomicBool::new(false),
            counters: Box::default(),
            durations,
            time: Mutex::new(Time { machine, last_lane: 0 }),
            exported: Mutex::default(),
        })
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        if !ledger.kept.is_empty() && ledger.settle() {
            for card in 0..self.cards.len() {
                self.used[card].store(ledger.used(card), Relaxed);
            }
            self.is_keeping.store(!ledger.kept.is_empty(), Relaxed);
        }
        ledger
    }

    fn exported(&self) -> MutexGuard<'_, Exported> {
        self.exported.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn time(&self) -> MutexGuard<'_, Time> {
        self.time.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch for Local {
    fn cards(&self) -> &[Card] {
        &self.cards
    }

    fn usage(&self, card: usize, now: u64) -> Option<Usage> {
        let used = self.used(card)?;
        let machine = &mut self.time().machine;
        machine.advance(now);
        let (busy_ns, percent) = (machine.busy_ns(0, card), machine.card_percent(card));
        Some(Usage { used, busy_ns, percent })
    }

    fn used(&self, card: usize) -> Option<u64> {
        if self.is_keeping.load(Relaxed) {
            drop(self.ledger());
        }
        Some(self.used[card].load(Relaxed))
    }

    fn processes(&self, card: usize, now: u64) -> Option<Vec<ProcessUse>> {
        let Usage { used: bytes, busy_ns, percent } = self.usage(card, now)?;
        let peak = self.ledger().cards[card].all.bytes_peak();
        let process =
            ProcessUse { pid: std::process::id(), bytes, peak, busy_ns, percent, instances: None };
        Some(if bytes > 0 { vec![process] } else { Vec::new() })
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl Engine for Local {
    fn charge(&self, card: usize, kind: Kind, bytes: u64) -> Result<(), Refusal> {
        let mut ledger = self.ledger();
        ledger.charge(self.client, card, kind, bytes)?;
        self.used[card].store(ledger.used(card), Relaxed);
        Ok(())
    }

    fn release(&self, card: usize, kind: Kind, bytes: u64) {
        let mut ledger = self.ledger();
        let released = ledger.release(self.client, card, kind, bytes);
        released.expect("the driver releases only what it charged");
        self.used[card].store(ledger.used(card), Relaxed);
    }

    fn charge_pool(&self, card: usize, rooms: [u64; 2], bytes: u64) -> Result<u64, Refusal> {
        let mut ledger = self.ledger();
        let charged = ledger.charge_pool(self.client, card, rooms, bytes);
        let granted = charged.expect("the driver places only what a pool has room for");
        self.used[card].store(ledger.used(card), Relaxed);
        granted.ok_or(Refusal::OutOfMemory)
    }

    fn release_pool(&self, card: usize, bytes: u64, room: u64) {
        let mut ledger = self.ledger();
        let released = ledger.release_pool(self.client, card, bytes, room);
        released.expect("the driver releases only what it charged");
        self.used[card].store(ledger.used(card), Relaxed);
    }

    fn share(&self, card: usize, object: ObjectId, bytes: u64) {
        let shared = self.ledger().share(self.client, card, object, bytes);
        shared.expect("the driver shares only what it charged");
    }

    fn hold(&self, card: usize, object: ObjectId, bytes: u64) -> Result<(), Refusal> {
        let mut ledger = self.ledger();
        ledger.hold(self.client, card, object, bytes)?;
        self.used[card].store(ledger.used(card), Relaxed);
        Ok(())
    }

    fn drop_hold(&self, card: usize, object: ObjectId) {
        let mut ledger = self.ledger();
        let dropped = ledger.drop_hold(self.client, object);
        dropped.expect("the driver drops only what it holds");
        self.is_keeping.store(!ledger.kept.is_empty(), Relaxed);
        self.used[card].store(ledger.used(card), Relaxed);
    }

    fn export(&self, _card: usize, object: ObjectId, descriptor: i32) -> (u32, i32) {
        let process = std::process::id();
        let mut ledger = self.ledger();
        let Some((number, probe)) = self.exported().keep(process, descriptor, object) else {
            return (process, descriptor);
        };
        let exported = ledger.export(self.client, object, probe);
        exported.expect("the driver exports only what it holds");
        (process, number)
    }

    fn walk_graph(&self, card: usize, walk: Walk) {
        let walked = self.ledger().walk_graph(self.client, card, &walk);
        walked.expect("a launch allocates only what the pool has reserved");
    }

    fn durations(&self) -> Durations {
        self.durations.clone()
    }

    fn kernel(&self, name: &str) -> u32 {
        self.time().machine.kernel(name)
    }

    fn submit(&self, lane: &Lane, context: u32, card: usize, work: Work, at: u64) -> Mark {
        let Time { machine, last_lane } = &mut *self.time();
        let mark = lane.add(last_lane);
        machine.submit(0, &Item { at, mark, context, card: card as u32, work });
        mark
    }

    fn status(&self, query: &Query, now: u64) -> Option<Status> {
        let machine = &mut self.time().machine;
        machine.advance(now);
        Some(machine.status(0, query))
    }

    fn report(&self, now: u64) -> Option<String> {
        let activity = self.counters.activity(Library::Cuda);
        let (ledger, machine) = (self.ledger(), &mut self.time().machine);
        machine.advance(now);
        Some(report::ledger(&self.cards, &[], &ledger, &[activity], &[], machine).to_string())
    }
}
