//! The slice layer of `libvgpu.so`: which limits hold for this process, and the memory that is
//! charged against them.
//!
//! [`current`] decides once which slice the process is in, from the files beside the library and
//! from the environment ([`settings`]). A slice is a stack of layers: a `hami run` inside another
//! one adds a layer. [`limited`] charges all of them, and each [`layer`] is one limits page with
//! its account.
//!
//! | module | what it has |
//! |---|---|
//! | [`current`], [`settings`], [`environment`], [`machine`] | the decision, and what it reads |
//! | [`limited`], [`layer`], [`departure`] | charging every layer; when a dead process's bytes come back |
//! | [`cards`], [`numbers`] | which row of each layer a card is; which card a number is |
//! | [`table`], [`allocations`], [`pools`] | the memory that this process holds, by pointer and by memory pool |
//! | [`charging`], [`reserve`] | allocating and freeing under the limit; the charge around a call |
//! | [`mapped`], [`shared`], [`ipc`] | memory with handles and mappings; memory of several processes |
//! | [`reported`], [`graphs`] | memory whose size only the driver tells |
//! | [`contexts`], [`context_limits`], [`green`] | the driver's own memory for contexts, and for raised limits |
//! | [`seat`] | the account and the grants of one card, as the compute layer uses them |

// A panic here would be a panic in the user's program.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::doc_markdown)] // most names in comments are CUDA's

pub mod allocations;
pub mod cards;
pub mod charging;
pub mod context_limits;
pub mod contexts;
mod current;
mod departure;
mod environment;
pub mod graphs;
pub mod green;
pub mod ipc;
mod layer;
mod limited;
mod machine;
pub mod mapped;
pub mod numbers;
pub mod pools;
mod reported;
pub mod reserve;
mod seat;
mod settings;
mod shared;
pub mod table;

pub use current::{Slice, current, limited};
pub use limited::{Card, Limited};
pub use seat::Seat;
