//! One slice on one card.

use super::book::{Book, Claims, limit};
use super::process::Process;
use super::{RowView, State};
use crate::{Grant, Kind, Priority, Regime};

/// How a card is shared between those who are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sharing {
    /// As the driver does it; nobody asks.
    #[default]
    Open,
    /// A slice with a share is there, but not active: those without one launch as they like, but ask,
    /// so that little of theirs is queued when it becomes active.
    Metered,
    /// One is active: who has the turn launches.
    Turns,
}

#[derive(Debug)]
pub(super) struct Row {
    /// The card's place among all cards.
    pub card: usize,
    pub regime: Regime,
    pub sharing: Sharing,
    /// When the first turn ended that it launched as it liked.
    pub metered_until: Option<u64>,
    /// What is published.
    pub grant: Grant,
    pub book: Book,
    /// The queue of the card that it stands in: it wants the card and its bucket allows it.
    pub queue: Option<Priority>,
    /// It has come and had no turn yet.
    pub newcomer: bool,
    pub last_served: u64,
    /// Since when it has wanted the card.
    pub asked_at: Option<u64>,
    was_active: bool,
    used_ns: u64,
    /// Billed before it was told: the time for which work went on without a turn.
    advanced_ns: u64,
    /// In the order of their slots.
    pub processes: Vec<Process>,
    /// The least that a queued process of it has been served.
    least_served: u64,
}

impl Row {
    pub fn new(now: u64, seen: &RowView) -> Self {
        let mut row = Self {
            card: 0,
            regime: seen.regime,
            sharing: Sharing::Open,
            metered_until: None,
            grant: seen.published,
            book: Book::new(),
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
        row.hear(now, seen);
        row
    }

    /// Takes in what the files say, and bills what was used.
    pub fn absorb(&mut self, now: u64, passed: u64, seen: &RowView) {
        let overdue = self.processes.iter().any(Process::is_overdue);
        let in_turns = self.sharing == Sharing::Turns;
        let has_backlog = in_turns && self.processes.iter().any(Process::runs_backlog);
        let told = self.hear(now, seen);
        self.regime = seen.regime;
        let growth =
            if has_backlog { told.max(passed) } else { self.growth(told, passed, overdue) };
        let runs = self.processes.iter().any(Process::runs);
        self.book.bill(growth, passed, runs, in_turns);
        let active = self.is_active(now);
        self.newcomer = active && (self.newcomer || !self.was_active);
        self.was_active = active;
        self.asked_at = self.wants().then(|| self.asked_at.unwrap_or(now));
        self.queue_processes();
    }

    /// What to bill, where all that runs is measured in the end. Who keeps others waiting beyond its
    /// turn pays for that time by the clock, told or not; what it tells of it later is paid.
    fn growth(&mut self, told: u64, passed: u64, overdue: bool) -> u64 {
        let known = told.min(self.advanced_ns);
        self.advanced_ns -= known;
        let growth = told - known;
        if !overdue || growth >= passed {
            return growth;
        }
        self.advanced_ns += passed - growth;
        passed
    }

    /// Takes in what the processes say: how much engine time that is, with what those who have died
    /// can tell no more.
    fn hear(&mut self, now: u64, seen: &RowView) -> u64 {
        let asks = self.sharing != Sharing::Open || limit(self.regime).is_some();
        let in_turns = self.sharing == Sharing::Turns;
        let mut used = seen.departed_ns;
        let (mut told, mut untold) = (0_u64, 0_u64);
        self.processes.iter_mut().for_each(|process| process.heard = false);
        for process in &seen.processes {
            used = used.saturating_add(process.used_ns);
            let known = self.processes.binary_search_by_key(&process.slot, |known| known.said.slot);
            let known = match known {
                Ok(at) => &mut self.processes[at],
                Err(at) => {
                    self.processes.insert(at, Process::new(now, process, asks));
                    continue;
                }
            };
            let left = known.left_untold(now);
            if !known.is(process) {
                untold = untold.saturating_add(left);
                known.succeed(now, process, asks);
                continue;
            }
            let growth = known.hear(now, process, asks);
            if process.dead {
                untold = untold.saturating_add(left);
            } else {
                told = told.saturating_add(growth);
            }
            if in_turns {
                known.served = known.served.saturating_add(growth);
            }
        }
        let gone = self.processes.extract_if(.., |process| !process.heard);
        untold = gone.fold(untold, |sum, gone| sum.saturating_add(gone.left_untold(now)));
        // While a slot is reaped its time may for a moment be missing, or be there twice; the bill
        // allows no more than the time that passed. What was told of the dead is in the sum, too.
        let growth = used.saturating_sub(self.used_ns);
        self.used_ns = used;
        growth.max(told.saturating_add(untold))
    }

    /// A process that comes starts where the least served one of its slice is.
    fn queue_processes(&mut self) {
        let queued = self.processes.iter().filter(|process| process.busy);
        let least = queued.map(|process| process.served).min();
        self.least_served = least.unwrap_or(0).max(self.least_served);
        for process in &mut self.processes {
            let busy = process.said.state != State::Idle;
            if busy && !process.busy {
                process.served = process.served.max(self.least_served);
            }
            process.busy = busy;
        }
    }

    pub fn credit(&mut self, now: u64, passed: u64, turn: Option<Kind>) {
        let claims = match turn {
            Some(Kind::Alone) => Claims::Drop,
            _ if self.sharing != Sharing::Turns || !self.is_active(now) => Claims::Drop,
            None if self.queue.is_some() && self.wants() => Claims::Grow,
            _ => Claims::Keep,
        };
        self.book.credit(self.regime, passed, claims);
    }

    /// A living process of it is there, whatever it does.
    pub fn is_present(&self) -> bool {
        self.processes.iter().any(|process| !process.said.dead)
    }

    /// It has had more than its share: whoever comes has to wait, also if those who had it are gone.
    pub fn owes(&self) -> bool {
        !self.book.is_open(self.regime, 0)
    }

    pub fn is_active(&self, now: u64) -> bool {
        self.active(now).next().is_some()
    }

    pub fn active(&self, now: u64) -> impl Iterator<Item = u16> {
        let active = self.processes.iter().filter(move |process| process.is_active(now));
        active.map(|process| process.said.slot)
    }

    pub fn only_active(&self, now: u64) -> Option<u16> {
        let mut active = self.active(now);
        active.next().filter(|_| active.next().is_none())
    }

    /// Whether the slice owes more than this process has ever used. Its own bucket knows of its own
    /// debts alone, so that of a process before it has to be waited for here: else a loop of short
    /// programs would begin without debt each time.
    pub fn owes_for_others(&self, slot: u16) -> bool {
        let own = self.processes.iter().find(|process| process.said.slot == slot);
        let used = own.map_or(0, |process| process.said.used_ns);
        self.owes() && self.book.balance_ns().unsigned_abs() > used
    }

    /// Engine time that it may yet tell of, beyond what is billed: of kernels that take long, or wait.
    pub fn untold(&self, now: u64) -> u64 {
        let longest = self.processes.iter().map(|process| process.untold(now)).max();
        longest.unwrap_or(0).saturating_sub(self.advanced_ns)
    }

    /// A process waits for the card.
    pub fn wants(&self) -> bool {
        self.processes.iter().any(Process::wants)
    }

    /// A process works on the card.
    pub fn runs(&self) -> bool {
        self.processes.iter().any(Process::runs)
    }
}
