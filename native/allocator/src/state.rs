//! The nodes, their names, and the allocations of pods.

pub mod allocations;
pub mod charge;
pub mod list;
pub mod names;
pub mod node;
pub mod sequence;
pub mod spending;
