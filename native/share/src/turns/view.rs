//! What the coordinator reads, and what it then publishes.

use crate::{Grant, Regime};
pub use hami_limits::grants::ComputeState as State;

/// All slices of the machine, as their files are now.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// In any order. One that is gone or damaged is left out: its turn ends at once.
    pub slices: Vec<SliceView>,
}

/// One slice.
#[derive(Clone, Debug, Default)]
pub struct SliceView {
    /// Names the slice while it lives; never another's afterwards.
    pub key: u64,
    /// Row i is row i of the slice's files; rows are appended, never moved.
    pub rows: Vec<RowView>,
}

/// One card of a slice.
#[derive(Clone, Debug, Default)]
pub struct RowView {
    /// Names the card, alike in all slices.
    pub card: u64,
    /// How the slice shares the card.
    pub regime: Regime,
    /// What the grants page says. Looked at when the row is first seen: turn numbers go on from it.
    pub published: Grant,
    /// Engine time on this card of processes whose slots are free again.
    pub departed_ns: u64,
    /// Those whose slots are taken, in any order.
    pub processes: Vec<ProcessView>,
}

/// One process on one card. Nothing here is trusted.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessView {
    /// Its place in the account.
    pub slot: u16,
    /// Names the process: another in the same slot has another.
    pub id: u64,
    /// What it does.
    pub state: State,
    /// The grant that it had seen when it wrote its state.
    pub turn: u32,
    /// Its engine time so far.
    pub used_ns: u64,
    /// When its meter last looked at work of it; one in the future counts as now.
    pub active_at: u64,
    /// Its lock is free.
    pub dead: bool,
}

/// What to publish, and when to look again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// The `regulated` words that change, by slice, true where launches have to ask: to be written
    /// before the grants.
    pub regulated: Vec<(u64, bool)>,
    /// The rows whose grant changes, in the order in which they are to be written: what is taken away
    /// comes before what is given.
    pub grants: Vec<Publish>,
    /// When to look again at the latest, whether or not a bell rings; at once, where it is no later
    /// than now. `None`: a bell or a change of the slices will tell.
    pub wake_at: Option<u64>,
}

/// One row's new grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publish {
    /// [`SliceView::key`].
    pub slice: u64,
    /// The row.
    pub row: usize,
    /// What it says from now on; the turn number is one more than before.
    pub grant: Grant,
}
