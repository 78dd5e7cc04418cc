//! Allocations that several processes hold. A card counts their bytes once.
//!
//! The bytes are charged to the client that has held the allocation longest. When that client drops
//! it or ends, they move to the next one at the same instant, so the card's total stays the same.
//!
//! Exported descriptors keep an allocation that no client holds. Its bytes are then charged to the
//! client that has exported it, while that client lives. Nothing reports the close of a descriptor,
//! so [`Ledger::settle`] asks before each use of the ledger.

use super::{ClientId, Kind, Ledger, NotHeld};
use crate::Refusal;
use std::fmt;
use std::sync::Arc;

/// What identifies a shared allocation in all processes: the inode of the memory file that has its
/// bytes, and the offset there.
pub type ObjectId = [u64; 2];

/// A shared allocation.
#[derive(Clone, Debug)]
pub struct SharedRecord {
    /// Its card.
    pub card: usize,
    /// Its bytes.
    pub bytes: u64,
    /// Who holds it, oldest first; the first one is charged.
    pub holders: Vec<ClientId>,
    /// Who has exported it. Without holders, it is charged.
    pub exporter: Option<Exporter>,
}

/// A client that has exported an allocation.
#[derive(Clone, Debug)]
pub struct Exporter {
    client: ClientId,
    probe: Probe,
}

/// Tells whether an exported descriptor is open.
#[derive(Clone)]
pub struct Probe(Arc<dyn Fn() -> bool + Send + Sync>);

impl Probe {
    /// A probe that asks a function.
    pub fn new(is_open: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(is_open))
    }

    fn is_open(&self) -> bool {
        (self.0)()
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Probe")
    }
}

impl SharedRecord {
    fn of(client: ClientId, card: usize, bytes: u64) -> Self {
        Self { card, bytes, holders: vec![client], exporter: None }
    }

    /// The client that is charged.
    fn owner(&self) -> Option<ClientId> {
        let exporter = self.exporter.as_ref().map(|exporter| exporter.client);
        self.holders.first().copied().or(exporter)
    }
}

impl Ledger {
    /// Makes a shared allocation of bytes that were charged to a client as [`Kind::Requested`].
    pub fn share(
        &mut self,
        client: ClientId,
        card: usize,
        object: ObjectId,
        bytes: u64,
    ) -> Result<(), NotHeld> {
        let rounding = self.cards[card].rounding(Kind::Requested, bytes);
        let held = &self.clients[client.0].holdings[card];
        let is_held = held.holds(Kind::Requested, bytes, rounding);
        if !is_held || self.shared.contains_key(&object) {
            return Err(NotHeld);
        }
        self.shared.insert(object, SharedRecord::of(client, card, bytes));
        Ok(())
    }

    /// Adds a client to those that hold a shared allocation. If there is none, it is created and
    /// its `bytes` are charged; with 0 bytes it must exist.
    pub fn hold(
        &mut self,
        client: ClientId,
        card: usize,
        object: ObjectId,
        bytes: u64,
    ) -> Result<(), Refusal> {
        if let Some(record) = self.shared.get_mut(&object) {
            let before = record.owner();
            record.holders.push(client);
            self.kept.remove(&object);
            self.charge_again(object, before);
            return Ok(());
        }
        if bytes == 0 {
            return Err(Refusal::Unknown);
        }
        self.charge(client, card, Kind::Requested, bytes)?;
        self.shared.insert(object, SharedRecord::of(client, card, bytes));
        Ok(())
    }

    /// Records that a client has exported a shared allocation, which it holds.
    pub fn export(
        &mut self,
        client: ClientId,
        object: ObjectId,
        probe: Probe,
    ) -> Result<(), NotHeld> {
        let record = self.shared.get_mut(&object).ok_or(NotHeld)?;
        if !record.holders.contains(&client) {
            return Err(NotHeld);
        }
        record.exporter.get_or_insert(Exporter { client, probe });
        Ok(())
    }

    /// Frees what descriptors have kept, and keep no longer; returns whether there was any.
    pub fn settle(&mut self) -> bool {
        let is_over = |object: &&ObjectId| {
            let exporter = self.shared.get(*object).and_then(|record| record.exporter.as_ref());
            exporter.is_none_or(|exporter| !exporter.probe.is_open())
        };
        let over: Vec<_> = self.kept.iter().filter(is_over).copied().collect();
        for object in &over {
            self.forget(*object);
        }
        !over.is_empty()
    }

    /// Moves the bytes of a shared allocation from an owner to its present one.
    fn charge_again(&mut self, object: ObjectId, before: Option<ClientId>) {
        let Some(record) = self.shared.get(&object) else { return };
        let (card, bytes, owner) = (record.card, record.bytes, record.owner());
        if owner == before {
            return;
        }
        // The bytes leave before they come back, so that no peak contains them twice.
        let rounding = self.cards[card].rounding(Kind::Requested, bytes);
        if let Some(before) = before {
            self.each(before, card, |holding| holding.take(Kind::Requested, bytes, rounding));
        }
        if let Some(owner) = owner {
            self.each(owner, card, |holding| holding.add(Kind::Requested, bytes, rounding));
        }
    }

    /// Frees a shared allocation that nobody holds.
    fn forget(&mut self, object: ObjectId) {
        self.kept.remove(&object);
        let before = self.shared.get_mut(&object).and_then(|record| {
            let before = record.owner();
            record.exporter = None;
            before
        });
        self.charge_again(object, before);
        self.shared.remove(&object);
    }

    /// Removes a client from those that hold a shared allocation. The last one frees it, unless a
    /// descriptor keeps it.
    pub fn drop_hold(&mut self, client: ClientId, object: ObjectId) -> Result<(), NotHeld> {
        let record = self.shared.get_mut(&object).ok_or(NotHeld)?;
        let position = record.holders.iter().position(|holder| *holder == client);
        let before = record.owner();
        record.holders.remove(position.ok_or(NotHeld)?);
        let is_kept = record.exporter.as_ref().is_some_and(|exporter| exporter.probe.is_open());
        if record.holders.is_empty() && is_kept {
            self.kept.insert(object);
        } else if record.holders.is_empty() {
            record.exporter = None;
        }
        self.charge_again(object, before);
        if self.shared.get(&object).is_some_and(|record| record.owner().is_none()) {
            self.shared.remove(&object);
        }
        Ok(())
    }

    /// Removes a client that has ended from all shared allocations.
    pub(super) fn drop_all_holds(&mut self, client: ClientId) {
        let is_own = |exporter: &Exporter| exporter.client == client;
        let exported: Vec<_> = self
            .shared
            .iter()
            .filter(|(_, record)| record.exporter.as_ref().is_some_and(is_own))
            .map(|(object, _)| *object)
            .collect();
        for object in exported {
            if self.kept.contains(&object) {
                self.forget(object);
            } else if let Some(record) = self.shared.get_mut(&object) {
                record.exporter = None;
            }
        }
        let held: Vec<_> = self
            .shared
            .iter()
            .flat_map(|(object, record)| {
                let times = record.holders.iter().filter(|holder| **holder == client).count();
                std::iter::repeat_n(*object, times)
            })
            .collect();
        for object in held {
            // It was just found there.
            let _ = self.drop_hold(client, object);
        }
    }
}
