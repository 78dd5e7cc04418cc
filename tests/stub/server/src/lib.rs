//! One engine that many processes share, so that limits across processes can be tested.
//!
//! The server listens on two sockets: one for the stub libraries (`STUB_GPU_SOCKET`), and one for
//! tests ([`control`]), which read the ledger and order [`faults`].

pub mod arguments;
pub mod control;
pub mod faults;
mod memory_limits;
pub mod mig;
pub mod node;
mod peer;
pub mod serve;
pub mod testing;
pub mod timekeeper;
