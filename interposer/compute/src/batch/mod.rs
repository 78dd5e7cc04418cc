//! Batches: the launches of one thread on one stream, behind an event of ours and mostly before
//! another.
//!
//! The launching thread closes a batch right behind its last launch, or before its own other work
//! in the stream. No event is recorded later: in the default stream it would wait for all blocking
//! streams, and they for it. If the launches stop before the batch is full, it has no second event.
//! Then it ends when the program itself has waited for it, or when the driver reports to the meter
//! that the stream is done. A closed batch is in flight until the card has reached its end.

mod contents;
pub(crate) mod flight;
pub(crate) mod open_batch;
pub(crate) mod thread;
