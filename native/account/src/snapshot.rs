//! The account, read from outside without trusting the processes of the slice.
//!
//! Those processes can write anything into the file, truncate it or replace it. So it is read once
//! into a private buffer, and every number is checked before it is used. A snapshot is not of one
//! instant: the processes continue while it is being read.

use crate::compute::Compute;
use crate::identity::ProcessIdentity;
use crate::layout::{
    CARDS, ComputeSums, ComputeWords, Counters, FILE, HIGH, Header, Layout, Record, SHARED, SLOTS,
    Shared, SharedCharge, SharedTable, Slot, TAKEN, UNIT, Word,
};
use crate::reap::{boot_ms, is_awaited};
use crate::slot_lock::is_held;
use hami_limits::{FileError, file};
use std::fs::File;
use std::io::ErrorKind;
use std::mem::{offset_of, size_of};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The memory and time that one process of a slice uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessUse {
    /// The process.
    pub identity: ProcessIdentity,
    /// False once it has died.
    pub alive: bool,
    /// Bytes per card, including the driver's own. Memory that processes share is shown for the one
    /// that has exported it, or else for one that has imported it.
    pub memory: [u64; CARDS],
    /// The bytes of `memory` per card that the driver has taken for itself.
    pub driver_memory: [u64; CARDS],
    /// Refused charges per card.
    pub refusals: [u64; CARDS],
    /// Its engine times per card.
    pub compute: [Compute; CARDS],
}

/// The memory and time that a slice uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// All members, in the order of their slots.
    pub processes: Vec<ProcessUse>,
    /// Bytes per card that a request finds in use. So the memory of a dead process does not count
    /// while a request waits for it: until two seconds after its death was noticed.
    pub used: [u64; CARDS],
    /// The bytes of `used` per card that no process is charged, and that the driver was measured to
    /// hold for them.
    pub measured: [u64; CARDS],
    /// The most bytes per card that were in use since the account was created. A request that was
    /// withdrawn beside a granted one may count.
    pub peak: [u64; CARDS],
    /// Refused charges per card, including processes that have exited.
    pub refusals: [u64; CARDS],
    /// Engine time per card in nanoseconds, including processes that have exited.
    pub used_ns: [u64; CARDS],
    /// The time per card, in nanoseconds, for which threads waited to launch, including processes
    /// that have exited.
    pub throttled_ns: [u64; CARDS],
    /// Subtractions that would have gone below zero. Any other number than 0 is a bug.
    pub anomalies: u64,
}

impl Snapshot {
    /// Checks that a file is an account, without its numbers.
    pub fn check(path: &Path) -> Result<(), FileError> {
        let mut head = [0; 16];
        read_at(path, &open(path)?, &mut head, 0)?;
        FILE.check_head(path, &head)
    }

    /// Reads an account.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let file = open(path)?;
        let mut bytes = vec![0; size_of::<Layout>()];
        let read = |bytes: &mut [u8], at: usize, length: usize| {
            read_at(path, &file, &mut bytes[at..at + length], at)
        };
        read(&mut bytes, 0, offset_of!(Layout, records))?;
        FILE.check_head(path, &bytes)?;
        // Of the slots only those that were used: an account has hundreds of KiB, and the node agent
        // reads those of all containers every second.
        let slots = u32_at(&bytes, offset_of!(Header, high_water)) as usize;
        if slots > SLOTS {
            return Err(FILE.damaged(path, "its high-water mark is beyond its last slot"));
        }
        read(&mut bytes, offset_of!(Layout, records), slots * size_of::<Record>())?;
        for card in 0..CARDS {
            read(&mut bytes, compute_words(card, 0), slots * size_of::<ComputeWords>())?;
        }
        let shared = (u32_at(&bytes, offset_of!(Header, shared_high)) & HIGH) as usize;
        let shared = shared.min(SHARED);
        for (at, size) in [(CHARGES, size_of::<u64>()), (ENTRIES, size_of::<Shared>())] {
            read(&mut bytes, at, shared * size)?;
        }
        let fd = file.as_raw_fd();
        decode(&bytes, slots, shared, |slot| is_held(fd, slot)).map_err(|r| FILE.damaged(path, r))
    }
}

fn open(path: &Path) -> Result<File, FileError> {
    let io_error = |e| FILE.io(path, e);
    let file = file::open(path, false).map_err(io_error)?;
    let metadata = file.metadata().map_err(io_error)?;
    FILE.check_size(path, metadata.is_file(), metadata.len())?;
    Ok(file)
}

fn read_at(path: &Path, file: &File, bytes: &mut [u8], at: usize) -> Result<(), FileError> {
    match file.read_exact_at(bytes, at as u64) {
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => Err(FILE.wrong_size(path)),
        read => read.map_err(|e| FILE.io(path, e)),
    }
}

/// Where the table of shared allocations has the charges and the other words.
const CHARGES: usize = offset_of!(Layout, shared) + offset_of!(SharedTable, charges);
const ENTRIES: usize = offset_of!(Layout, shared) + offset_of!(SharedTable, entries);

/// A shared allocation.
struct Share {
    charge: SharedCharge,
    /// The slots of the processes that have it.
    holders: Vec<Slot>,
    /// The slot of the process for which it is shown.
    shown: Option<Slot>,
}

impl Share {
    fn read(bytes: &[u8], index: usize) -> Self {
        let charge = SharedCharge::of(u64_at(bytes, CHARGES + index * size_of::<u64>()));
        let at = ENTRIES + index * size_of::<Shared>();
        let bits = |slot| u64_at(bytes, at + offset_of!(Shared, holders) + slot / 64 * 8);
        let is_holder = |slot: &Slot| bits(slot.index()) >> (slot.index() % 64) & 1 != 0;
        let holders: Vec<_> = Slot::all().filter(is_holder).collect();
        let exporter = Slot::new(u32_at(bytes, at + offset_of!(Shared, exporter)));
        let has_it = |slot: &Slot| holders.is_empty() || holders.contains(slot);
        let shown = exporter.filter(has_it).or_else(|| holders.first().copied());
        Self { charge, holders, shown }
    }

    /// Whether only these processes have it.
    fn is_only_of(&self, dead: &[bool; SLOTS]) -> bool {
        !self.holders.is_empty() && self.holders.iter().all(|slot| dead[slot.index()])
    }
}

fn decode(
    bytes: &[u8],
    slots: usize,
    shared: usize,
    alive: impl Fn(usize) -> bool,
) -> Result<Snapshot, &'static str> {
    let (mut refusals, mut anomalies) = counters(bytes, offset_of!(Header, departed));
    let mut used = [0_u64; CARDS];
    let departed = offset_of!(Header, departed_compute);
    let mut used_ns = u64s(bytes, departed + offset_of!(ComputeSums, used_ns));
    let mut throttled_ns = u64s(bytes, departed + offset_of!(ComputeSums, throttled_ns));
    let mut processes = Vec::new();
    let entries = (0..shared).map(|index| Share::read(bytes, index));
    let entries: Vec<_> = entries.filter(|share| share.charge.units != 0).collect();
    let (now, mut awaited) = (boot_ms(), [false; SLOTS]);
    for (slot, awaited) in awaited.iter_mut().enumerate().take(slots) {
        let at = offset_of!(Layout, records) + slot * size_of::<Record>();
        let state = u32_at(bytes, at + offset_of!(Record, state));
        if state > TAKEN {
            return Err("one of its slots has an invalid state");
        }
        let own = std::array::from_fn(|card| held(bytes, card, slot));
        let mut memory = own;
        for share in
            entries.iter().filter(|share| share.shown.is_some_and(|shown| shown.index() == slot))
        {
            memory[share.charge.card] += share.charge.units * UNIT;
        }
        let driver_memory = std::array::from_fn(|card| driver_memory(bytes, card, slot));
        let (own_refusals, own_anomalies) = counters(bytes, at + offset_of!(Record, counters));
        add(&mut refusals, &own_refusals);
        anomalies = anomalies.saturating_add(own_anomalies);
        let compute = std::array::from_fn(|card| compute(bytes, card, slot));
        add(&mut used_ns, &compute.map(|card| card.used_ns));
        add(&mut throttled_ns, &compute.map(|card| card.throttled_ns));
        if state == TAKEN {
            let identity = ProcessIdentity {
                pid: u32_at(bytes, at + offset_of!(Record, pid)),
                start_time: u64_at(bytes, at + offset_of!(Record, start_time)),
                pid_namespace: u64_at(bytes, at + offset_of!(Record, pid_namespace)),
            };
            if identity.pid > i32::MAX as u32 {
                return Err("one of its processes has an invalid pid");
            }
            let noticed = u64_at(bytes, at + offset_of!(Record, dead_since));
            // A process that reaps a dead one holds its locks for a moment.
            let alive = noticed == 0 && alive(slot);
            *awaited = !alive && (noticed == 0 || is_awaited(noticed, now));
            let refusals = own_refusals;
            processes.push(ProcessUse {
                identity,
                alive,
                memory,
                driver_memory,
                refusals,
                compute,
            });
        }
        if !*awaited {
            add(&mut used, &own);
        }
    }
    for share in entries.iter().filter(|share| !share.is_only_of(&awaited)) {
        let used = &mut used[share.charge.card];
        *used = used.saturating_add(share.charge.units * UNIT);
    }
    let measured = u64s(bytes, offset_of!(Header, measured));
    add(&mut used, &measured);
    // What is measured may have grown since the last request.
    let mut peak = u64s(bytes, offset_of!(Header, peak));
    peak.iter_mut().zip(used).for_each(|(peak, used)| *peak = used.max(*peak));
    Ok(Snapshot { processes, used, measured, peak, refusals, used_ns, throttled_ns, anomalies })
}

fn held(bytes: &[u8], card: usize, slot: usize) -> u64 {
    let word = offset_of!(Layout, words) + (card * SLOTS + slot) * size_of::<u64>();
    Word(u64_at(bytes, word)).committed() * UNIT
}

fn counters(bytes: &[u8], at: usize) -> ([u64; CARDS], u64) {
    let refusals = at + offset_of!(Counters, refusals);
    (u64s(bytes, refusals), u64_at(bytes, at + offset_of!(Counters, anomalies)))
}

fn driver_memory(bytes: &[u8], card: usize, slot: usize) -> u64 {
    let at = compute_words(card, slot) + offset_of!(ComputeWords, driver_memory);
    // A plausible bound: it is a part of what is held.
    u64_at(bytes, at).min(held(bytes, card, slot))
}

/// The offset of the words of a process for a card.
fn compute_words(card: usize, slot: usize) -> usize {
    offset_of!(Layout, compute) + (card * SLOTS + slot) * size_of::<ComputeWords>()
}

fn compute(bytes: &[u8], card: usize, slot: usize) -> Compute {
    let at = compute_words(card, slot);
    Compute {
        used_ns: u64_at(bytes, at + offset_of!(ComputeWords, used_ns)),
        throttled_ns: u64_at(bytes, at + offset_of!(ComputeWords, throttled_ns)),
        debt_ns: u64_at(bytes, at + offset_of!(ComputeWords, debt_ns)),
        active_at: u64_at(bytes, at + offset_of!(ComputeWords, active_at)),
    }
}

fn u64s(bytes: &[u8], at: usize) -> [u64; CARDS] {
    std::array::from_fn(|card| u64_at(bytes, at + card * size_of::<u64>()))
}

fn add(sums: &mut [u64; CARDS], values: &[u64; CARDS]) {
    for (sum, value) in sums.iter_mut().zip(values) {
        // False numbers may overflow.
        *sum = sum.saturating_add(*value);
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(number)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(number)
}
