//! One engine that many processes share, so that limits across processes can be tested.
//!
//! The server listens on two sockets: one for the stub libraries (`STUB_GPU_SOCKET` names it), one
//! for tests, which ask for the ledger and plan faults ([`control`] has the words).

pub mod arguments;
pub mod control;
pub mod faults;
pub mod node;
pub mod serve;
pub mod testing;
pub mod timekeeper;
