//! What is the same for many pods and nodes, and is worked out once.

pub mod answers;
pub mod cache;
pub mod hash;
pub mod lens;
pub mod slim;
pub mod verdict;
