//! The compute share: which launches may go, and what they are billed.
//!
//! A launch's way: two words say whether it has to pass at all ([`door`]); a ticket lets it pass
//! unasked ([`ticket`]); else it comes to the [`gate`], where it joins a batch between two events of ours
//! or opens one ([`batch`], [`events`]). To open one it waits at the card's limiter ([`card`]) until the
//! [`verdict`] is that there is credit or a turn; what the process has there and owes is its [`state`].
//!
//! The [`meter`] sees batches through: what each worked ([`flight`]), and how much of that no other stream
//! had ([`timelines`]), also at the [`exit`]. Streams that capture ([`capture`]) and contexts that end
//! ([`contexts`]) are left alone.
//!
//! Where neither the slice nor a neighbour has a share nothing here runs, but in slices inside one
//! another, whose door is always shut.

pub(crate) mod capture;
pub(crate) mod contexts;
pub(crate) mod door;
pub(crate) mod gate;
pub(crate) mod shape;
pub(crate) mod ticket;

pub(crate) mod batch;
mod card;
mod events;
mod exit;
mod flight;
mod meter;
mod outstanding;
mod sleep;
mod state;
mod timelines;
mod verdict;
