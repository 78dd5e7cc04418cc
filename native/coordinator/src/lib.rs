//! The one process that hands out turns on the cards: its eyes and hands.
//!
//! Where slices share a card by time, a launch needs permission, and permissions must not overlap. So
//! one process per runtime directory looks at what the processes of all its slices say in their accounts, asks [`hami_share::turns`] whose turn it is, and writes that into
//! the slices' grants pages. Nobody sends it messages, and it keeps nothing: killed at any instant, it
//! leaves files that say everything the next one has to know, and after 50 ms of silence each process
//! keeps to its share by itself.
//!
//! ```text
//! <runtime>/slices/<id>/limits   ─┐
//!                       account  ─┼─► slice ─► View ─► Turns::step ─► Decision ─► grants pages
//!                       grants   ─┘     ▲                                 │
//!                                       └── wait: bells, until ◄──────────┘
//! ```
//!
//! It trusts no account: the programs of its slice write it, and may cut it short under the mapping
//! (`guard`). One thread does it all, and all its waits and clocks are libc's (`wait`), so that a test
//! can put another clock in their place.

mod coordinator;
mod guard;
mod slice;
mod slices;
mod wait;

pub use coordinator::coordinate;
