//! Memory whose size only the driver tells: what it takes for a call is known after the call.
//!
//! So the charge is raised before a call to what the program will then have requested, and set
//! afterwards to what the driver reports.

use driver_sys::cuda::CUDA_ERROR_OUT_OF_MEMORY;
use vgpu_driver::real::Outcome;

use crate::limited::{Card, Limited};

/// Such memory.
pub(crate) trait Reported {
    /// The bytes that it has of its card now; `None` if the driver does not report it.
    fn reserved(&self) -> Option<u64>;
    /// Returns to the card what it does not use.
    fn trim(&self);
}

/// The bytes that are charged for it, in whole units of the account, which rounds every charge up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Charge(u64);

impl Charge {
    pub const NONE: Self = Self(0);

    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Whether it is enough for this many bytes.
    pub fn covers(self, bytes: u64) -> bool {
        bytes <= self.0
    }

    /// Raises the charge to `wanted`. If that is refused, unused memory is returned to the card
    /// first, also of others by `make_room`; this may also lower `wanted`.
    pub fn raise(
        &mut self,
        of: &impl Reported,
        limited: &'static Limited,
        card: &Card,
        wanted: impl Fn() -> u64,
        make_room: impl FnOnce(&Card),
    ) -> Outcome {
        let target = whole_units(wanted());
        if target <= self.0 {
            return Ok(());
        }
        if limited.try_charge(card, target - self.0) {
            self.0 = target;
            return Ok(());
        }
        self.shrink(of, limited, card);
        make_room(card);
        let target = whole_units(wanted());
        if target > self.0 {
            if !limited.charge(card, target - self.0) {
                return Err(CUDA_ERROR_OUT_OF_MEMORY);
            }
            self.0 = target;
        }
        Ok(())
    }

    /// Sets the charge to what the memory has of its card. Returns false if that is more than can be
    /// charged; the charge is then unchanged.
    pub fn follow(&mut self, of: &impl Reported, limited: &Limited, card: &Card) -> bool {
        of.reserved().is_none_or(|reserved| self.set(limited, card, reserved))
    }

    /// Sets the charge. Returns false if it cannot be raised.
    pub fn set(&mut self, limited: &Limited, card: &Card, bytes: u64) -> bool {
        let target = whole_units(bytes);
        if target < self.0 {
            limited.uncharge(card, self.0 - target);
        } else if target > self.0 && !limited.try_charge(card, target - self.0) {
            return false;
        }
        self.0 = target;
        true
    }

    /// Sets the charge, whatever the limit is: the driver has taken the memory already.
    pub fn force(&mut self, limited: &Limited, card: &Card, bytes: u64) {
        let target = whole_units(bytes);
        if target > self.0 && limited.force_charge(card, target - self.0) {
            self.0 = target;
        }
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
