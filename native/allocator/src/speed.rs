//! What is the same for many pods and nodes, and is worked out once.

pub mod answers;
pub mod cache;
pub mod fast_path;
pub mod table;
pub mod verdict;
