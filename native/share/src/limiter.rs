//! The limiter inside one process: how much of a card it has used, and when it may launch again.
//!
//! The interposer meters launches in batches of about 2 ms, with an event before and after each. Of a
//! batch that is done, [`bill`] says how much of it the engine worked rather than waited for the host,
//! [`Busy`] how much of that was not yet counted (streams overlap), [`Wall`] how much can have been at
//! all, and [`Bucket`] whether the process may go on. [`Costs`] remembers what kernels took, for the
//! sizes of batches and for the bill.
//!
//! Credit comes by the clock and the debt is carried, so a late wake-up or a kernel that ran too long is
//! made good later: both change when the process works, not how much.

mod batch;
mod bucket;
mod busy;
mod costs;
mod wall;

pub use batch::{BATCH_NS, LARGEST_BATCH, batch_size, bill, fits, idle};
pub use bucket::{Bucket, DEBT_NS, SAVED_NS, WHOLE_PPM};
pub use busy::Busy;
pub use costs::Costs;
pub use wall::Wall;
