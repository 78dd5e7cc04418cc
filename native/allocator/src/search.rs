//! Which cards of a node a pod gets, for all its containers together, and how good the node would
//! be.

pub mod candidates;
pub mod chosen;
pub mod effort;
pub mod find;
pub mod order;
pub mod score;
pub mod topology;
