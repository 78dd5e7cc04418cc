//! Batches: the launches of one thread on one stream, behind an event of ours and mostly before
//! another.
//!
//! The launching thread closes a batch right behind its last launch, or before its own other work
//! in the stream. Nobody records an event later: in the default stream it would wait for all
//! blocking streams, and they for it. If the launches stop before the batch is full, the meter asks
//! the driver whether the stream is done; or it knows, because the program itself has waited for it. A closed batch is in flight until the card has reached its
//! second event.

mod contents;
pub(crate) mod flight;
pub(crate) mod open_batch;
pub(crate) mod thread;
