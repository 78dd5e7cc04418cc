//! Which cards of a node, for all containers of a pod together, and how good the node would be.

pub mod candidates;
pub mod chosen;
pub mod effort;
pub mod find;
pub mod order;
pub mod score;
pub mod topology;
