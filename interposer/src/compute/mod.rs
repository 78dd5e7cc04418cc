//! The compute share: which launches may go, and what they are billed.
//!
//! A launch's way: two words say whether it has to pass at all ([`door`]); a ticket lets it pass
//! unasked ([`ticket`]); else it comes to the [`gate`], where the card's limiter ([`card`]) makes it wait
//! for credit or a turn, and where it joins or opens a batch between two events of ours ([`batch`],
//! [`events`]). The [`meter`] bills batches that have ended. Streams that capture ([`capture`]) and
//! contexts that end ([`contexts`]) are left alone.
//!
//! Nothing here runs in a program whose slice has no share and no neighbour with one.

pub(crate) mod capture;
pub(crate) mod contexts;
pub(crate) mod door;
pub(crate) mod gate;
pub(crate) mod shape;
pub(crate) mod ticket;

pub(crate) mod batch;
mod card;
mod events;
mod meter;
mod outstanding;
#[cfg(test)]
mod rides;
mod sleep;
