//! The engine in a server: for everything with several processes.
//!
//! The connection is the client's life: when the last copy of the socket is closed, by exit, kill or
//! crash, the server starts to take the bytes back. As with the real driver's device files, a forked
//! child that lives on holds them as well.

use crate::counters::{Counters, Shared};
use crate::durations::Durations;
use crate::ledger::Kind;
use crate::profile::Card;
use crate::symbols::Library;
use crate::wire::{self, Operation, PROCESS, Reply, Request};
use crate::{Engine, ProcessUse, Refusal, Usage, Watch};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long a reply may take before the server counts as gone. It answers in microseconds; the
/// rest is for machines that are busy or stopped in a debugger.
const DEADLINE: Duration = Duration::from_secs(60);

/// A connection to the server.
#[derive(Debug)]
pub struct Client {
    cards: Vec<Card>,
    counters: Shared,
    stream: Mutex<UnixStream>,
}

fn open(socket: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    stream.set_write_timeout(Some(DEADLINE))?;
    Ok(stream)
}

/// The server's cards, without attaching: what is known before a program initialises CUDA.
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
        let counters = Shared::map(&wire::receive_file(&stream)?.into())?;
        Ok(Self { cards: serde_json::from_slice(&cards)?, counters, stream: Mutex::new(stream) })
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

    fn send(&self, request: &Request) -> io::Result<(Reply, Vec<u8>)> {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        wire::send(&stream, &request.encode())?;
        Reply::read(&mut *stream)
    }
}

impl Watch for Client {
    fn cards(&self) -> &[Card] {
        &self.cards
    }

    fn usage(&self, card: usize) -> Option<Usage> {
        let (reply, _) = self.ask(Operation::Usage, card, Kind::Requested, 0).ok()?;
        Some(Usage { used: reply.values[0], busy_ns: reply.values[1] })
    }

    fn processes(&self, card: usize) -> Option<Vec<ProcessUse>> {
        let (_, rows) = self.ask(Operation::Processes, card, Kind::Requested, 0).ok()?;
        let (rows, _) = rows.as_chunks::<PROCESS>();
        let row = |row: &[u8; PROCESS]| {
            let (words, _) = row.as_chunks::<8>();
            let word = |index: usize| u64::from_le_bytes(words[index]);
            ProcessUse { pid: word(0) as u32, bytes: word(1), peak: word(2), busy_ns: word(3) }
        };
        Some(rows.iter().map(row).collect())
    }

    fn counters(&self) -> &Counters {
        &self.counters
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
        // A server that is gone holds nothing any more.
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

    fn durations(&self) -> Durations {
        self.ask(Operation::Durations, 0, Kind::Requested, 0)
            .ok()
            .and_then(|(_, text)| Durations::parse(&String::from_utf8(text).ok()?).ok())
            .unwrap_or_default()
    }

    fn report(&self) -> Option<String> {
        None
    }
}
