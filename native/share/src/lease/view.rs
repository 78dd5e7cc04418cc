//! The input of a step, read from the slices' files, and its output, to be published.

use crate::{Grant, Regime};
pub use hami_limits::grants::{ComputeState as State, Report};

/// All slices of a runtime directory, as their files are now.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// In any order. A slice that was removed or is damaged is left out: its lease ends at once.
    pub slices: Vec<SliceView>,
}

/// One slice.
#[derive(Clone, Debug, Default)]
pub struct SliceView {
    /// Identifies the slice. It is never reused for another one.
    pub key: u64,
    /// The gang that the slice belongs to: all slices of a gang have leases together. `None`
    /// for a slice by itself.
    pub gang: Option<u128>,
    /// Row i is row i of the slice's files; rows are appended, never moved.
    pub rows: Vec<SliceCardView>,
}

/// One card of a slice.
#[derive(Clone, Debug, Default)]
pub struct SliceCardView {
    /// Identifies the card; equal in all slices.
    pub card: u64,
    /// How the slice shares the card.
    pub regime: Regime,
    /// The grant on the grants page. It is read when the row is first seen: the numbers continue
    /// from it.
    pub published: Grant,
    /// The processes whose slots are taken, in any order.
    pub processes: Vec<ProcessView>,
}

/// One process on one card. None of it is trusted.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessView {
    /// Its slot in the account.
    pub slot: u16,
    /// Identifies the process: another one in the same slot has another number.
    pub id: u64,
    /// The state that it last reported.
    pub report: Report,
    /// When its meter last checked its work. A time in the future counts as now.
    pub active_at: u64,
    /// Whether it is dead, which means that its lock is free.
    pub dead: bool,
}

/// The changes to publish, and the time of the next step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// The `regulated` words that change, by slice; true if launches need admission. They are
    /// written before the grants.
    pub regulated: Vec<(u64, bool)>,
    /// The grants that change, in the order in which they are to be written: revoked ones come
    /// before new ones.
    pub grants: Vec<GrantUpdate>,
    /// The latest time of the next step, even without a wake-up; at once if it is not after now.
    /// `None`: a wake-up or a change of the slices will announce the next event.
    pub wake_at: Option<u64>,
}

/// The new grant of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantUpdate {
    /// [`SliceView::key`].
    pub slice: u64,
    /// The row.
    pub row: usize,
    /// The grant. Its number is one more than that of the previous grant.
    pub grant: Grant,
}
