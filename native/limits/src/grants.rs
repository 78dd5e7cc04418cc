//! The grants page: a file of 4096 bytes that says which process may launch on the slice's cards.
//!
//! The coordinator writes it from outside. The limited programs read it before they launch, and
//! wait for it. It is mapped read-only inside, so a slice cannot grant itself a lease. Grants count
//! only while the coordinator's pulse is recent, so a dead coordinator stops no program.
//!
//! ```text
//! offset  field
//!      0  magic: [u8; 8]           "HAMIGRA1"
//!      8  version: u32, size: u32  1, 4096
//!     16  zero
//!     32  pulse: u64               time of the coordinator's last pulse, ns of CLOCK_MONOTONIC
//!     40  regulated: u32           1 while launches need admission because of a neighbour
//!     44  zero
//!     48  swept_at: u64            time of the last complete sweep, ns of CLOCK_MONOTONIC
//!     56  zero
//!     64  rows: 16 of 64 bytes     row i is row i of the limits page
//!   1088  departed: [u64; 256]     slot i is slot i of the account
//!
//! a row:  0 number: u32 | 4 kind: u8 | 5 zero | 6 holder: u16   one word, stored at once
//!         8 until: u64                                        ns of CLOCK_MONOTONIC
//!        16 depth: u64                                        ns of engine time, zero for unknown
//!        24 others: u64                                       processes, below 2^32
//!        32 unblock: u64                                      launches that go on without admission
//!        40 zero
//! ```
//!
//! Numbers are little-endian. The kinds are [`Kind::Own`] (no coordinator decides), [`Kind::Alone`]
//! (the holder needs no leases: its slice is the only active one on the card, or has no share while
//! no slice with a share is active) and [`Kind::Lease`] (only the holder may launch, until `until`).
//! The holder is one process, named by its slot in the account, every process of the slice, or
//! none. `number` counts the grants of a row and is a futex: a process that has seen grant n waits
//! until it changes. `depth` limits how much work a process has in flight: the less, the sooner
//! another slice can have the card. `others` counts the processes of other slices that have the
//! lease too: each of them has about the same part of the card's time. `unblock` lets launches go on
//! for which the slice's own work in flight may wait.
//!
//! The other fields of a row are stored apart from its word. A process that read an old word with a
//! new `until` would continue its old lease for the length of the next one. So the writer first
//! takes the lease from its holder, then stores the other fields, then the new word; a reader reads
//! the word before and after them. If the coordinator is killed in between, the lease has no holder
//! until the pulse is too old.
//!
//! # Departures
//!
//! A program in a container cannot look up its dead neighbours in NVML's lists, because NVML uses
//! the host's PIDs. A *sweeper* outside reads these lists. The coordinator compares them with the
//! accounts and stores the result here: if the driver has freed the memory of the process in a
//! slot, `departed` of that slot is the process's `joined_at`. While `swept_at` is recent, any
//! other value means that the driver has not freed the memory yet. If `swept_at` is too old
//! ([`SWEEP_SILENCE_NS`]), the page gives no answer.

mod layout;
mod reader;
mod state;
mod writer;

pub use layout::{Grant, Holder, Kind, SLOTS, UNBLOCKS_IDLE};
pub use reader::GrantsView;
pub use state::{ComputeState, Report};
pub use writer::GrantsPage;

/// The age, in nanoseconds, at which a pulse is too old. With such a pulse, or one of 0, there is
/// no coordinator: every grant counts as [`Kind::Own`].
pub const SILENCE_NS: u64 = 50_000_000;

/// The age, in nanoseconds, at which a sweep is too old to say that the driver still holds memory.
pub const SWEEP_SILENCE_NS: u64 = 500_000_000;

#[cfg(test)]
mod tests;
