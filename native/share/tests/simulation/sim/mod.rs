//! A simulated machine around the real arithmetic: engines, processes with admission and meters,
//! and a coordinator that publishes the decisions of `Turns`. Time is a number, so every run is the
//! same.
//!
//! The model: a card runs one context at a time, in slices of 2 ms, and a switch takes 50 us. A
//! process launches batches of about 2 ms, two in flight. A process or coordinator that is woken
//! runs about 60 us later.

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
