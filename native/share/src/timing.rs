//! All timing of the share, in one place: of the coordinator, of the leases, and of each process.
//!
//! Not here: when a pulse or a sweep is too old, which is part of the grants page
//! ([`hami_limits::grants`]), and what an old kernel or the precision of an event requires.
//!
//! `cargo test -p hami-share --test lease -- --nocapture` prints what the values achieve. "Doubled
//! or halved" in a text refers to these scenes. All values are nanoseconds, except [`LOW_FLOOR`].

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

// Leases.

/// A lease while one or two parties are active on the card. A handover costs about 0.2 ms, so 1
/// % of it.
pub const LEASE: u64 = 20 * MS;
/// A round of all parties if there are more: each waits at most for about this long.
pub const ROUND: u64 = 68 * MS;
/// The shortest lease of a round, however many parties there are. For as long a party with nothing
/// to do keeps a lease that it has together with others: longer than the host takes between two
/// steps of a chat program.
pub const SHORTEST: u64 = 5 * MS;
/// How long before its end a lease is prolonged if its holder is also the next one. The holder
/// reads the new end before it stops.
pub const AHEAD: u64 = MS;
/// The least that a lease costs which its holder gives up. Without it, a slice with many short
/// pauses ends its neighbour's leases for nothing: the 99th percentile of a step of a chat beside a
/// trainer was 2 ms with it and 22 ms without.
pub const LEAST_BILL: u64 = MS;
/// The longest time between two steps while a card is leased.
pub const LOOK: u64 = 10 * MS;

// Which slices take part.

/// A process counts as active for this long after it last waited or worked. So the pauses
/// between two kernels do not change which slices share the card.
pub const ACTIVE: u64 = 100 * MS;
/// A slice that gave up a lease because it had nothing to do counts as one with pauses for this
/// long: twice [`ACTIVE`], so that it still does when it returns.
pub const PAUSES: u64 = 200 * MS;
/// The greatest age of the heartbeat of a process whose work runs. Heartbeats come every
/// millisecond, so an older one means that the process was stopped.
pub const SILENT: u64 = 10 * MS;
/// How long a process may take to answer a lease. A wake-up takes less than 0.2 ms on an idle
/// machine; a stopped process keeps the card for no longer than this.
pub const ANSWER: u64 = 5 * MS;

// Work in flight.

/// In flight beside slices that always have more work: two intervals between events, one that
/// runs and one that waits. Parties have the lease together while the one that had more, over its
/// weight, is ahead by no more than this; with 2 to 16 ms each is served the same.
pub const DEPTH: u64 = 4 * MS;
/// In flight of slices without a share while one with a share is present, but idle. The driver
/// shares the card then, so a kernel of 5 ms takes 15 ms beside two other slices. With less, its
/// slice loses 2 points to slices with shorter kernels.
pub const METERED: u64 = 40 * MS;
/// In flight beside a slice with pauses, which waits for it when it returns. Doubled, a decode
/// beside a trainer loses a tenth of its time.
pub const SHALLOW: u64 = MS;
/// In flight while no other slice has a process on the card. A program that queues work and then
/// stalls for 60 ms keeps the card busy; a newcomer waits at most for this much work.
pub const ALONE_DEPTH: u64 = 64 * MS;
/// The longest time between two events of a stream whose kernels are shorter. An event costs
/// about 1 us.
pub const INTERVAL: u64 = 2 * MS;
/// The longest pause of a process with a hard share that has the card alone.
pub const PAUSE: u64 = 30 * MS;

// Reports of a process.

/// How often a process sends a heartbeat while it has work or waits. See [`SILENT`].
pub const HEARTBEAT: u64 = MS;
/// How long the holder of a lease keeps it with nothing in flight: longer than a program takes
/// from the end of a kernel that it has waited for to the next launch.
pub const LINGER: u64 = 50 * US;
/// How long after the end of its lease a process waits for the next grant. If the lease was not
/// revoked by then, the coordinator is late, and the process goes on.
pub const HANDOVER: u64 = 500 * US;

// Work that goes on after its lease.

/// How long others wait for it: longer than kernels take. Then the driver shares the card.
pub const DRAIN: u64 = 4_000 * MS;
/// The same for work that was launched without admission, because the queue may have any
/// length.
pub const BACKLOG: u64 = 20 * MS;
/// How long a slice with pauses waits for the work of a soft slice, which runs without a lease.
/// Then the driver shares the card: the slice would otherwise wait for each long kernel (a
/// decode beside kernels of 20 ms had 7 % of the card instead of 42 %).
pub const OVERLAP: u64 = 200 * US;
/// Work that has made no progress for this long counts as stalled, and so does work that has
/// made none for twice the longest time seen. It may wait for a launch that waits, so launches
/// go on: first one, then two, then four, with twice the time between them.
pub const STALL: u64 = 10 * MS;
/// How long a launch of unknown cost may take. One of another such function waits for so long
/// behind it, one of the same function twice as long. A program with long kernels otherwise
/// fills the driver's queue while its first kernel runs.
pub const UNKNOWN: u64 = 500 * MS;

// The meter of a process, which polls the events behind its launches.

/// The shortest and the longest time between two polls of an event that should have been reached.
pub const SHORTEST_POLL: u64 = 20 * US;
/// See [`SHORTEST_POLL`].
pub const LONGEST_POLL: u64 = MS;
/// The longest sleep of the meter.
pub const METER_SLEEP: u64 = 1_000 * MS;
/// A launch so long after the one before it is an interval of its own. So time in which the card
/// waits for the host is not taken for work.
pub const GAP: u64 = 50 * US;
/// The launches of a stream have stopped if none was made for this long.
pub const QUIET: u64 = 200 * US;
/// The longest wait of a launch before it checks again whether anything has changed.
pub const RECHECK: u64 = 10 * MS;
/// How long the exit of a process waits for its meter at most. A look takes some microseconds
/// per interval.
pub const EXIT: u64 = 5 * MS;
/// No launch costs less.
pub const LEAST_COST: u64 = US;
/// So much work tells how streams overlap.
pub const RECENT: u64 = 1_000 * MS;

// The coordinator.

/// How often it writes its pulse, looks for new slices, and probes processes with work, while
/// launches need admission. It is a fifth of the age at which a pulse is too old.
pub const BUSY_TICK: u64 = 10 * MS;
/// How often it looks whether slices were created or removed, and how often it probes all processes
/// of slices with a share.
pub const IDLE_TICK: u64 = 100 * MS;
/// How often it reads the directory of slices even if it seems to be unchanged.
pub const SCAN: u64 = 1_000 * MS;
/// The same for the processes of all slices, while a fresh sweep exists: a death must be noticed
/// before a sweep can show that the memory is free.
pub const SWEPT_TICK: u64 = 40 * MS;

// The ledger.

/// The most that a slice, or a process by its own bucket, saves up while it does not use its
/// share. The 95th percentile of a server's answers beside a trainer is 0.28 times that of the
/// driver's time slices (hard 50 %, median of six sequences of requests); with 25, 50 and 200 ms
/// it is 0.65, 0.44 and 0.25 times. The programs are those of `test_a_server_beside_a_trainer`
/// (`tests/share/test_latency.py`).
pub const SAVED: u64 = 100 * MS;
/// The most that a hard slice is owed for waiting.
pub const CLAIM: u64 = 2_000 * MS;
/// The most that a slice or a process owes. Long kernels of many streams at once are paid back
/// in full, and still a wrong measurement cannot stop a process for ever.
pub const DEBT: u64 = 60_000 * MS;
/// How far a slice may be ahead of the least served one; the rest is forgiven.
pub const LEAD: u64 = 4_000 * MS;
/// The part of its waiting time that a slice of a lower priority gets, in percent.
pub const LOW_FLOOR: u64 = 2;
/// The most that it saves up of this.
pub const LOW_SAVED: u64 = 50 * MS;

const _: () = assert!(AHEAD < SHORTEST && SHORTEST < LEASE);
const _: () = assert!(SHALLOW <= DEPTH && DEPTH <= ALONE_DEPTH);
const _: () = assert!(5 * HEARTBEAT < SILENT);
const _: () = assert!(5 * BUSY_TICK <= hami_limits::grants::SILENCE_NS);
const _: () = assert!(BACKLOG < DRAIN && ACTIVE < PAUSES);
