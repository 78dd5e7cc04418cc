//! The limiter inside a process: how much of a card it has used, and when it may launch again.
//!
//! The interposer measures launches in batches of about 2 ms, with an event before and after each
//! one. When a batch has ended, [`bill`] estimates how long the engine worked for it rather than
//! waited for the host, [`Busy`] how much of that time other streams had not used already, and
//! [`Wall`] how much of it is possible at all. [`Bucket`] then decides whether the process may
//! continue. [`Costs`] learns how long kernels take, for the sizes of batches and for the bill.
//!
//! Credit comes by the clock and debt is carried, so a late wake-up or a kernel that runs too long
//! is made up for later: both change when the process works, not how much.

mod batch;
mod bucket;
mod busy;
mod costs;
mod wall;

pub use batch::{BATCH_NS, LARGEST_BATCH, LONGEST_TURN_NS, batch_size, bill, fits, idle, window};
pub use bucket::{Bucket, DEBT_NS, SAVED_NS, WHOLE_PPM};
pub use busy::Busy;
pub use costs::Costs;
pub use wall::Wall;
