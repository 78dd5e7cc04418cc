//! The questions that the allocator answers.

pub mod explain;
pub mod filter;
pub mod judge;
pub mod prioritize;
pub mod reserve;
pub mod snapshot;
pub mod unbound;
pub mod usage;
pub mod victims;
