//! A GPU without a GPU: what the stub `libcuda.so.1` and `libnvidia-ml.so.1` stand on.
//!
//! The driver's functions are thin; what must be right lives here: which cards there are
//! ([`profile`]), who holds how many bytes of them ([`ledger`]), which addresses those bytes have
//! ([`arena`], [`backing`]), when the work on a stream is done ([`clock`]).
//!
//! The two libraries speak to one interface, [`Engine`], which comes in two forms: [`local::Local`]
//! keeps everything in the process (so that a hook of one nanosecond can be measured), and
//! [`client::Client`] asks a server that all processes share and that survives them. Addresses and
//! time are the process's own in both; cards and the ledger are the engine's.

pub mod arena;
pub mod arguments;
pub mod backing;
pub mod client;
pub mod clock;
pub mod counters;
pub mod durations;
pub mod ledger;
pub mod local;
pub mod pool;
pub mod profile;
pub mod report;
pub mod settings;
pub mod symbols;
pub mod wire;

use counters::Counters;
use durations::Durations;
use ledger::Kind;
use profile::Card;

/// The most cards one engine can have.
pub const MAX_CARDS: usize = 16;

/// Why a charge was not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The card has not that many bytes left, or a fault says so.
    OutOfMemory,
    /// The server cannot be reached any more.
    Lost,
}

/// How a card's memory is used at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes in use, whoever holds them.
    pub used: u64,
    /// Nanoseconds of kernel time so far, all processes together.
    pub busy_ns: u64,
}

/// One process on a card, as NVML lists it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessUse {
    /// Process id, in the engine's namespace.
    pub pid: u32,
    /// Bytes it holds there, its contexts included.
    pub bytes: u64,
    /// No fewer than it ever held there.
    pub peak: u64,
    /// Nanoseconds of kernel time so far.
    pub busy_ns: u64,
}

/// What can be seen of an engine without taking part: all that NVML needs.
pub trait Watch: Send + Sync {
    /// The cards, in PCI order; their number never changes.
    fn cards(&self) -> &[Card];
    /// Memory and time of one card; `None` when the server is gone.
    fn usage(&self, card: usize) -> Option<Usage>;
    /// Bytes of one card in use: what a program may ask for in a loop.
    fn used(&self, card: usize) -> Option<u64> {
        self.usage(card).map(|usage| usage.used)
    }
    /// The processes that hold memory of one card; `None` when the server is gone.
    fn processes(&self, card: usize) -> Option<Vec<ProcessUse>>;
    /// This process's counters.
    fn counters(&self) -> &Counters;
}

/// What the driver needs of an engine.
pub trait Engine: Watch {
    /// Books `bytes` of a card for this process.
    fn charge(&self, card: usize, kind: Kind, bytes: u64) -> Result<(), Refusal>;
    /// Gives back what was booked.
    fn release(&self, card: usize, kind: Kind, bytes: u64);
    /// Books an allocation of `bytes` from a memory pool, which grows by the first of `rooms` that
    /// fits (0: it lives in what the pool has); returns how much the pool grew.
    fn charge_pool(&self, card: usize, rooms: [u64; 2], bytes: u64) -> Result<u64, Refusal>;
    /// An allocation of `bytes` from a memory pool has ended (0: none has), and the pool gives `room`
    /// back to the card.
    fn release_pool(&self, card: usize, bytes: u64, room: u64);
    /// The kernel durations now in force.
    fn durations(&self) -> Durations;
    /// The ledger as JSON; `None` when a server keeps it, which has a control socket for that.
    fn report(&self) -> Option<String>;
}
