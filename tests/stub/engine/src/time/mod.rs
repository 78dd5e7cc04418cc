//! The cards' time: when kernels and copies of all processes are done.
//!
//! The stub computes nothing; work only takes time. Tests of shares measure against what a card
//! does with the work of several processes. So this is a [`Machine`] of its own: a pure
//! discrete-event simulation without clock or I/O. Its owner sets the time, and the machine moves
//! from event to event up to it. Work that it has reported as done stays done.
//!
//! - Work is in *lanes*, which are in-order queues: a lane for every stream, and for every branch
//!   of a graph. A [`Mark`] is a position in a lane. A lane can wait for a mark of another lane
//!   ([`Work::Wait`]); such waits implement the rules of default streams.
//! - A card has one compute engine, and a copy engine in each direction. Contexts with work take
//!   turns on the compute engine. A turn is one time slice. A switch from one context to another
//!   takes time that is billed to no process. Kernels of one context overlap while their grids fit
//!   together.
//! - Engine time is billed to process, card and kernel name.

mod billing;
mod earliest;
mod engine;
mod lane;
mod machine;
mod program;
mod state;
#[cfg(test)]
mod tests;
mod turns;

pub use billing::{BUCKET_NS, KernelUse, PERIOD_NS};
pub use lane::Lane;
pub use machine::Machine;

/// All of a card, in the unit of [`Work::Kernel`]'s demand.
pub const FULL: u32 = 1 << 16;

/// The most pending items of a lane. A thread that adds one more waits, as with the real driver.
pub const PENDING_MAX: u64 = 1024;

/// The longest duration of a kernel: three days.
const LONGEST_NS: u64 = 3 * 24 * 3600 * 1_000_000_000;

/// How contexts take turns on a compute engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slicing {
    /// Nanoseconds of a turn, at least 1. Then the next context runs, even if this one still has
    /// work.
    pub slice_ns: u64,
    /// Nanoseconds of a switch to another context, in which no kernel runs.
    pub switch_ns: u64,
}

impl Default for Slicing {
    /// 2 ms and 50 µs, about as in recent drivers.
    fn default() -> Self {
        Self { slice_ns: 2_000_000, switch_ns: 50_000 }
    }
}

/// A position in a lane of one process: the lane's number, and the number of the item in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

impl Mark {
    /// No position; a wait for it ends at once.
    pub const NONE: Self = Self(0);
    const POSITION_BITS: u32 = 40;

    /// More items than any lane ever has.
    pub const LAST_POSITION: u64 = (1 << Self::POSITION_BITS) - 1;

    /// The item at `position` in a lane, both counted from 1.
    pub fn new(lane: u32, position: u64) -> Self {
        Self(u64::from(lane) << Self::POSITION_BITS | position)
    }

    /// Whether it is [`Mark::NONE`].
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The lane's number.
    pub fn lane(self) -> u32 {
        (self.0 >> Self::POSITION_BITS) as u32
    }

    /// The position in it.
    pub fn position(self) -> u64 {
        self.0 & Self::LAST_POSITION
    }

    /// As a number.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// From that number.
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// The direction of a copy; each has its own engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the card.
    ToDevice,
    /// From it.
    ToHost,
}

/// An item of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A kernel that takes `ns` nanoseconds when it has the engine for itself.
    Kernel {
        /// Number of its name ([`Machine::kernel`]).
        name: u32,
        /// Nanoseconds.
        ns: u64,
        /// The part of the card that its grid fills, in units of 1/[`FULL`].
        demand: u32,
    },
    /// A copy of `ns` nanoseconds.
    Copy {
        /// On which engine.
        direction: Direction,
        /// Nanoseconds.
        ns: u64,
    },
    /// Records an event, by number: the instant at which the engine reaches this item. It takes no
    /// time. Behind a kernel it is reached in its context's turn only; behind a copy at any time.
    Record {
        /// The event's number.
        event: u32,
    },
    /// Items behind it do not start before this mark of the same process is done.
    Wait(Mark),
    /// The end of the lane, whose number is not used again.
    End,
}

/// An item with its lane, context and card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// When it was submitted, on its process's clock.
    pub at: u64,
    /// Its position: the next one of its lane.
    pub mark: Mark,
    /// The process's number for the context.
    pub context: u32,
    /// The context's card.
    pub card: u32,
    /// The work.
    pub work: Work,
}

/// How far a mark has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Done. The instant, if an event was recorded there and has not been recorded again since.
    Done(Option<u64>),
    /// Not done.
    Pending {
        /// When it will be done if no work is added and no process ends, or an instant before that
        /// if the forecast is limited. `None` when it waits for work that may never be submitted,
        /// or when the query was without a forecast.
        forecast: Option<u64>,
        /// When to query again: not after `forecast`, and before it where the end of a process
        /// could make it sooner.
        check_at: Option<u64>,
        /// Before this instant it is not done, whatever work is added and whichever process ends.
        earliest: u64,
    },
}

/// A query of a mark's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// The mark.
    pub mark: Mark,
    /// The number of the event that was recorded there, if its instant is needed.
    pub event: Option<u32>,
    /// Whether a forecast is needed.
    pub has_forecast: bool,
}

/// The status of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its progress.
    pub progress: Progress,
    /// Items of its lane that are done; [`Mark::LAST_POSITION`] when the lane has ended.
    pub lane_done: u64,
}
