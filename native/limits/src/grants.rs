//! The grants page: one file of 4096 bytes that says whose turn it is on the cards of a slice.
//!
//! A coordinator writes it from outside, the limited programs read it in the path of their launches
//! and wait for it. It is read-only for them, so a slice cannot grant itself a turn; and it is
//! believed only while the coordinator's heart beats, so that a dead coordinator holds up nobody.
//!
//! ```text
//! offset  field
//!      0  magic: [u8; 8]           "HAMIGRA1"
//!      8  version: u32, size: u32  1, 4096
//!     16  zero
//!     32  pulse: u64               when the coordinator was last seen, ns of CLOCK_MONOTONIC
//!     40  regulated: u32           1 while launches have to ask because of a neighbour
//!     44  zero
//!     64  rows: 16 of 64 bytes     row i is row i of the limits page
//!
//! a row:  0 turn: u32 | 4 kind: u8 | 5 zero | 6 holder: u16   one word, stored at once
//!         8 until: u64                                        ns of CLOCK_MONOTONIC
//! ```
//!
//! Numbers are little-endian. `turn` is a futex as well: whoever has seen turn n waits for another.
//!
//! `until` belongs to a turn, but is stored apart from it. A process that read the old word and the
//! new `until` would go on in its old turn for the length of its successor's. So the old holder's
//! turn is first closed, then `until` is set, then the new word, and a reader looks at the word before
//! and after `until`. A coordinator killed in between leaves a turn that is nobody's, until silence.

mod layout;
mod reader;
mod state;
mod writer;

pub use layout::{Grant, Holder, Kind};
pub use reader::GrantsView;
pub use state::ComputeState;
pub use writer::GrantsPage;

/// A pulse that is older than this, or 0, means that nobody coordinates: every grant counts as
/// [`Kind::Own`].
pub const SILENCE_NS: u64 = 50_000_000;

#[cfg(test)]
mod tests;
