//! The compute layer of `libvgpu.so`: it holds the process to its share of a card's engine time.
//!
//! The way of a launch:
//!
//! 1. [`fast_path`]: two words decide whether launches need admission at all.
//! 2. [`admission`]: the launch waits until its card's limiter (`card`) admits it.
//! 3. `state`: the decision, from the coordinator's grant, the own bucket and the work in flight.
//! 4. `streams`: events around launches, two intervals of them in flight.
//! 5. [`meter`]: a thread sees when they have ended, and bills them by the card's time
//!    (`timeline`).
//!
//! [`notices`] has the other reports of the hooks. Streams that are being captured (`capture`) and
//! contexts that are ending (`contexts`) are left alone.
//!
//! While neither the slice nor a neighbour has a share, only step 1 runs, unless slices lie inside
//! one another.

// A panic here would be a panic in the user's program.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::doc_markdown)] // most names in comments are CUDA's

pub mod admission;
mod capture;
mod card;
mod clock;
mod contexts;
mod events;
pub mod fast_path;
mod here;
pub mod launch;
mod meter;
pub mod notices;
mod seats;
mod state;
mod streams;
mod timeline;

pub use contexts::Ending;
