//! Caches and the fast path: what is equal for many pods and nodes is computed once.

pub mod answers;
pub mod cache;
pub mod fast_path;
pub mod table;
pub mod verdict;
