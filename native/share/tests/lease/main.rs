//! The lease on a simulated machine: does one mechanism hold all shares?
//!
//! The coordinator (`hami_share::lease`) gives a card to one slice at a time and bills the time
//! until its work has ended. A process (`pace`) bounds its work in flight by events, and goes on
//! with a launch only if nothing of its work ends. Neither knows what a kernel costs. The machine
//! has cards with time slices of 2 ms, contexts with streams, and kernels that wait for each other.

mod changes;
mod engine;
mod machine;
mod pace;
mod program;
mod scenes;
mod table;

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
