//! Who lives in the slice, as one of its own processes asks.
//!
//! A process of the slice may be told about its neighbours by somebody else, NVML say, who knows
//! all processes of the machine by pid and nothing of slices. Here are the pids that belong.
//!
//! Unlike a [`crate::Snapshot`] this reads the mapping, one number after the other, and copies
//! nothing: a process that joins or ends meanwhile may be in or out.

use crate::account::Account;
use crate::identity::own_namespace;
use crate::layout::{CARDS, SLOTS, TAKEN, UNIT, Word};
use std::sync::atomic::Ordering;

/// A living member of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Living {
    /// Its pid, in the PID namespace that it shares with the caller.
    pub pid: u32,
    /// The bytes that it holds on the card that was asked for.
    pub bytes: u64,
}

impl Account {
    /// The living members that the calling process can name: those in its own PID namespace. A
    /// card that no account has is nobody's.
    ///
    /// Costs a probe of a lock for each of them. Where locks cannot be probed, all count as alive.
    pub fn living(&self, card: usize) -> impl Iterator<Item = Living> {
        let namespace = own_namespace();
        let records = &self.layout().records;
        let is_here =
            move |slot: usize| records[slot].pid_namespace.load(Ordering::Relaxed) == namespace;
        let dead = self.find_dead(is_here);
        (0..SLOTS)
            .filter(move |slot| {
                records[*slot].state.load(Ordering::Acquire) == TAKEN
                    && is_here(*slot)
                    && !dead[*slot]
            })
            .map(move |slot| Living {
                pid: records[slot].pid.load(Ordering::Relaxed),
                bytes: self.held_in(slot, card),
            })
    }

    fn held_in(&self, slot: usize, card: usize) -> u64 {
        if card >= CARDS {
            return 0;
        }
        Word(self.layout().words[card][slot].load(Ordering::Relaxed)).committed() * UNIT
    }
}
