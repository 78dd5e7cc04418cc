//! A lease instead of turns, on a simulated machine: does one mechanism hold all shares?
//!
//! The coordinator (`leases`) gives a card to one slice at a time and bills the time until its work
//! has ended. A process (`pace`) bounds its work in flight by events, and goes on with a launch
//! only if nothing of its work ends. Neither knows what a kernel costs. The machine has one card
//! with time slices of 2 ms, contexts with streams, and kernels that wait for each other.

mod engine;
mod leases;
mod machine;
mod pace;
mod program;
mod scenes;

pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;
pub(crate) const S: u64 = 1_000_000_000;

/// `splitmix64`.
#[derive(Debug)]
pub(crate) struct Prng(pub u64);

impl Prng {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % end
    }
}

/// All timing of the lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub turn: u64,
    pub round: u64,
    pub shortest: u64,
    pub ahead: u64,
    /// In flight beside slices that always want more.
    pub depth: u64,
    /// In flight beside a slice with pauses.
    pub shallow: u64,
    pub alone_depth: u64,
    /// The longest pause of a hard slice alone.
    pub pause: u64,
    pub stall: u64,
    pub active: u64,
    pub pauses: u64,
    pub saved: u64,
    pub claim: u64,
    pub drain: u64,
    /// A slice that returns does not wait longer for work past its lease.
    pub overlap: u64,
    pub overlap_hard: bool,
    /// Percent for slices of a low priority.
    pub low_floor: u64,
}

pub(crate) const TIMING: Timing = Timing {
    turn: 20 * MS,
    round: 68 * MS,
    shortest: 5 * MS,
    ahead: MS,
    depth: 4 * MS,
    shallow: MS,
    alone_depth: 64 * MS,
    pause: 30 * MS,
    stall: 10 * MS,
    active: 100 * MS,
    pauses: 200 * MS,
    saved: 100 * MS,
    claim: 2_000 * MS,
    drain: 4_000 * MS,
    overlap: MS + 500 * US,
    overlap_hard: false,
    low_floor: 2,
};
