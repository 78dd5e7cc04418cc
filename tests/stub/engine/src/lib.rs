//! The engine behind the stub `libcuda.so.1` and `libnvidia-ml.so.1`.
//!
//! The libraries' functions are thin. The engine has everything that tests rely on: which cards
//! there are ([`profile`]), how they are divided ([`mig`]), which process holds how many bytes of
//! them ([`ledger`]), which addresses those bytes have ([`arena`], [`backing`]), and when a card has
//! finished which work of several processes ([`time`]).
//!
//! Both libraries use one interface, [`Engine`], with two implementations. [`local::Local`] keeps
//! everything in the process, so that a hook of one nanosecond can be measured. [`client::Client`]
//! connects to a server that all processes share and that outlives them. With both, addresses and
//! the clock belong to the process; cards, ledger and time belong to the engine.

pub mod arena;
pub mod arguments;
pub mod backing;
pub mod boundary;
pub mod client;
pub mod clock;
pub mod counters;
pub mod durations;
pub mod exported;
pub mod graph_pool;
pub mod health;
pub mod ledger;
pub mod local;
pub mod memory_file;
pub mod memory_limits;
pub mod mig;
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
use driver_sys::nvml::NVML_ERROR_NOT_SUPPORTED;
use durations::Durations;
use ledger::{Kind, ObjectId, Walk};
use profile::Card;
use time::{Lane, Mark, Query, Status, Work};

/// The most cards one engine can have.
pub const MAX_CARDS: usize = 16;

/// Why a charge was not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The card has too few bytes left, or a test has ordered this fault.
    OutOfMemory,
    /// No process holds the shared allocation.
    Unknown,
    /// The connection to the server is lost.
    Lost,
}

/// How a card's memory is used at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes in use by all processes together.
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
    /// An upper bound of the bytes that it ever held there.
    pub peak: u64,
    /// Engine time in nanoseconds so far.
    pub busy_ns: u64,
    /// How busy it kept the compute engine in the last sample period, in percent.
    pub percent: u32,
    /// Its GPU instance and compute instance, which NVML adds.
    pub instances: Option<(u32, u32)>,
}

/// The read-only part of an engine, which NVML needs.
pub trait Watch: Send + Sync {
    /// The cards, in PCI order; their number never changes.
    fn cards(&self) -> &[Card];
    /// Memory and time of one card, at an instant of the caller's clock; `None` when the server has
    /// ended.
    fn usage(&self, card: usize, now: u64) -> Option<Usage>;
    /// Bytes of one card in use. Programs may call this in a loop.
    fn used(&self, card: usize) -> Option<u64>;
    /// The processes that hold memory of one card, at an instant of the caller's clock; `None` when
    /// the server has ended.
    fn processes(&self, card: usize, now: u64) -> Option<Vec<ProcessUse>>;
    /// This process's counters.
    fn counters(&self) -> &Counters;
    /// Does a MIG call on a card; `None` when the server has ended. Only a server divides cards.
    fn mig(&self, _card: usize, call: &mig::Call) -> Option<mig::Reply> {
        let code = if *call == mig::Call::Read { 0 } else { NVML_ERROR_NOT_SUPPORTED };
        Some(mig::Reply { code, id: 0, is_privileged: false, state: mig::State::default() })
    }
    /// Does a call about the memory limits of cgroups; `None` when the server has ended. Only a
    /// server has them.
    fn memory_limits(
        &self,
        _card: usize,
        _call: &memory_limits::Call,
    ) -> Option<memory_limits::Reply> {
        Some(Err(NVML_ERROR_NOT_SUPPORTED))
    }
}

/// An engine, as the driver needs it.
pub trait Engine: Watch {
    /// Charges `bytes` of a card to this process.
    fn charge(&self, card: usize, kind: Kind, bytes: u64) -> Result<(), Refusal>;
    /// Releases a charge.
    fn release(&self, card: usize, kind: Kind, bytes: u64);
    /// Charges an allocation of `bytes` from a memory pool, which grows by the first of `rooms`
    /// that fits (0: the pool has enough already); returns how much the pool grew.
    fn charge_pool(&self, card: usize, rooms: [u64; 2], bytes: u64) -> Result<u64, Refusal>;
    /// Releases an allocation of `bytes` from a memory pool (0: none), and `room` that the pool
    /// returns to the card.
    fn release_pool(&self, card: usize, bytes: u64, room: u64);
    /// Makes a shared allocation of bytes that are charged to this process as requested.
    fn share(&self, card: usize, object: ObjectId, bytes: u64);
    /// Holds a shared allocation, which is created and charged if no process holds it; with 0 bytes
    /// it must exist.
    fn hold(&self, card: usize, object: ObjectId, bytes: u64) -> Result<(), Refusal>;
    /// Ends a hold of a shared allocation.
    fn drop_hold(&self, card: usize, object: ObjectId);
    /// Records that this process exports a shared allocation, whose file it has as `descriptor`.
    /// Returns the process that has the file from now on, while a descriptor is open, and its number
    /// there.
    fn export(&self, card: usize, object: ObjectId, descriptor: i32) -> (u32, i32);
    /// Records the allocations and frees of a graph's launch, in memory that the graph memory pool
    /// has reserved.
    fn walk_graph(&self, card: usize, walk: Walk);
    /// The kernel durations now in force.
    fn durations(&self) -> Durations;
    /// The number of a kernel's name, for [`Work::Kernel`].
    fn kernel(&self, name: &str) -> u32;
    /// Adds an item to a lane, in a context (by this process's number) of a card, at an instant of
    /// the caller's clock. It takes a lock and a copy, no more. The caller must check that the lane
    /// has room.
    fn submit(&self, lane: &Lane, context: u32, card: usize, work: Work, at: u64) -> Mark;
    /// The status of a mark at an instant of the caller's clock; `None` when the server has ended.
    fn status(&self, query: &Query, now: u64) -> Option<Status>;
    /// The ledger as JSON, at an instant of the caller's clock; `None` when a server has it, which
    /// reports it through its control socket.
    fn report(&self, now: u64) -> Option<String>;
}
