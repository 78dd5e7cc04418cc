//! A card: the slices that are active on it, and the queues of slices that need it.

use std::mem::take;

use super::ledger::limit;
use super::party::PartyId;
use super::slice::{Sharing, Slice, SliceCard};
use crate::{Priority, Regime};

#[derive(Debug, Default)]
pub(super) struct Card {
    /// Slice and row of all slices that may use the card.
    pub members: Vec<(usize, usize)>,
    pub sharing: Sharing,
    /// The parties that are active on it, each once.
    pub parties: Vec<PartyId>,
    pub active_processes: usize,
    /// The part of the card that the shares of the active slices leave, in thousandths of a
    /// percent, and the number of active slices without a share.
    remaining: u64,
    without_share: u64,
    /// For each priority, the time of the least served slice in the queue. A slice that enters the
    /// queue starts with about this time, so it never decreases.
    floor: [u64; 3],
    /// The index of the party that has it.
    pub holder: Option<usize>,
    /// Parties whose usable grant is being revoked. No other party gets the card until another step
    /// has read whether they used the grant in the meantime.
    pub revoked: Vec<usize>,
    /// Parties whose work runs on the card without a turn.
    pub overdue: Vec<usize>,
    /// How many processes have work there for which others do not wait any more.
    pub stuck: u64,
    /// The card is reserved from this time on for the party that is next; a shorter turn of another
    /// party may come before.
    pub reserved_at: Option<u64>,
}

impl Card {
    pub fn new() -> Self {
        Self { remaining: 100_000, ..Self::default() }
    }

    /// Resets everything except the queues.
    pub fn reset(&mut self) {
        let mut members = take(&mut self.members);
        members.clear();
        *self = Self { floor: self.floor, members, ..Self::new() };
    }

    pub fn add(&mut self, at: (usize, usize), party: PartyId, row: &SliceCard, now: u64) {
        self.members.push(at);
        let active = row.active(now).count();
        if limit(row.regime).is_some() && row.is_present() {
            let sharing = if active > 0 { Sharing::Turns } else { Sharing::Metered };
            self.sharing = self.sharing.max(sharing);
        }
        if active == 0 {
            return;
        }
        if !self.parties.contains(&party) {
            self.parties.push(party);
        }
        self.active_processes += active;
        match limit(row.regime) {
            Some(share) => self.remaining = self.remaining.saturating_sub(share * 1_000),
            None => self.without_share += 1,
        }
    }

    /// How the card is shared with one of its slices.
    pub fn sharing_with(&self, row: &SliceCard) -> Sharing {
        match self.sharing {
            Sharing::Turns => Sharing::Turns,
            // Other slices are not affected, but new processes of this one have to wait.
            _ if row.owes() => Sharing::Turns,
            Sharing::Metered if limit(row.regime).is_none() => Sharing::Metered,
            // The process's own bucket enforces the share.
            _ => Sharing::Unregulated,
        }
    }

    /// The weight of a share. Slices without one divide what the shares leave.
    pub fn weight(&self, regime: Regime) -> u64 {
        match limit(regime) {
            Some(share) => share * 1_000,
            None => (self.remaining / self.without_share.max(1)).max(1_000),
        }
    }

    /// Enters every slice that needs the card, and may have it, into the queue of its priority.
    pub fn update_queues(&mut self, now: u64, slices: &mut [Slice]) {
        let mut least = [u64::MAX; 3];
        let mut entering = Vec::new();
        for &(s, r) in &self.members {
            let row = &mut slices[s].rows[r];
            let needs_card = row.is_active(now) && (row.waits() || row.is_running());
            let queue = Some(row.regime.priority)
                .filter(|_| needs_card && row.ledger.may_run(row.regime, 0));
            if queue.is_some() && queue == row.queue {
                let least = &mut least[class(row.regime.priority)];
                *least = row.ledger.served.min(*least);
            } else if queue.is_some() {
                entering.push((s, r));
            }
            row.queue = queue;
        }
        for (floor, least) in self.floor.iter_mut().zip(least) {
            if least < u64::MAX {
                *floor = least.max(*floor);
            }
        }
        for (s, r) in entering {
            let row = &mut slices[s].rows[r];
            row.ledger.enter_queue(self.floor(row.regime.priority));
        }
        for &(s, r) in &self.members {
            let row = &mut slices[s].rows[r];
            if row.queue.is_some() {
                row.ledger.forgive(self.floor(row.regime.priority));
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
