//! The server's state: the ledger, the clients' counters, and the cards' time.
//!
//! All replies to clients are made here. One lock guards the ledger, so the order of charges in the
//! ledger is the order in which memory was allocated. Time has its own lock. Lock order: ledger,
//! time.

use crate::faults::{Fault, Faults};
use crate::memory_limits;
use crate::mig::Partitions;
use crate::peer::Peer;
use crate::timekeeper::Timekeeper;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use stub_engine::Refusal;
use stub_engine::counters::{Activity, Counters};
use stub_engine::durations::Durations;
use stub_engine::exported::Exported;
use stub_engine::ledger::{ClientId, Kind, Ledger, ObjectId, State};
use stub_engine::memory_limits::Backend;
use stub_engine::mig;
use stub_engine::profile::Card;
use stub_engine::report;
use stub_engine::ring::Shared;
use stub_engine::symbols::Library;
use stub_engine::wire::{Operation, Reply, Request};

/// The longest that a client's thread may take to notice the client's end.
const NOTICED: Duration = Duration::from_secs(10);

/// A client's counters: read when needed while the client lives, then the last values.
enum ClientCounters {
    Live(Library, Arc<Shared>, Peer),
    Last(Box<Activity>),
}

impl ClientCounters {
    fn activity(&self) -> Activity {
        match self {
            Self::Live(library, page, _) => page.counters.activity(*library),
            Self::Last(activity) => Activity::clone(activity),
        }
    }

    fn live(&self) -> Option<(Library, &Counters)> {
        match self {
            Self::Live(library, page, _) => Some((*library, &page.counters)),
            Self::Last(_) => None,
        }
    }

    fn peer(&self) -> Option<&Peer> {
        match self {
            Self::Live(_, _, peer) => Some(peer),
            Self::Last(_) => None,
        }
    }

    /// Whether the client has ended, but its thread has not noticed yet.
    fn has_unnoticed_end(&self) -> bool {
        self.peer().is_some_and(Peer::has_hung_up)
    }
}

struct Inner {
    ledger: Ledger,
    exported: Exported,
    /// By client id.
    counters: Vec<ClientCounters>,
    faults: Faults,
    partitions: Partitions,
    /// How long the memory of a process that has ended stays allocated.
    free_delay: Duration,
    durations: Durations,
    durations_version: u64,
    is_ending: bool,
}

/// The engine of all clients.
pub struct Node {
    cards: Vec<Card>,
    inner: Mutex<Inner>,
    time: Mutex<Timekeeper>,
    /// Notified when a client has ended, and when the server ends.
    ending: Condvar,
}

impl Node {
    /// A node with these cards. `root`: where the files of MIG's capabilities are written. `limits`:
    /// what enforces the memory limits of cgroups.
    pub fn new(
        cards: Vec<Card>,
        free_delay: Duration,
        time: Timekeeper,
        root: Option<PathBuf>,
        limits: Option<Backend>,
    ) -> Result<Self, String> {
        let mut ledger = Ledger::new(&cards);
        ledger.limits.backend = limits;
        let inner = Inner {
            ledger,
            exported: Exported::default(),
            counters: Vec::new(),
            faults: Faults::default(),
            partitions: Partitions::new(&cards, root)?,
            free_delay,
            durations: Durations::default(),
            durations_version: 1,
            is_ending: false,
        };
        let (inner, time) = (Mutex::new(inner), Mutex::new(time));
        Ok(Self { cards, inner, time, ending: Condvar::new() })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.ledger.settle();
        inner
    }

    fn time(&self) -> MutexGuard<'_, Timekeeper> {
        self.time.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its cards, with their MIG instances of now.
    pub fn cards(&self) -> Vec<Card> {
        self.inner().partitions.cards().to_vec()
    }

    /// Adds a client.
    pub fn attach(&self, peer: Peer, group: &str, library: Library, page: Arc<Shared>) -> ClientId {
        let pid = peer.pid();
        let mut inner = self.inner();
        let counters = &page.counters;
        counters.durations_version.store(inner.durations_version, Relaxed);
        inner.faults.apply(library, counters);
        // The client has the same number in both, because the ledger stays locked.
        self.time().attach(group, Arc::clone(&page));
        inner.counters.push(ClientCounters::Live(library, page, peer));
        inner.partitions.attach();
        let client = inner.ledger.attach(pid, group);
        memory_limits::locate(&mut inner.ledger, client);
        client
    }

    /// Removes a client, and frees its memory after the delay.
    pub fn detach(&self, client: ClientId) {
        let mut inner = self.inner();
        inner.ledger.detach(client);
        // Its queued work ends with it.
        self.time().detach(client.0);
        inner.counters[client.0] =
            ClientCounters::Last(Box::new(inner.counters[client.0].activity()));
        self.ending.notify_all();
        let due = Instant::now() + inner.free_delay;
        while let left = due.saturating_duration_since(Instant::now())
            && !left.is_zero()
            && !inner.is_ending
        {
            let waited = self.ending.wait_timeout(inner, left);
            inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        inner.ledger.free_all(client);
    }

    /// The reply to a request and the text that came with it; `None` when the request is invalid.
    pub fn answer(&self, client: ClientId, request: &Request, text: &str) -> Option<Vec<u8>> {
        let card = {
            let inner = self.inner();
            let card = inner.partitions.index_of(client, request.card as usize);
            (card < inner.ledger.cards.len()).then_some(card)?
        };
        let reply = match request.operation {
            Operation::Attach | Operation::Cards => return None,
            Operation::Charge
            | Operation::Release
            | Operation::ChargePool
            | Operation::ReleasePool
            | Operation::Share
            | Operation::Hold
            | Operation::DropHold
            | Operation::Export
            | Operation::WalkGraph => self.inner().charge(client, card, request)?,
            Operation::Mig => {
                let (card, call) = (request.card as usize, serde_json::from_str(text).ok()?);
                let reply = self.mig(card, &call, Some(client)).ok()?;
                return Some(Reply::default().with_tail(&serde_json::to_vec(&reply).ok()?));
            }
            Operation::MemoryLimits => {
                let Inner { ledger, counters, .. } = &mut *self.inner();
                let call = serde_json::from_str(text).ok()?;
                let reply = memory_limits::call(ledger, card, call, counters[client.0].peer());
                return Some(Reply::default().with_tail(&serde_json::to_vec(&reply).ok()?));
            }
            Operation::Usage => self.usage(card, request.now),
            Operation::Processes => {
                return Some(Reply::default().with_tail(&self.processes(card, request.now)));
            }
            Operation::Durations => {
                let text = self.inner().durations.to_text();
                return Some(Reply::default().with_tail(text.as_bytes()));
            }
            Operation::Kernel => {
                let number = self.time().machine.kernel(text);
                Reply { values: [u64::from(number), 0, 0, 0], ..Reply::default() }
            }
            Operation::Drain => {
                self.time().advance(request.now);
                Reply::default()
            }
            Operation::Status => {
                Reply::of_status(&self.time().status(client.0, &request.query(), request.now))
            }
        };
        Some(reply.encode().to_vec())
    }

    fn usage(&self, card: usize, now: u64) -> Reply {
        let inner = self.inner();
        let devices = inner.partitions.indices(card, &inner.ledger);
        let parts: u64 = devices.map(|device| inner.ledger.used(device)).sum();
        let used = inner.ledger.used(card) + parts;
        if now == 0 {
            return Reply { values: [used, 0, 0, 0], ..Reply::default() };
        }
        let mut time = self.time();
        time.advance(now);
        let busy_ns =
            (0..inner.counters.len()).map(|client| time.machine.busy_ns(client, card)).sum();
        let percent = u64::from(time.machine.card_percent(card));
        Reply { values: [used, busy_ns, percent, 0], ..Reply::default() }
    }

    fn processes(&self, card: usize, now: u64) -> Vec<u8> {
        let inner = self.inner();
        let mut time = self.time();
        time.advance(now);
        let mut rows = Vec::new();
        for (number, client) in inner.ledger.clients.iter().enumerate() {
            let held = &client.holdings[card];
            if client.state == State::Freed || held.bytes() == 0 {
                continue;
            }
            let busy_ns = time.machine.busy_ns(number, card);
            let percent = u64::from(time.machine.percent(number, card));
            let pid = u64::from(client.pid);
            for word in [pid, held.bytes(), held.bytes_peak(), busy_ns, percent] {
                rows.extend_from_slice(&word.to_le_bytes());
            }
        }
        rows
    }

    /// The state in which every process that has ended is known to have.
    fn settled(&self) -> MutexGuard<'_, Inner> {
        let has_unnoticed_end =
            |inner: &mut Inner| inner.counters.iter().any(ClientCounters::has_unnoticed_end);
        let waited = self.ending.wait_timeout_while(self.inner(), NOTICED, has_unnoticed_end);
        let mut inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        inner.ledger.settle();
        inner
    }

    /// Does a MIG call on a card, for a client or, without one, for a test. An error: there is no
    /// such card.
    pub fn mig(
        &self,
        card: usize,
        call: &mig::Call,
        client: Option<ClientId>,
    ) -> Result<mig::Reply, String> {
        self.check_card(card)?;
        let mut inner = if *call == mig::Call::Read { self.inner() } else { self.settled() };
        let Inner { ledger, partitions, counters, .. } = &mut *inner;
        let is_privileged =
            client.is_none_or(|client| counters[client.0].peer().is_some_and(Peer::is_privileged));
        let done = match (call, client) {
            (mig::Call::Read, _) => Ok(0),
            (mig::Call::Open { uuid_bytes }, Some(client)) => {
                match partitions.open(client, card, *uuid_bytes) {
                    Some(index) => {
                        self.time().open(client.0, card, index);
                        Ok(0)
                    }
                    None => Err(mig::GONE),
                }
            }
            _ if !is_privileged => Err(mig::NOT_ROOT),
            _ => partitions.change(card, call, ledger),
        };
        let state = partitions.state(card).clone();
        let (code, id) = (done.err().unwrap_or(0), done.unwrap_or(0));
        Ok(mig::Reply { code, id, is_privileged, state })
    }

    /// Lets a process that no list shows hold a card, or one GPU instance of it.
    pub fn mig_hold(&self, card: usize, instance: Option<u32>, held: bool) -> Result<(), String> {
        self.check_card(card)?;
        self.inner().partitions.state(card).hold(instance, held)
    }

    /// Lets the next creation of a compute instance on a card fail.
    pub fn mig_fail(&self, card: usize) -> Result<(), String> {
        self.check_card(card)?;
        self.inner().partitions.state(card).plan_failure();
        Ok(())
    }

    /// Resets a card.
    pub fn reset(&self, card: usize) -> Result<(), String> {
        self.check_card(card)?;
        let mut inner = self.settled();
        let Inner { ledger, partitions, .. } = &mut *inner;
        partitions.reset(card, ledger)
    }

    fn check_card(&self, card: usize) -> Result<(), String> {
        let cards = self.cards.len();
        if card < cards { Ok(()) } else { Err(format!("card {card} must be below {cards}")) }
    }

    /// The ledger as JSON. A process that has ended holds nothing in it, unless freed memory is
    /// delayed.
    pub fn report(&self) -> serde_json::Value {
        let mut inner = self.settled();
        inner.ledger.limits.forget(Path::is_dir);
        let mut time = self.time();
        time.catch_up();
        let activities: Vec<_> = inner.counters.iter().map(ClientCounters::activity).collect();
        let (ledger, partitions) = (&inner.ledger, &inner.partitions);
        let (devices, opened) = (partitions.devices(), partitions.opened());
        report::ledger(&self.cards, &devices, ledger, &activities, opened, &time.machine)
    }

    /// When each process had the compute engine of which card, as JSON.
    pub fn history(&self) -> serde_json::Value {
        let inner = self.inner();
        let mut time = self.time();
        time.catch_up();
        report::history(&inner.ledger, &time.machine)
    }

    /// Sets peaks to the current values.
    pub fn reset_peaks(&self) {
        self.inner().ledger.reset_peaks();
    }

    /// Sets the kernel durations, for every client's next launch.
    pub fn set_durations(&self, durations: Durations) {
        let mut inner = self.inner();
        inner.durations = durations;
        inner.durations_version += 1;
        for (_, counters) in inner.counters.iter().filter_map(ClientCounters::live) {
            counters.durations_version.store(inner.durations_version, Relaxed);
        }
    }

    /// Puts a fault into force.
    pub fn inject(&self, fault: Fault) -> Result<(), String> {
        let Inner { ledger, counters, faults, .. } = &mut *self.inner();
        faults.inject(fault, ledger, counters.iter().filter_map(ClientCounters::live))
    }

    /// Ends all waits for the delay of freed memory.
    pub fn end(&self) {
        self.inner().is_ending = true;
        self.ending.notify_all();
    }
}

impl Inner {
    fn charge(&mut self, client: ClientId, card: usize, request: &Request) -> Option<Reply> {
        let kind = Kind::from_wire(request.kind)?;
        if self.ledger.limits.backend == Some(Backend::Dmem) {
            memory_limits::locate(&mut self.ledger, client);
        }
        let mut reply = Reply::default();
        let (amount, rooms) = (request.amount, request.rooms);
        match request.operation {
            Operation::Charge => {
                reply.status = u32::from(self.ledger.charge(client, card, kind, amount).is_err());
            }
            Operation::ChargePool => {
                let granted = self.ledger.charge_pool(client, card, rooms, amount).ok()?;
                reply.status = u32::from(granted.is_none());
                reply.values[0] = granted.unwrap_or(0);
            }
            Operation::Release => self.ledger.release(client, card, kind, amount).ok()?,
            Operation::ReleasePool => {
                self.ledger.release_pool(client, card, amount, rooms[0]).ok()?;
            }
            Operation::Share => self.ledger.share(client, card, rooms, amount).ok()?,
            Operation::Hold => {
                reply.status = match self.ledger.hold(client, card, rooms, amount) {
                    Ok(()) => 0,
                    Err(Refusal::Unknown) => 2,
                    Err(_) => 1,
                };
            }
            Operation::DropHold => self.ledger.drop_hold(client, rooms).ok()?,
            Operation::Export => {
                let [process, number] = self.export(client, rooms, amount as i32)?;
                (reply.values[0], reply.values[1]) = (process, number);
            }
            Operation::WalkGraph => {
                self.ledger.walk_graph(client, card, &request.walk()).ok()?;
            }
            _ => return None,
        }
        Some(reply)
    }

    /// Records an export, if the file of the process can be opened here; `None` if the client does
    /// not hold the allocation.
    fn export(&mut self, client: ClientId, object: ObjectId, descriptor: i32) -> Option<[u64; 2]> {
        let process = self.ledger.clients[client.0].pid;
        let Some((number, probe)) = self.exported.keep(process, descriptor, object) else {
            return Some([0; 2]);
        };
        self.ledger.export(client, object, probe).ok()?;
        Some([std::process::id().into(), number as u64])
    }
}
