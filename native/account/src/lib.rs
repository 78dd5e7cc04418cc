//! The account file: the processes of a slice, and how much of each card they hold.
//!
//! Every allocation of every process is charged here before the driver is called. So the account
//! must be exact (never over the limit, and a request that fits is never refused), fast (a charge
//! is a few atomic operations without a system call), and it must survive the death of any process
//! at any instruction. There is no server, and no global counter that could need a repair: each
//! process charges in words of its own, and they are cleared with its slot after its death.
//!
//! | module | content |
//! |---|---|
//! | `layout` | the file as a type, and a word as a number |
//! | `account` | the file, mapped: which process has which slot, and how much is used |
//! | `join`, `slot_lock`, `fork` | membership: a slot, and the locks that prove its process alive |
//! | `member` | charging and uncharging: the path of every allocation |
//! | `contend`, `slow_lock` | requests that compete near the limit, and their lock |
//! | `shared` | memory that one process has exported and others have imported |
//! | `descriptor` | whether copies of a descriptor of such memory are open |
//! | `reap`, `identity` | dead processes: finding them and clearing their slots |
//! | `compute` | the processes' use of the cards' engines, for the coordinator |
//! | `snapshot` | reading the file from outside, without trusting it |
//! | `file` | opening it inside a program that may close any descriptor |
//! | `steps` | instants at which tests delay or kill a process |
//!
//! The preload library joins and charges, the coordinator reads the engine times and states, and
//! the Python package reads snapshots. The limits themselves are in `hami-limits`: row i of the
//! limits page is card i of the account.
//!
//! # How a charge works
//!
//! A process has one word per card: `committed:32 | revoked:1 | tentative:31`, in units of 512
//! bytes. *Committed* units are charged, *tentative* units are only requested. A charge has up to
//! three steps:
//!
//! 1. Sum the committed units of all words. If the sum plus the request is over the limit, go to
//!    step 3 without writing. Otherwise a process that keeps requesting far too much would block
//!    its neighbours.
//! 2. Publish: add the request to the tentative units of the process's own word. Then sum all
//!    words, committed and tentative. Of two processes that race, at least one sees the other. If
//!    the sum is within the limit, commit: one compare-and-swap turns tentative into committed.
//!    Otherwise withdraw the request.
//! 3. If the committed units alone leave too little room, reap dead processes; if there is still
//!    too little room, refuse. Otherwise take the slow lock, publish again, and stay published
//!    until the request fits, the committed units leave too little room, or a second has passed
//!    ([`Member::charge`]).
//!
//! A process may be stopped at any of these steps, for any time. So after a millisecond, a request
//! that waits in step 3 *revokes* the tentative units of the other words: they no longer count in
//! any sum, and they cannot be committed. The process of a revoked word withdraws its request and
//! publishes it again. A word stays revoked until all of its tentative units are withdrawn, and
//! nothing is published in it until then. So a request that can be committed has counted in every
//! sum since it was published. If the holder of the slow lock is stopped, a waiter takes the lock
//! over.
//!
//! Before a refusal, one sum of the committed units is not enough: if units are released from a
//! word that was read, and charged in a word that was not read yet, they count twice. So the sum
//! counts only words from which nothing was released until all words were read. For this, each
//! process counts its releases in its record, once before and once after each release.
//!
//! # How a death is noticed
//!
//! A process holds kernel locks on the two bytes of the file that belong to its slot. Only a living
//! process can hold them (`slot_lock`). Before a request is refused, the locks of all processes
//! that hold memory of that card are probed. If a process only needs to know how much is free, all
//! locks are probed, at most every 10 ms. The slot of a dead process is then reaped (`reap`): its
//! tentative units are dropped at once, its committed units when the driver has freed the memory.
//! The caller provides a function that answers whether it has ([`Account::attach_with`]). If the
//! function does not know, the memory counts as free 750 ms after the death was noticed. A request
//! that fits only with that memory waits for it, two seconds at most. Readings of the use count what
//! a request finds: for these two seconds after the death was noticed, the memory counts as free
//! ([`Account::in_use`], [`Snapshot`]). To probe, each process keeps a descriptor of the
//! file. If the program has closed it and the file cannot be opened again, a process counts as dead
//! only if its PID is free.
//!
//! # Engine times
//!
//! Each process has a cache line per card for its use of the card's engine ([`ComputeWords`]): the
//! engine time so far, the time for which its threads waited to launch, its debt, heartbeats, and
//! its state with the grant that it had seen. Only the process itself writes there; after a new
//! state it signals the account's wake-up word. When a slot is reaped, its times are added to sums
//! in the header.
//!
//! # What is measured
//!
//! The driver takes memory whose size it does not report, such as for modules. The coordinator
//! compares what NVML reports of each process with what the process is charged, and writes the
//! excess of all processes here. Every charge finds as much less room.
//!
//! # The file
//!
//! 626,688 bytes, native byte order, one inode for life.
//!
//! ```text
//! offset  field
//!      0  magic: [u8; 8]             "HAMIACC1"
//!      8  version: u32, size: u32    1, 626688
//!     64  high_water: u32            slots from here on were never used
//!    128  slow_lock: u32             0, or 1 + the slot that holds the slow lock; a futex
//!    192  probed_at: u64             when all locks were last probed, ms since boot
//!         awaited_until: u64         until when requests may wait for a dead process's memory, or 0
//!    256  departed: refusals [u64; 16], anomalies u64: of processes whose slots are free again
//!    448  wake: u32                  the wake-up word of the coordinator; a futex
//!    512  departed: used_ns [u64; 16], throttled_ns [u64; 16], likewise; debt [u64; 16]
//!    896  measured: [u64; 16]       bytes that the driver holds for the processes beyond the
//!                                   committed units; the coordinator writes it
//!   1024  shared_high: u32           lower half: how many entries of `shared` may be in use
//!   1028  any_kept: u32              whether descriptors may be all that keeps some memory: 0 no, 1 yes,
//!                                    2 yes, and it was looked up
//!   1032  descriptor_path: [u8; 128] the file behind the marked descriptors
//!   1216  peak: [u64; 16]            the most bytes in use
//!   4096  words: [[u64; 256]; 16]    per card, per slot: see "How a charge works"
//!  36864  records: 256 of 256 bytes  per slot
//! 102400  compute: [[64 bytes; 256]; 16], per card, per slot
//! 364544  shared: exported allocations: charges: [u64; 4096], keys: [u64; 4096], entries: 4096 of
//!         48 bytes
//!
//! a record: 0 state: u32 (0 free, 1 taken), pid: u32 | 8 start_time: u64 | 16 pid_namespace: u64
//!           24 dead_since: u64 (ms since boot, 0 = not known dead)
//!           32 releases_begun: u32, releases_done: u32 | 40 joined_at: u64 (ns since boot)
//!           48 reaping: u32 (1 + the slot that the process reaps now, or 0)
//!           64 refusals: [u64; 16], anomalies: u64
//!
//! compute:  0 state: u64, a report (bits 0 and 1: 0 idle, 1 waiting, 2 running; bit 2: its work is
//!            stalled; bits 8 to 31: the length of the launch that waits for a lease, in units of
//!            10 us; bits 32 to 63: the grant that the process had seen) | 8 used_ns: u64
//!          16 throttled_ns: u64 | 24 debt_ns: u64 | 32 active_at: u64 | 40 metered_at: u64
//!          48 debt: u64 | 56 driver_memory: u64 (bytes; part of the committed units)
//!
//! a charge: times:28 | card:4 | units:32, from the highest bit: see `layout::SharedCharge`
//! an entry: 0 state: u32 (0 vacant, 1 ready, 2 + the slot of the process that changes it)
//!           4 exporter: u32, a slot | 8 file: u64 | 16 holders: [u64; 4], a bit per slot
//! ```
//!
//! Bytes i and 256 + i of the file carry the locks of slot i; their contents do not matter. Words
//! are packed per card, because every charge reads all of them. Records and engine times are in
//! other cache lines, because their writers would slow down those reads.

mod account;
mod compute;
mod contend;
pub mod descriptor;
mod file;
pub mod fork;
mod identity;
mod join;
mod layout;
mod member;
mod place;
mod reap;
mod shared;
mod slot_lock;
mod slow_lock;
mod snapshot;
#[doc(hidden)]
pub mod steps;

pub use account::{Account, Dead, Departed, Holding, Living};
pub use compute::{Compute, Debt};
pub use hami_limits::grants::{ComputeState, Report};
pub use identity::ProcessIdentity;
pub use layout::{CARDS, ComputeWords, SIZE, SLOTS, UNIT};
pub use member::{Member, Refused, Requester};
pub use place::runtime_directory;
pub use snapshot::{ProcessUse, Snapshot};
