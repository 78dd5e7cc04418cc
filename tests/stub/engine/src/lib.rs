//! A GPU without a GPU: what the stub `libcuda.so.1` and `libnvidia-ml.so.1` stand on.
//!
//! The driver's functions are thin; what must be right lives here: which cards there are
//! ([`profile`]), who holds how many bytes of them ([`ledger`]), which addresses those bytes have
//! ([`arena`], [`backing`]), what a card does with the work of several processes, and when it is done
//! ([`time`]).
//!
//! The two libraries speak to one interface, [`Engine`], which comes in two forms: [`local::Local`]
//! keeps everything in the process (so that a hook of one nanosecond can be measured), and
//! [`client::Client`] asks a server that all processes share and that survives them. Addresses and
//! the clock are the process's own in both; cards, the ledger and their time are the engine's.

pub mod arena;
pub mod arguments;
pub mod backing;
pub mod boundary;
pub mod client;
pub mod clock;
pub mod counters;
pub mod durations;
pub mod ledger;
pub mod local;
pub mod pool;
pub mod profile;
mod promises;
pub mod report;
pub mod ring;
pub mod settings;
pub mod symbols;
pub mod time;
pub mod wire;

use counters::Counters;
use durations::Durations;
use ledger::Kind;
use profile::Card;
use time::{Lane, Look, Mark, Question, Work};

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
    /// Engine time in nanoseconds so far, all processes together.
    pub busy_ns: u64,
    /// How busy the compute engine was in the last sample period, in percent.
    pub percent: u32,
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
    /// Engine time in nanoseconds so far.
    pub busy_ns: u64,
    /// How busy it kept the compute engine in the last sample period, in percent.
    pub percent: u32,
}

/// What can be seen of an engine without taking part: all that NVML needs.
pub trait Watch: Send + Sync {
    /// The cards, in PCI order; their number never changes.
    fn cards(&self) -> &[Card];
    /// Memory and time of one card, at an instant of the caller's clock; `None` when the server is gone.
    fn usage(&self, card: usize, now: u64) -> Option<Usage>;
    /// Bytes of one card in use: what a program may ask for in a loop.
    fn used(&self, card: usize) -> Option<u64>;
    /// The processes that hold memory of one card, at an instant of the caller's clock; `None` when
    /// the server is gone.
    fn processes(&self, card: usize, now: u64) -> Option<Vec<ProcessUse>>;
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
    /// The number of a kernel's name, for [`Work::Kernel`].
    fn kernel(&self, name: &str) -> u32;
    /// Adds an item to a lane, in a context (by this process's number) of a card, at an instant of the
    /// caller's clock. It costs no more than a lock and a copy; whether the lane has room is the
    /// caller's to ask.
    fn submit(&self, lane: &Lane, context: u32, card: usize, work: Work, at: u64) -> Mark;
    /// How far a mark has come at an instant of the caller's clock; `None` when the server is gone.
    fn look(&self, question: &Question, now: u64) -> Option<Look>;
    /// The ledger as JSON, at an instant of the caller's clock; `None` when a server keeps it, which
    /// has a control socket for that.
    fn report(&self, now: u64) -> Option<String>;
}
