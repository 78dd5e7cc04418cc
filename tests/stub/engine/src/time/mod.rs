//! When work is done: cards that run kernels and copies, a piece of time at a time.
//!
//! Nothing is computed, so time is the only thing that work costs. What a card does with the work of
//! several processes is what tests of shares measure against, so it is a machine of its own: pure, a
//! discrete-event simulation without clock or I/O. Whoever owns it says what time it is; it goes from
//! event to event up to there, and what it has said to be done stays done.
//!
//! - Work lies in *lanes*, each an in-order queue: every stream is one, and so is a branch of a graph.
//!   A [`Mark`] is a place in a lane; a lane can wait for a mark of another ([`Work::Wait`]), and the
//!   rules of default streams are nothing but such waits.
//! - A card has one compute engine and a copy engine in each direction. Contexts take turns
//!   on the compute engine, those with work for it only; a turn is a slice, and going from one context
//!   to another costs a switch that is nobody's engine time. Kernels of one context overlap as far as
//!   their grids leave room.
//! - What ran is billed to its process, card and kernel name.

mod books;
mod earliest;
mod engine;
mod lane;
mod machine;
mod program;
mod state;
#[cfg(test)]
mod tests;
mod turns;

pub use books::{BUCKET_NS, KernelUse, PERIOD_NS};
pub use lane::Lane;
pub use machine::Machine;

/// All of a card, in the unit of [`Work::Kernel`]'s demand.
pub const FULL: u32 = 1 << 16;

/// Most pending items of a lane: whoever wants to add one more waits, as with the real driver.
pub const PENDING_MAX: u64 = 1024;

/// No kernel takes longer: three days.
const LONGEST_NS: u64 = 3 * 24 * 3600 * 1_000_000_000;

/// How contexts take turns on a compute engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slicing {
    /// Nanoseconds of a turn, at least 1: a context that still has work then lets the next one in.
    pub slice_ns: u64,
    /// Nanoseconds from one context to another, in which no kernel runs.
    pub switch_ns: u64,
}

impl Default for Slicing {
    /// 2 ms and 50 µs, about what drivers of the last years do.
    fn default() -> Self {
        Self { slice_ns: 2_000_000, switch_ns: 50_000 }
    }
}

/// A place in a lane of one process: the lane's number and how many items came up to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

impl Mark {
    /// No place at all: what waits for it waits for nothing.
    pub const NONE: Self = Self(0);
    const PLACE_BITS: u32 = 40;

    /// More than any lane will ever have.
    pub const LAST_PLACE: u64 = (1 << Self::PLACE_BITS) - 1;

    /// The `place`th item of a lane, both counted from 1.
    pub fn new(lane: u32, place: u64) -> Self {
        Self(u64::from(lane) << Self::PLACE_BITS | place)
    }

    /// Whether it is [`Mark::NONE`].
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The lane's number.
    pub fn lane(self) -> u32 {
        (self.0 >> Self::PLACE_BITS) as u32
    }

    /// The place in it.
    pub fn place(self) -> u64 {
        self.0 & Self::LAST_PLACE
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

/// Which way a copy goes; each has an engine of its own.
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
    /// A kernel that runs `ns` nanoseconds where it has the engine to itself.
    Kernel {
        /// Number of its name ([`Machine::kernel`]).
        name: u32,
        /// Nanoseconds.
        ns: u64,
        /// How much of the card its grid fills, of [`FULL`].
        demand: u32,
    },
    /// A copy of `ns` nanoseconds.
    Copy {
        /// On which engine.
        direction: Direction,
        /// Nanoseconds.
        ns: u64,
    },
    /// Notes for this event, by number, when the engine got here. Takes no time, but behind a kernel
    /// it wants its context's turn, as a kernel does; behind a copy it does not.
    Record {
        /// The event's number.
        event: u32,
    },
    /// Nothing behind it starts before this mark of the same process is done.
    Wait(Mark),
    /// Nothing comes behind it: the lane's number will not be used again.
    End,
}

/// An item, and where it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// When it was submitted, on its process's clock.
    pub at: u64,
    /// Its place: the next of its lane.
    pub mark: Mark,
    /// The process's number for the context.
    pub context: u32,
    /// The context's card.
    pub card: u32,
    /// What it is.
    pub work: Work,
}

/// How far a mark has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Done. The instant where an event was recorded there and has not been recorded since.
    Done(Option<u64>),
    /// Not done.
    Pending {
        /// When it will be, if nothing else comes and nobody goes, or as far as that could be seen:
        /// `None` when it waits for what may never come, or when nobody asked.
        forecast: Option<u64>,
        /// When it makes sense to ask again: not after `forecast`, and before it where a process that
        /// goes could make it sooner.
        look_at: Option<u64>,
        /// Before this instant it is not done, whatever comes and whoever goes.
        earliest: u64,
    },
}

/// What is asked about a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The mark.
    pub mark: Mark,
    /// The number of the event that was recorded there, where its instant is wanted.
    pub event: Option<u32>,
    /// Whether it is also asked when it will be done.
    pub looks_ahead: bool,
}

/// What asking for a mark gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// How far it has come.
    pub progress: Progress,
    /// Items of its lane that are done; [`Mark::LAST_PLACE`] when that has ended.
    pub lane_done: u64,
}
