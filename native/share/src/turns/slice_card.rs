//! A slice on one card: its processes, how it shares the card, and its ledger.

use super::ledger::{Ledger, Unused, limit};
use super::process::Process;
use super::{SliceCardView, State};
use crate::{Grant, Kind, Priority, Regime};

/// How a card is shared between the slices that are present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sharing {
    /// By the driver; launches need no permission.
    #[default]
    Unregulated,
    /// A slice with a share is present, but not active. Slices without a share launch as they like,
    /// but metered, so that little of their work is queued when it becomes active.
    Metered,
    /// A slice with a share is active: only the holder of the turn launches.
    Turns,
}

#[derive(Debug)]
pub(super) struct SliceCard {
    /// The index of the card among all cards.
    pub card: usize,
    pub regime: Regime,
    pub sharing: Sharing,
    /// When the time ended in which it launched metered, without turns.
    pub metered_until: Option<u64>,
    /// The published grant.
    pub grant: Grant,
    pub ledger: Ledger,
    /// The queue that it is in: it needs the card, and its balance allows it.
    pub queue: Option<Priority>,
    /// It has become active and had no turn yet.
    pub newcomer: bool,
    pub last_served: u64,
    /// When it began to wait for the card.
    pub asked_at: Option<u64>,
    was_active: bool,
    used_ns: u64,
    /// Billed before it was reported: the time for which work went on without a turn.
    advanced_ns: u64,
    /// In the order of their slots.
    pub processes: Vec<Process>,
    /// The least engine time of its queued processes.
    least_served: u64,
}

impl SliceCard {
    pub fn new(now: u64, seen: &SliceCardView) -> Self {
        let mut row = Self {
            card: 0,
            regime: seen.regime,
            sharing: Sharing::Unregulated,
            metered_until: None,
            grant: seen.published,
            ledger: Ledger::new(),
            queue: None,
            newcomer: false,
            last_served: 0,
            asked_at: None,
            was_active: false,
            used_ns: 0,
            advanced_ns: 0,
            processes: Vec::new(),
            least_served: 0,
        };
        row.read(now, seen);
        row
    }

    /// Reads the slice's files, and bills the time that was used.
    pub fn update(&mut self, now: u64, passed: u64, seen: &SliceCardView) {
        let overdue = self.processes.iter().any(Process::is_overdue);
        let in_turns = self.sharing == Sharing::Turns;
        let has_backlog = in_turns && self.processes.iter().any(Process::runs_backlog);
        let reported = self.read(now, seen);
        self.regime = seen.regime;
        let growth =
            if has_backlog { reported.max(passed) } else { self.growth(reported, passed, overdue) };
        let runs = self.processes.iter().any(Process::is_running);
        self.ledger.bill(growth, passed, runs, in_turns);
        let active = self.is_active(now);
        self.newcomer = active && (self.newcomer || !self.was_active);
        self.was_active = active;
        self.asked_at = self.is_waiting().then(|| self.asked_at.unwrap_or(now));
        self.queue_processes();
    }

    /// The time to bill, where all work is measured in the end. A process that makes others wait
    /// beyond its turn is billed for that time by the clock; what it reports of it later is already
    /// paid.
    fn growth(&mut self, reported: u64, passed: u64, overdue: bool) -> u64 {
        let known = reported.min(self.advanced_ns);
        self.advanced_ns -= known;
        let growth = reported - known;
        if !overdue || growth >= passed {
            return growth;
        }
        self.advanced_ns += passed - growth;
        passed
    }

    /// Reads the processes. It returns the engine time that they report, and that of dead processes
    /// that will not report it any more.
    fn read(&mut self, now: u64, seen: &SliceCardView) -> u64 {
        let metered = self.sharing != Sharing::Unregulated || limit(self.regime).is_some();
        let in_turns = self.sharing == Sharing::Turns;
        let mut used = seen.departed_ns;
        let (mut reported, mut unreported) = (0_u64, 0_u64);
        self.processes.iter_mut().for_each(|process| process.found = false);
        for process in &seen.processes {
            used = used.saturating_add(process.used_ns);
            let known = self.processes.binary_search_by_key(&process.slot, |known| known.last.slot);
            let known = match known {
                Ok(at) => &mut self.processes[at],
                Err(at) => {
                    self.processes.insert(at, Process::new(now, process, metered));
                    continue;
                }
            };
            let lost = known.unreported_at_death(now);
            if !known.is(process) {
                unreported = unreported.saturating_add(lost);
                known.replace(now, process, metered);
                continue;
            }
            let growth = known.read(now, process, metered);
            if process.dead {
                unreported = unreported.saturating_add(lost);
            } else {
                reported = reported.saturating_add(growth);
            }
            if in_turns {
                known.served = known.served.saturating_add(growth);
            }
        }
        let exited = self.processes.extract_if(.., |process| !process.found);
        unreported = exited
            .fold(unreported, |sum, exited| sum.saturating_add(exited.unreported_at_death(now)));
        // While a slot is reaped, its time may be missing or counted twice for a moment; the bill
        // allows no more than the time that passed. The sum also has the reported time of dead
        // processes.
        let growth = used.saturating_sub(self.used_ns);
        self.used_ns = used;
        growth.max(reported.saturating_add(unreported))
    }

    /// A new process starts with the time of the least served process of its slice.
    fn queue_processes(&mut self) {
        let queued = self.processes.iter().filter(|process| process.busy);
        let least = queued.map(|process| process.served).min();
        self.least_served = least.unwrap_or(0).max(self.least_served);
        for process in &mut self.processes {
            let busy = process.last.state != State::Idle;
            if busy && !process.busy {
                process.served = process.served.max(self.least_served);
            }
            process.busy = busy;
        }
    }

    pub fn credit(&mut self, now: u64, passed: u64, turn: Option<Kind>) {
        let unused = match turn {
            Some(Kind::Alone) => Unused::Capped,
            _ if self.sharing != Sharing::Turns || !self.is_active(now) => Unused::Capped,
            None if self.queue.is_some() && self.is_waiting() => Unused::Accumulates,
            _ => Unused::Stays,
        };
        self.ledger.credit(self.regime, passed, unused);
    }

    /// Whether it has a living process, whatever that does.
    pub fn is_present(&self) -> bool {
        self.processes.iter().any(|process| !process.last.dead)
    }

    /// Whether it has had more than its share. New processes have to wait, even if the others have
    /// exited.
    pub fn owes(&self) -> bool {
        !self.ledger.may_run(self.regime, 0)
    }

    pub fn is_active(&self, now: u64) -> bool {
        self.active(now).next().is_some()
    }

    pub fn active(&self, now: u64) -> impl Iterator<Item = u16> {
        let active = self.processes.iter().filter(move |process| process.is_active(now));
        active.map(|process| process.last.slot)
    }

    pub fn only_active(&self, now: u64) -> Option<u16> {
        let mut active = self.active(now);
        active.next().filter(|_| active.next().is_none())
    }

    /// Whether the slice owes more than this process has ever used. The process's own bucket has
    /// only its own debts, so the debts of processes before it are waited for here. Otherwise a
    /// loop of short programs would start without debt each time.
    pub fn owes_for_others(&self, slot: u16) -> bool {
        let own = self.processes.iter().find(|process| process.last.slot == slot);
        let used = own.map_or(0, |process| process.last.used_ns);
        self.owes() && self.ledger.balance_ns().unsigned_abs() > used
    }

    /// Engine time that it may still report beyond the billed time: of kernels that take long, or
    /// wait.
    pub fn unreported(&self, now: u64) -> u64 {
        let longest = self.processes.iter().map(|process| process.unreported(now)).max();
        longest.unwrap_or(0).saturating_sub(self.advanced_ns)
    }

    /// Whether a process waits for the card.
    pub fn is_waiting(&self) -> bool {
        self.processes.iter().any(Process::is_waiting)
    }

    /// Whether a process works on the card.
    pub fn is_running(&self) -> bool {
        self.processes.iter().any(Process::is_running)
    }
}
