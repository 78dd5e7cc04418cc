//! The timing of the leases and of a process's own bucket, in one place.
//!
//! `cargo test -p hami-share --test lease -- --nocapture` prints what the values achieve. "Doubled
//! or halved" in a field's text refers to these scenes.

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// The durations of the lease, in nanoseconds, and one percentage.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    // Leases.
    /// A lease while one or two parties are active on the card. A handover costs about 0.2 ms, so 1
    /// % of it.
    pub lease: u64,
    /// A round of all parties if there are more: each waits at most for about this long.
    pub round: u64,
    /// The shortest lease of a round, however many parties there are. For as long a party with nothing
    /// to do keeps a lease that it has together with others: longer than the host takes between two
    /// tokens.
    pub shortest: u64,
    /// How long before its end a lease is prolonged if its holder is also the next one. The holder
    /// reads the new end before it stops.
    pub ahead: u64,
    /// The least that a lease costs which its holder gives up. Without it, a slice with many short
    /// pauses ends its neighbour's leases for nothing: the 99th percentile of a token beside a
    /// trainer was 2 ms with it and 22 ms without.
    pub least_bill: u64,
    /// The longest time between two steps while a card is leased.
    pub look: u64,

    // Which slices take part.
    /// A process counts as active for this long after it last waited or worked. So the pauses
    /// between two kernels do not change which slices share the card.
    pub active: u64,
    /// A slice that gave up a lease because it had nothing to do counts as one with pauses for this
    /// long: twice `active`, so that it still does when it returns.
    pub pauses: u64,
    /// The greatest age of the heartbeat of a process whose work runs. Heartbeats come every
    /// millisecond, so an older one means that the process was stopped.
    pub silent: u64,
    /// How long a process may take to answer a lease. A wake-up takes less than 0.2 ms on an idle
    /// machine; a stopped process keeps the card for no longer than this.
    pub answer: u64,

    // Work in flight.
    /// In flight beside slices that always have more work: two intervals between events, one that
    /// runs and one that waits. Parties have the lease together while the one that had more, over its
    /// weight, is ahead by no more than this; with 2 to 16 ms each is served the same.
    pub depth: u64,
    /// In flight of slices without a share while one with a share is present, but idle. The driver
    /// shares the card then, so a kernel of 5 ms takes 15 ms beside two other slices. With less, its
    /// slice loses 2 points to slices with shorter kernels.
    pub metered: u64,
    /// In flight beside a slice with pauses, which waits for it when it returns. Doubled, a decode
    /// beside a trainer loses a tenth of its time.
    pub shallow: u64,
    /// In flight while no other slice has a process on the card. A program that queues work and then
    /// stalls for 60 ms keeps the card busy; a newcomer waits at most for this much work.
    pub alone_depth: u64,
    /// The longest time between two events of a stream whose kernels are shorter. An event costs
    /// about 1 us.
    pub interval: u64,
    /// The longest pause of a process with a hard share that has the card alone.
    pub pause: u64,

    // Reports of a process.
    /// How often a process sends a heartbeat while it has work or waits. See `silent`.
    pub heartbeat: u64,
    /// How long the holder of a lease keeps it with nothing in flight: longer than a program takes
    /// from the end of a kernel that it has waited for to the next launch.
    pub linger: u64,
    /// How long after the end of its lease a process waits for the next grant. If the lease was not
    /// revoked by then, the coordinator is late, and the process goes on.
    pub handover: u64,

    // Work that goes on after its lease.
    /// How long others wait for it: longer than kernels take. Then the driver shares the card.
    pub drain: u64,
    /// The same for work that was launched without permission, because the queue may have any
    /// length.
    pub backlog: u64,
    /// How long a slice with pauses waits for the work of a soft slice, which runs without a lease.
    /// Then the driver shares the card: the slice would otherwise wait for each long kernel (a
    /// decode beside kernels of 20 ms had 7 % of the card instead of 42 %).
    pub overlap: u64,
    /// Work that has made no progress for this long counts as stalled, and so does work that has
    /// made none for twice the longest time seen. It may wait for a launch that waits, so launches
    /// go on: first one, then two, then four, with twice the time between them.
    pub stall: u64,
    /// How long a launch of unknown cost may take. One of another such function waits for so long
    /// behind it, one of the same function twice as long. A program with long kernels otherwise
    /// fills the driver's queue while its first kernel runs.
    pub unknown: u64,

    // The ledger.
    /// The most that a slice, or a process by its own bucket, saves up while it does not use its
    /// share. The 95th percentile of a server's answers beside a trainer is 0.28 times that of the
    /// driver's time slices (hard 50 %, median of six sequences of requests); with 25, 50 and 200 ms
    /// it is 0.65, 0.44 and 0.25 times. The programs are those of `test_a_server_beside_a_trainer`
    /// (`tests/share/test_latency.py`).
    pub saved: u64,
    /// The most that a hard slice is owed for waiting.
    pub claim: u64,
    /// The most that a slice or a process owes. Long kernels of many streams at once are paid back
    /// in full, and still a wrong measurement cannot stop a process for ever.
    pub debt: u64,
    /// How far a slice may be ahead of the least served one; the rest is forgiven.
    pub lead: u64,
    /// The part of its waiting time that a slice of a lower priority gets, in percent.
    pub low_floor: u64,
    /// The most that it saves up of this.
    pub low_saved: u64,
}

/// The values in use.
pub const TIMING: Timing = Timing {
    lease: 20 * MS,
    round: 68 * MS,
    shortest: 5 * MS,
    ahead: MS,
    least_bill: MS,
    look: 10 * MS,
    active: 100 * MS,
    pauses: 200 * MS,
    silent: 10 * MS,
    answer: 5 * MS,
    depth: 4 * MS,
    metered: 40 * MS,
    shallow: MS,
    alone_depth: 64 * MS,
    interval: 2 * MS,
    pause: 30 * MS,
    heartbeat: MS,
    linger: 50 * US,
    handover: 500 * US,
    drain: 4_000 * MS,
    backlog: 20 * MS,
    overlap: 200 * US,
    stall: 10 * MS,
    unknown: 500 * MS,
    saved: 100 * MS,
    claim: 2_000 * MS,
    debt: 60_000 * MS,
    lead: 4_000 * MS,
    low_floor: 2,
    low_saved: 50 * MS,
};

impl Default for Timing {
    fn default() -> Self {
        TIMING
    }
}

const _: () = assert!(TIMING.ahead < TIMING.shortest && TIMING.shortest < TIMING.lease);
const _: () = assert!(TIMING.shallow <= TIMING.depth && TIMING.depth <= TIMING.alone_depth);
const _: () = assert!(5 * TIMING.heartbeat < TIMING.silent);
const _: () = assert!(TIMING.backlog < TIMING.drain && TIMING.active < TIMING.pauses);
