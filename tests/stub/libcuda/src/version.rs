//! The driver's CUDA version.
//!
//! `make stub` links this library again for older versions (`tests/stub/link-older-driver`). Each of
//! these has the exports of its time and a number of its own, which replaces the weak one here.

use crate::process::cards;
use std::arch::global_asm;
use stub_engine::symbols::NEWEST;

global_asm!(
    ".pushsection .rodata.STUB_CUDA_VERSION,\"a\"",
    ".weak STUB_CUDA_VERSION",
    ".balign 4",
    "STUB_CUDA_VERSION:",
    ".long {newest}",
    ".popsection",
    newest = const NEWEST,
);

unsafe extern "C" {
    /// The version of this library.
    safe static STUB_CUDA_VERSION: i32;
}

/// The driver's version: the first card's, if its profile has one; otherwise this library's. `None`
/// without cards.
pub fn of_driver() -> Option<i32> {
    cards().first().map(|card| card.profile.cuda_version.unwrap_or(STUB_CUDA_VERSION))
}
