//! Charging around a call that allocates, and before a refusal the memory that this process keeps
//! without use.

use driver_sys::cuda::{CUDA_ERROR_OUT_OF_MEMORY, CUresult};
use hami_account::Requester;
use vgpu_driver::real::{Outcome, check};

use crate::limited::{Card, Limited};
use crate::pools::{self, Busy};

/// How much of the card the driver takes for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// The requested bytes.
    Exactly,
    /// Whole granules, if the request is large ([`Card::rounding`]).
    InGranules,
}

impl Taken {
    /// The bytes that the driver takes beyond a request.
    #[inline]
    pub(crate) fn rounding(self, card: &Card, bytes: u64) -> u64 {
        match self {
            Self::Exactly => 0,
            Self::InGranules => card.rounding(bytes),
        }
    }
}

/// Memory that the driver has allocated.
pub struct Allocated {
    /// Its address on the card, or its handle.
    pub key: u64,
    /// How many bytes the program gets.
    pub bytes: u64,
}

/// Charges `expected`, calls the driver, and corrects the charge to what the driver has allocated.
/// If that does not fit, `undo` frees it. The bytes that are returned are charged, with what the
/// driver has `taken` beyond them.
#[inline]
pub(crate) fn reserve(
    limited: &'static Limited,
    card: &Card,
    taken: Taken,
    expected: u64,
    call: impl FnOnce() -> CUresult,
    allocated: impl FnOnce() -> Allocated,
    undo: impl Fn(u64) -> CUresult,
) -> Outcome<Allocated> {
    let expected = expected.saturating_add(taken.rounding(card, expected));
    if expected != 0 {
        charge(limited, card, expected)?;
    }
    if let Err(error) = check(call()) {
        if expected != 0 {
            limited.uncharge(card, expected);
        }
        return Err(error);
    }
    let allocated = allocated();
    let rounding = taken.rounding(card, allocated.bytes);
    let actual = allocated.bytes.saturating_add(rounding);
    if actual > expected && charge(limited, card, actual - expected).is_err() {
        undo(allocated.key);
        limited.uncharge(card, expected);
        return Err(CUDA_ERROR_OUT_OF_MEMORY);
    }
    if actual < expected {
        limited.uncharge(card, expected - actual);
    }
    if rounding != 0 {
        limited.add_driver_memory(card, rounding);
    }
    Ok(allocated)
}

/// Uncharges memory, and what the driver had taken beyond it.
#[inline]
pub(crate) fn uncharge(limited: &Limited, card: &Card, bytes: u64, rounding: u64) {
    if rounding != 0 {
        limited.remove_driver_memory(card, rounding);
    }
    limited.uncharge(card, bytes + rounding);
}

/// Charges a card. If that is refused, memory that this process keeps without use is freed first.
pub(crate) fn charge(limited: &'static Limited, card: &Card, bytes: u64) -> Outcome {
    if limited.charge(card, bytes, Requester::Library) {
        return Ok(());
    }
    pools::trim(limited, card, Busy::Wait);
    let charged = limited.charge(card, bytes, Requester::Program);
    if charged { Ok(()) } else { Err(CUDA_ERROR_OUT_OF_MEMORY) }
}
