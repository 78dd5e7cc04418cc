//! How a card's time is shared: the arithmetic, without a card.
//!
//! A share is percent of a card's *engine time*: the time in which the card's compute engine was
//! busy with kernels of the slice. Two programs account for it. Inside each limited process, the
//! interposer measures its kernels and admits launches as the share allows: [`limiter`]. Outside,
//! one coordinator per runtime directory grants turns on the cards that several slices use:
//! [`turns`].
//!
//! | on the card | the launches are limited by |
//! |---|---|
//! | one process | its *own bucket*: credit is share × wall clock, debit is measured engine time, and debt is carried. A soft share does not bind while the coordinator reports that the process is alone |
//! | several processes, and a slice with a share below 100 is active | the coordinator, in *turns* |
//! | the same, without a coordinator | each process's own bucket, soft shares included; the processes of a slice divide its share |
//! | several processes, and no slice with a share is active, but one has called `cuInit` | the driver; launches of slices without a share are metered, so that little of their work is queued when the slice with a share becomes active |
//! | no slice with a share | nothing; the driver |
//!
//! Slices inside one another take turns by the outermost one. The shares of the inner ones, and
//! those of HAMi's variables, are enforced by the own bucket, during turns too.
//!
//! Not in use yet: [`lease`], one mechanism that is to replace both. It runs on the simulated machine of
//! `tests/lease`.
//!
//! This crate has no files, clocks or waits: callers pass the time, so every rule is tested with
//! exact times. `hami-coordinator` and the interposer call it. All instants are nanoseconds of one
//! monotonic clock, all durations nanoseconds.

pub mod lease;
pub mod limiter;
#[cfg(test)]
mod prng;
mod timing;
pub mod turns;

pub use hami_limits::grants::{Grant, Holder, Kind};
pub use hami_limits::{Mode, Priority, Regime};
pub use timing::{TIMING, Timing};
