//! The compute layer of `libvgpu.so`: it holds the process to its share of a card's engine time.
//!
//! The way of a launch:
//!
//! 1. [`fast_path`]: two words decide whether launches need admission at all.
//! 2. [`budget`]: a thread-local budget lets most launches pass without admission.
//! 3. [`admission`]: other launches join a batch between two events, or open one ([`batch`]).
//! 4. [`limiter`]: to open a batch, the thread waits until the process has credit, or the turn.
//! 5. [`meter`]: a thread measures each batch when it has ended, and bills it.
//!
//! [`notices`] has the other reports of the hooks. Streams that are being captured ([`capture`])
//! and contexts that are ending ([`contexts`]) are left alone.
//!
//! While neither the slice nor a neighbour has a share, only step 1 runs, unless slices lie inside
//! one another.

// A panic here would be a panic in the user's program.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::doc_markdown)] // most names in comments are CUDA's

pub mod admission;
mod batch;
pub mod budget;
mod capture;
mod clock;
mod contexts;
mod events;
pub mod fast_path;
pub mod launch;
mod limiter;
mod meter;
pub mod notices;

pub use contexts::Ending;
