//! Batches: the launches of one thread on one stream between two events of ours.
//!
//! A batch is closed right behind its last launch, before other work can get into the stream. If
//! the program does something else before the batch is full, the meter closes it a little later. A
//! closed batch is in flight until the card has reached its second event.

mod contents;
pub(crate) mod flight;
mod open_batch;
pub(crate) mod thread;
