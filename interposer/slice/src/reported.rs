//! Memory whose size only the driver tells: what it takes for a call is known after the call.
//!
//! So the charge is raised before a call to the most that it may then have, and set afterwards to
//! what the driver reports.

use driver_sys::cuda::CUDA_ERROR_OUT_OF_MEMORY;
use hami_account::Requester;
use vgpu_driver::real::Outcome;

use crate::limited::{Card, Limited};

/// Such memory.
pub(crate) trait Reported {
    /// The bytes that it has of its card now; `None` if the driver does not report it.
    fn reserved(&self) -> Option<u64>;
    /// Returns to the card what it does not use.
    fn trim(&self);
}

/// What is charged for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Charge {
    /// In whole units of the account, which rounds every charge up.
    pub bytes: u64,
    /// Bytes at the end of the newest chunk that no request has had yet.
    pub spare: u64,
}

impl Charge {
    pub const NONE: Self = Self { bytes: 0, spare: 0 };

    /// Raises the charge to what is `wanted` beside a charge. If that is refused, unused memory is
    /// returned to the card first, also of others by `make_room`; this may also lower `wanted`.
    pub fn raise(
        &mut self,
        of: &impl Reported,
        limited: &'static Limited,
        card: &Card,
        wanted: impl Fn(u64) -> u64,
        make_room: impl FnOnce(&Card, u64),
    ) -> Outcome {
        if self.set(limited, card, wanted(self.bytes).max(self.bytes)) {
            return Ok(());
        }
        make_room(card, self.bytes);
        self.shrink(of, limited, card);
        let target = whole_units(wanted(self.bytes));
        if target > self.bytes {
            if !limited.charge(card, target - self.bytes, Requester::Program) {
                return Err(CUDA_ERROR_OUT_OF_MEMORY);
            }
            self.bytes = target;
        }
        Ok(())
    }

    /// Sets the charge to what the memory has of its card. Returns false if that is over the limit.
    pub fn follow(&mut self, of: &impl Reported, limited: &Limited, card: &Card) -> bool {
        of.reserved().is_none_or(|reserved| self.set_taken(limited, card, reserved))
    }

    /// As [`Self::set`], but the driver has taken the memory already: it is charged in any case.
    pub fn set_taken(&mut self, limited: &Limited, card: &Card, bytes: u64) -> bool {
        let is_within = self.set(limited, card, bytes);
        let target = whole_units(bytes);
        if !is_within && limited.force_charge(card, target - self.bytes) {
            self.bytes = target;
        }
        is_within
    }

    /// Sets the charge. Returns false if it cannot be raised.
    pub fn set(&mut self, limited: &Limited, card: &Card, bytes: u64) -> bool {
        let target = whole_units(bytes);
        if target < self.bytes {
            limited.uncharge(card, self.bytes - target);
            self.spare = 0;
        } else if target > self.bytes
            && !limited.charge(card, target - self.bytes, Requester::Library)
        {
            return false;
        }
        self.bytes = target;
        true
    }

    /// Returns unused memory to the card.
    pub fn shrink(&mut self, of: &impl Reported, limited: &Limited, card: &Card) {
        of.trim();
        self.follow(of, limited, card);
    }
}

/// Rounded up to whole units of the account.
fn whole_units(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(hami_account::UNIT).unwrap_or(u64::MAX)
}
