//! One card: who is active there, and the queues of those who want it.

use std::mem::take;

use super::book::limit;
use super::row::{Row, Sharing};
use super::slice::Slice;
use crate::{Priority, Regime};

#[derive(Debug, Default)]
pub(super) struct Card {
    /// Slice and row of everybody who has a row for it.
    pub members: Vec<(usize, usize)>,
    pub sharing: Sharing,
    pub active_slices: u64,
    pub active_processes: usize,
    /// What the shares of the active slices leave of the card, in thousandths of a percent, and how
    /// many have none.
    left: u64,
    unlimited: u64,
    /// By priority: the least that anybody in the queue has been served. Those who come start there,
    /// so it never falls.
    floor: [u64; 3],
    /// The slice that has it.
    pub holder: Option<usize>,
    /// Slices that are just losing a grant which they may use: nobody else gets the card before another
    /// look has shown whether they have used it meanwhile.
    pub losers: Vec<usize>,
    /// Slices whose work runs there without a turn.
    pub overdue: Vec<usize>,
    /// Who wants the card and comes first waits for it until then: a shorter turn may come before.
    pub claimed: Option<u64>,
}

impl Card {
    pub fn new() -> Self {
        Self { left: 100_000, ..Self::default() }
    }

    /// Forgets all but the queues.
    pub fn clear(&mut self) {
        let mut members = take(&mut self.members);
        members.clear();
        *self = Self { floor: self.floor, members, ..Self::new() };
    }

    pub fn add(&mut self, slice: usize, r: usize, row: &Row, now: u64) {
        self.members.push((slice, r));
        let active = row.active(now).count();
        if limit(row.regime).is_some() && row.is_present() {
            let sharing = if active > 0 { Sharing::Turns } else { Sharing::Metered };
            self.sharing = self.sharing.max(sharing);
        }
        if active == 0 {
            return;
        }
        self.active_slices += 1;
        self.active_processes += active;
        match limit(row.regime) {
            Some(share) => self.left = self.left.saturating_sub(share * 1_000),
            None => self.unlimited += 1,
        }
    }

    /// How it is shared with one of its rows.
    pub fn sharing_with(&self, row: &Row) -> Sharing {
        match self.sharing {
            Sharing::Turns => Sharing::Turns,
            // Nobody else has to care, but who comes has to wait.
            _ if row.owes() => Sharing::Turns,
            Sharing::Metered if limit(row.regime).is_none() => Sharing::Metered,
            // Its own bucket is all that holds a share.
            _ => Sharing::Open,
        }
    }

    /// What a share weighs: those without one divide what the others leave.
    pub fn weight(&self, regime: Regime) -> u64 {
        match limit(regime) {
            Some(share) => share * 1_000,
            None => (self.left / self.unlimited.max(1)).max(1_000),
        }
    }

    /// Puts everybody who wants the card, and may have it, in the queue of its priority.
    pub fn line_up(&mut self, now: u64, slices: &mut [Slice]) {
        let mut least = [u64::MAX; 3];
        let mut comes = Vec::new();
        for &(s, r) in &self.members {
            let row = &mut slices[s].rows[r];
            let wants = row.is_active(now) && (row.wants() || row.runs());
            let queue =
                Some(row.regime.priority).filter(|_| wants && row.book.is_open(row.regime, 0));
            if queue.is_some() && queue == row.queue {
                let least = &mut least[class(row.regime.priority)];
                *least = row.book.served.min(*least);
            } else if queue.is_some() {
                comes.push((s, r));
            }
            row.queue = queue;
        }
        for (floor, least) in self.floor.iter_mut().zip(least) {
            if least < u64::MAX {
                *floor = least.max(*floor);
            }
        }
        for (s, r) in comes {
            let row = &mut slices[s].rows[r];
            row.book.queue(self.floor(row.regime.priority), row.newcomer);
        }
        for &(s, r) in &self.members {
            let row = &mut slices[s].rows[r];
            if row.queue.is_some() {
                row.book.forgive(self.floor(row.regime.priority));
            }
        }
    }

    pub fn floor(&self, priority: Priority) -> u64 {
        self.floor[class(priority)]
    }
}

fn class(priority: Priority) -> usize {
    match priority {
        Priority::Low => 0,
        Priority::Normal => 1,
        Priority::High => 2,
    }
}
