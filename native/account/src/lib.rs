//! The account file: who holds how much of which card, for all processes of one slice.
//!
//! Every allocation of every process is charged here before the driver is asked, so the account
//! must be exact (never over the limit, no request refused that fits), fast (a charge is a handful
//! of atomic operations and no system call) and must survive the death of any process at any
//! instruction. There is no server and no global counter to repair: each process writes only words
//! of its own, and what it holds dies with its slot.
//!
//! # How a charge works
//!
//! A process has one word per card, `committed:32 | tentative:32`, in units of 512 bytes.
//!
//! 1. Without writing anything: if the committed sum plus the request is over the limit, refuse.
//!    (Else a neighbour that keeps asking for far too much would get in everybody's way.)
//! 2. Publish the request as tentative in the own word, then sum all words. Two racers cannot both
//!    overlook each other. If the sum fits, one atomic addition turns tentative into committed.
//! 3. Else withdraw, and ask again under a lock, staying published, until it fits, the committed
//!    bytes alone refuse it, or a deadline passes: see [`Member::charge`].
//!
//! # How a death is noticed
//!
//! A slot belongs to whoever holds the kernel's lock on its byte of the file, and only a living
//! process can: `slot_lock` says how. Before a request is refused, the locks of the others are
//! probed; `reap` says when the bytes of the dead are handed out.
//!
//! # The file
//!
//! 364,544 bytes, native byte order, one inode for life.
//!
//! ```text
//! offset  field
//!      0  magic: [u8; 8]             "HAMIACC1"
//!      8  version: u32, size: u32    2, 364544
//!     64  high_water: u32            slots from here on were never used
//!    128  slow_lock: u32             0, or 1 + the slot that is in step 3; a futex
//!    192  probed_at: u64             when the locks were last probed, ms since boot
//!    256  departed: refusals [u64; 16], anomalies u64: of processes whose slots are free again
//!    448  bell: u32                  what a coordinator waits for; a futex
//!    512  departed: used_ns [u64; 16], throttled_ns [u64; 16], likewise; owed [u64; 16]
//!   4096  words: [[u64; 256]; 16]    per card, per slot: committed in the high half
//!  36864  records: 256 of 256 bytes  per slot
//! 102400  compute: [[64 bytes; 256]; 16], per card, per slot
//!
//! a record: 0 state: u32 (0 free, 1 taken), pid: u32 | 8 start_time: u64 | 16 pid_namespace: u64
//!           24 dead_since: u64 (ms since boot, 0 = not known dead)
//!           32 releases_begun: u32, releases_done: u32 | 40 joined_at: u64 (ns since boot)
//!           64 refusals: [u64; 16], anomalies: u64
//!
//! compute:  0 state: u64 (turn in the high half; 0 idle, 1 wants, 2 runs) | 8 used_ns: u64
//!          16 throttled_ns: u64 | 24 debt_ns: u64 | 32 active_at: u64 | 40 metered_at: u64
//!          48 owed: u64 | zero
//! ```
//!
//! Byte i of the file carries the lock of slot i. Words are packed per card because every charge
//! reads all of them; records are apart because their writers would disturb those reads, and so is
//! what a process says of its use of the cards' engines, which is a cache line for each card: see
//! [`ComputeWords`].

mod account;
mod compute;
mod file;
pub mod fork;
mod identity;
mod join;
mod layout;
mod member;
mod reap;
mod slot_lock;
mod slow_lock;
mod snapshot;
#[doc(hidden)]
pub mod steps;

pub use account::{Account, Departed, Living, Oracle};
pub use compute::{Compute, Owed};
pub use hami_limits::grants::ComputeState;
pub use identity::ProcessIdentity;
pub use layout::{CARDS, ComputeWords, SLOTS, UNIT};
pub use member::{Member, Refused};
pub use snapshot::{ProcessUse, Snapshot};
