//! The engine in a server, for tests with several processes.
//!
//! The connection is the client's lifetime: when the last copy of the socket is closed, by exit,
//! kill or crash, the server starts to free the client's memory. As with the real driver's device
//! files, a forked child that still runs keeps it allocated.

use crate::counters::Counters;
use crate::durations::Durations;
use crate::ledger::{Kind, ObjectId, Walk};
use crate::memory_limits;
use crate::mig;
use crate::profile::Card;
use crate::promises::Promises;
use crate::ring::Shared;
use crate::symbols::Library;
use crate::time::{Item, Lane, Mark, Query, Status, Work};
use crate::wire::{self, Operation, PROCESS, Reply, Request};
use crate::{Engine, ProcessUse, Refusal, Usage, Watch};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long a reply may take before the server counts as lost. It replies in microseconds; the rest
/// is for machines that are busy or stopped in a debugger.
const DEADLINE: Duration = Duration::from_secs(60);

/// A connection to the server.
#[derive(Debug)]
pub struct Client {
    cards: Vec<Card>,
    page: Shared,
    stream: Mutex<UnixStream>,
    /// The number of the newest lane. Items go into the page's ring under this lock.
    last_lane: Mutex<u32>,
    promises: Promises,
}

fn open(socket: &Path) -> io::Result<UnixStream> {
    let stream = wire::uninterrupted(|| UnixStream::connect(socket))?;
    stream.set_read_timeout(Some(DEADLINE))?;
    stream.set_write_timeout(Some(DEADLINE))?;
    Ok(stream)
}

/// The server's cards, without attaching: for calls before a program initialises CUDA.
pub fn cards(socket: &Path) -> Result<Vec<Card>, String> {
    let ask = || {
        let mut stream = open(socket)?;
        let request = Request::default();
        wire::send(&stream, &request.encode())?;
        let (_, cards) = Reply::read(&mut stream)?;
        Ok(serde_json::from_slice(&cards)?)
    };
    ask().map_err(|error: io::Error| format!("STUB_GPU_SOCKET={}: {error}", socket.display()))
}

impl Client {
    /// Connects and attaches.
    pub fn connect(socket: &Path, library: Library, group: &str) -> Result<Self, String> {
        Self::attach(socket, library, group)
            .map_err(|error| format!("STUB_GPU_SOCKET={}: {error}", socket.display()))
    }

    fn attach(socket: &Path, library: Library, group: &str) -> io::Result<Self> {
        let mut stream = open(socket)?;
        let request = Request {
            operation: Operation::Attach,
            card: library as u32,
            amount: group.len() as u64,
            ..Request::default()
        };
        let mut message = request.encode().to_vec();
        message.extend_from_slice(group.as_bytes());
        wire::send(&stream, &message)?;
        let (_, cards) = Reply::read(&mut stream)?;
        let page = Shared::map(&wire::receive_file(&stream)?.into())?;
        let cards = serde_json::from_slice(&cards)?;
        Ok(Self {
            cards,
            page,
            stream: Mutex::new(stream),
            last_lane: Mutex::new(0),
            promises: Promises::default(),
        })
    }

    fn ask(
        &self,
        operation: Operation,
        card: usize,
        kind: Kind,
        amount: u64,
    ) -> io::Result<(Reply, Vec<u8>)> {
        let (card, kind) = (card as u32, kind as u32);
        self.send(&Request { operation, card, kind, amount, ..Request::default() })
    }

    /// Uses a MIG device instead of the card that it belongs to. It may have been destroyed since.
    pub fn open(&mut self, device: &Card) -> Result<(), String> {
        let opened = self.mig(device.index, &mig::Call::Open { uuid_bytes: device.uuid_bytes });
        if opened.is_none_or(|reply| reply.code != 0) {
            return Err(format!("{} does not exist any more", device.uuid()));
        }
        self.cards[device.index] = device.clone();
        Ok(())
    }

    /// Sends a request with text behind it.
    fn send_text(&self, request: &Request, text: &[u8]) -> io::Result<(Reply, Vec<u8>)> {
        let mut message = Request { amount: text.len() as u64, ..*request }.encode().to_vec();
        message.extend_from_slice(text);
        self.send_bytes(&message)
    }

    /// A call with JSON behind it, which is answered with JSON.
    fn call<R: DeserializeOwned>(
        &self,
        operation: Operation,
        card: usize,
        call: &impl Serialize,
    ) -> Option<R> {
        let request = Request { operation, card: card as u32, ..Request::default() };
        let (_, reply) = self.send_text(&request, &serde_json::to_vec(call).ok()?).ok()?;
        serde_json::from_slice(&reply).ok()
    }

    fn send(&self, request: &Request) -> io::Result<(Reply, Vec<u8>)> {
        self.send_bytes(&request.encode())
    }

    fn send_bytes(&self, message: &[u8]) -> io::Result<(Reply, Vec<u8>)> {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        wire::send(&stream, message)?;
        Reply::read(&mut *stream)
    }
}

impl Watch for Client {
    fn cards(&self) -> &[Card] {
        &self.cards
    }

    fn usage(&self, card: usize, now: u64) -> Option<Usage> {
        let (operation, card) = (Operation::Usage, card as u32);
        let (reply, _) = self.send(&Request { operation, card, now, ..Request::default() }).ok()?;
        let [used, busy_ns, percent, _] = reply.values;
        Some(Usage { used, busy_ns, percent: percent as u32 })
    }

    fn used(&self, card: usize) -> Option<u64> {
        self.usage(card, 0).map(|usage| usage.used)
    }

    fn processes(&self, card: usize, now: u64) -> Option<Vec<ProcessUse>> {
        let (operation, card) = (Operation::Processes, card as u32);
        let request = Request { operation, card, now, ..Request::default() };
        let (_, rows) = self.send(&request).ok()?;
        let (rows, _) = rows.as_chunks::<PROCESS>();
        let row = |row: &[u8; PROCESS]| {
            let (words, _) = row.as_chunks::<8>();
            let word = |index: usize| u64::from_le_bytes(words[index]);
            let (pid, percent) = (word(0) as u32, word(4) as u32);
            let (bytes, peak, busy_ns) = (word(1), word(2), word(3));
            ProcessUse { pid, bytes, peak, busy_ns, percent, instances: None }
        };
        Some(rows.iter().map(row).collect())
    }

    fn counters(&self) -> &Counters {
        &self.page.counters
    }

    fn mig(&self, card: usize, call: &mig::Call) -> Option<mig::Reply> {
        self.call(Operation::Mig, card, call)
    }

    fn memory_limits(
        &self,
        card: usize,
        call: &memory_limits::Call,
    ) -> Option<memory_limits::Reply> {
        self.call(Operation::MemoryLimits, card, call)
    }
}

impl Engine for Client {
    fn charge(&self, card: usize, kind: Kind, bytes: u64) -> Result<(), Refusal> {
        match self.ask(Operation::Charge, card, kind, bytes) {
            Ok((Reply { status: 0, .. }, _)) => Ok(()),
            Ok(_) => Err(Refusal::OutOfMemory),
            Err(_) => Err(Refusal::Lost),
        }
    }

    fn release(&self, card: usize, kind: Kind, bytes: u64) {
        // A server that has ended holds nothing.
        let _ = self.ask(Operation::Release, card, kind, bytes);
    }

    fn charge_pool(&self, card: usize, rooms: [u64; 2], bytes: u64) -> Result<u64, Refusal> {
        let (operation, card) = (Operation::ChargePool, card as u32);
        let request = Request { operation, card, rooms, amount: bytes, ..Request::default() };
        match self.send(&request) {
            Ok((Reply { status: 0, values, .. }, _)) => Ok(values[0]),
            Ok(_) => Err(Refusal::OutOfMemory),
            Err(_) => Err(Refusal::Lost),
        }
    }

    fn release_pool(&self, card: usize, bytes: u64, room: u64) {
        let (operation, rooms, card) = (Operation::ReleasePool, [room, 0], card as u32);
        // As in `release`.
        let _ = self.send(&Request { operation, card, rooms, amount: bytes, ..Request::default() });
    }

    fn share(&self, card: usize, object: ObjectId, bytes: u64) {
        let (operation, card) = (Operation::Share, card as u32);
        let request =
            Request { operation, card, rooms: object, amount: bytes, ..Request::default() };
        // As in `release`.
        let _ = self.send(&request);
    }

    fn hold(&self, card: usize, object: ObjectId, bytes: u64) -> Result<(), Refusal> {
        let (operation, card) = (Operation::Hold, card as u32);
        let request =
            Request { operation, card, rooms: object, amount: bytes, ..Request::default() };
        match self.send(&request) {
            Ok((Reply { status: 0, .. }, _)) => Ok(()),
            Ok((Reply { status: 1, .. }, _)) => Err(Refusal::OutOfMemory),
            Ok(_) => Err(Refusal::Unknown),
            Err(_) => Err(Refusal::Lost),
        }
    }

    fn drop_hold(&self, card: usize, object: ObjectId) {
        let (operation, card) = (Operation::DropHold, card as u32);
        // As in `release`.
        let _ = self.send(&Request { operation, card, rooms: object, ..Request::default() });
    }

    fn export(&self, card: usize, object: ObjectId, descriptor: i32) -> (u32, i32) {
        let (operation, card, amount) = (Operation::Export, card as u32, descriptor as u64);
        let request = Request { operation, card, rooms: object, amount, ..Request::default() };
        match self.send(&request) {
            Ok((Reply { values, .. }, _)) if values[0] != 0 => (values[0] as u32, values[1] as i32),
            _ => (std::process::id(), descriptor),
        }
    }

    fn walk_graph(&self, card: usize, walk: Walk) {
        // As in `release`.
        let _ = self.send(&Request::of_walk(card as u32, &walk));
    }

    fn durations(&self) -> Durations {
        self.ask(Operation::Durations, 0, Kind::Requested, 0)
            .ok()
            .and_then(|(_, text)| Durations::parse(&String::from_utf8(text).ok()?).ok())
            .unwrap_or_default()
    }

    fn kernel(&self, name: &str) -> u32 {
        let request = Request { operation: Operation::Kernel, ..Request::default() };
        let sent = self.send_text(&request, name.as_bytes());
        sent.map_or(0, |(reply, _)| reply.values[0] as u32)
    }

    fn submit(&self, lane: &Lane, context: u32, card: usize, work: Work, at: u64) -> Mark {
        let mut last_lane = self.last_lane.lock().unwrap_or_else(PoisonError::into_inner);
        let mark = lane.add(&mut last_lane);
        let item = Item { at, mark, context, card: card as u32, work };
        if !self.page.ring.push(&item) {
            let request = Request { operation: Operation::Drain, now: at, ..Request::default() };
            // A server that has ended runs nothing.
            if self.send(&request).is_ok() {
                self.page.ring.push(&item);
            }
        }
        mark
    }

    fn status(&self, query: &Query, now: u64) -> Option<Status> {
        if let Some(status) = self.promises.answer(query, now) {
            self.page.latest.fetch_max(now, Ordering::AcqRel);
            return Some(status);
        }
        let (reply, _) = self.send(&Request::of_query(query, now)).ok()?;
        let status = reply.status();
        self.promises.keep(query.mark, &status);
        Some(status)
    }

    fn report(&self, _now: u64) -> Option<String> {
        None
    }
}
