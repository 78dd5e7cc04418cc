//! How a card's time is shared: the arithmetic, without the card.
//!
//! Two programs reckon with time. Inside each limited process the interposer meters its kernels and
//! lets launches through as its share allows: [`limiter`]. Outside, one coordinator per runtime
//! directory hands out turns on the cards where several want to work: [`turns`]. Both are here without files, clocks
//! and waiting, so that every rule can be tried with exact times; those who call bring the time along.
//!
//! All instants are nanoseconds of one monotonic clock, all durations nanoseconds.

pub mod limiter;
#[cfg(test)]
mod prng;
pub mod turns;

pub use hami_limits::grants::{Grant, Holder, Kind};
pub use hami_limits::{Mode, Priority, Regime};
