//! Allocations that several processes hold. A card counts their bytes once.
//!
//! The bytes are charged to the client that has held the allocation longest. When that client drops
//! it or ends, they move to the next one at the same instant, so the card's total stays the same.

use super::{ClientId, Kind, Ledger, NotHeld};
use crate::Refusal;

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
        self.shared.insert(object, SharedRecord { card, bytes, holders: vec![client] });
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
            record.holders.push(client);
            return Ok(());
        }
        if bytes == 0 {
            return Err(Refusal::Unknown);
        }
        self.charge(client, card, Kind::Requested, bytes)?;
        self.shared.insert(object, SharedRecord { card, bytes, holders: vec![client] });
        Ok(())
    }

    /// Removes a client from those that hold a shared allocation. The last one frees it.
    pub fn drop_hold(&mut self, client: ClientId, object: ObjectId) -> Result<(), NotHeld> {
        let record = self.shared.get_mut(&object).ok_or(NotHeld)?;
        let position = record.holders.iter().position(|holder| *holder == client);
        record.holders.remove(position.ok_or(NotHeld)?);
        let (card, bytes, next) = (record.card, record.bytes, record.holders.first().copied());
        if next.is_none() {
            self.shared.remove(&object);
        }
        let is_charged = position == Some(0);
        if is_charged && next != Some(client) {
            // The bytes leave before they come back, so that no peak contains them twice.
            let rounding = self.cards[card].rounding(Kind::Requested, bytes);
            self.each(client, card, |holding| holding.take(Kind::Requested, bytes, rounding));
            if let Some(next) = next {
                self.each(next, card, |holding| holding.add(Kind::Requested, bytes, rounding));
            }
        }
        Ok(())
    }

    /// Removes a client that has ended from all shared allocations.
    pub(super) fn drop_all_holds(&mut self, client: ClientId) {
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
