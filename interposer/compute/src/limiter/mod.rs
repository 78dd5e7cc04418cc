//! The limiter of a card: whether a batch of launches may begin, and what the process is billed.

pub(crate) mod card;
mod outstanding;
pub(crate) mod seats;
mod stall;
pub(crate) mod state;
pub(crate) mod verdict;
