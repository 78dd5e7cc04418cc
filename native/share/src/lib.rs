//! How a card's time is shared: the arithmetic, without a card.
//!
//! A share is percent of a card's *engine time*: the time in which the card's compute engine was
//! busy with kernels of the slice. Two programs account for it. Inside each limited process, the
//! interposer measures its kernels and admits launches as the share allows ([`pace`], [`own`]). Outside,
//! one coordinator per runtime directory leases the cards that several slices use: [`lease`]. All
//! durations are in [`timing`].
//!
//! | on the card | the launches are limited by |
//! |---|---|
//! | one process | its *own bucket*: credit is share × wall clock, debit is measured engine time, and debt is carried. A soft share does not bind while the coordinator reports that the process is alone |
//! | several processes, and a slice with a share below 100 is active | the coordinator, by *leases* |
//! | the same, without a coordinator | each process's own bucket, soft shares included; the processes of a slice divide its share |
//! | several processes, and no slice with a share is active, but one has called `cuInit` | the driver; the work in flight of slices without a share is limited, so that little of it is queued when the slice with a share becomes active |
//! | no slice with a share | nothing; the driver |
//!
//! Of slices inside one another, the outermost one has the leases. The shares of the inner ones, and
//! those of HAMi's variables, are enforced by the own bucket, during leases too.
//!
//! This crate has no files, clocks or waits: callers pass the time, so every rule is tested with
//! exact times. `hami-coordinator` and the interposer call it. All instants are nanoseconds of one
//! monotonic clock, all durations nanoseconds.

mod bucket;
pub mod lease;
pub mod own;
pub mod pace;
#[cfg(test)]
mod prng;
pub mod timing;
mod wall;

pub use bucket::{Bucket, WHOLE_PPM};
pub use hami_limits::grants::{Grant, Holder, Kind};
pub use hami_limits::{Mode, Priority, Regime};
pub use wall::Wall;
