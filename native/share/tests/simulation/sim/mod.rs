//! A simulated machine around the real arithmetic: engines, processes with their gates and meters, and
//! a coordinator that does what `Turns` says. Time is a number; every run is the same.
//!
//! What is modelled: a card runs one context at a time, in slices of 2 ms with 50 us for a switch; a
//! process launches batches of about 2 ms, two in flight; whoever is woken wakes 60 us later, give or
//! take; a coordinator rung wakes as late.

mod coordinator;
mod engine;
mod host;
mod lane;
mod machine;
mod program;
pub mod scene;
pub mod scenes;

pub use machine::{Machine, Spec};
pub use program::Program;

pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000_000_000;

/// `splitmix64`.
pub struct Prng(pub u64);

impl Prng {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % end
    }
}
