//! The page inside the limited program: reading grants, and waiting for other ones.

use super::layout::{FILE, Grant, GrantRow, Layout, SIZE};
use crate::file::FileError;
use crate::futex;
use crate::mapped::{self, Mapping};
use crate::page::MAX_ROWS;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

/// A grants page mapped read-only. No file descriptor is kept.
///
/// If the file is truncated after it was mapped, reading it kills the program. In a container it is
/// mounted read-only; elsewhere page and program belong to the same user.
#[derive(Debug)]
pub struct GrantsView {
    map: Mapping,
}

impl GrantsView {
    /// Checks the page and maps it.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        open_checked(path, libc::PROT_READ).map(|map| Self { map })
    }

    /// The grant for the card of `row`. It counts only while the pulse is recent ([`Self::pulse`]).
    /// For a row that no page has it is [`super::Kind::Own`].
    #[inline]
    pub fn grant(&self, row: usize) -> Grant {
        self.row(row).map_or(Grant::default(), GrantRow::read)
    }

    /// The time of the coordinator's last pulse, in nanoseconds of `CLOCK_MONOTONIC`; 0 is never.
    /// If it is older than [`super::SILENCE_NS`], no grant of the page counts.
    #[inline]
    pub fn pulse(&self) -> u64 {
        u64::from_le(layout(&self.map).pulse.load(Ordering::Relaxed))
    }

    /// The word that is 1 while launches of this slice need admission because of a neighbour.
    /// Every launch loads it (relaxed).
    #[inline]
    pub fn regulated(&self) -> &AtomicU32 {
        &layout(&self.map).regulated
    }

    /// The number of a row's grant, to be loaded (relaxed) or waited on. Rows that no page has share the last
    /// row's.
    #[inline]
    pub fn number_word(&self, row: usize) -> &AtomicU32 {
        layout(&self.map).rows[row.min(MAX_ROWS - 1)].number_word()
    }

    /// The time of the last complete sweep, in nanoseconds of `CLOCK_MONOTONIC`; 0 is never. If it
    /// is older than [`super::SWEEP_SILENCE_NS`], [`Self::departed`] says nothing.
    pub fn swept_at(&self) -> u64 {
        let swept_at = u64::from_le(layout(&self.map).swept_at.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        swept_at
    }

    /// The `joined_at` of the last process in this slot of the account whose memory the driver has
    /// freed; 0 if there is none, and for a slot that no account has.
    pub fn departed(&self, slot: usize) -> u64 {
        let departed = layout(&self.map).departed.get(slot);
        departed.map_or(0, |joined_at| u64::from_le(joined_at.load(Ordering::Relaxed)))
    }

    /// Sleeps until the number of the row's grant is another than `seen_number`, or the row was written, or about
    /// `timeout` has passed. It may return early.
    pub fn wait(&self, row: usize, seen_number: u32, timeout: Duration) {
        futex::wait(self.number_word(row), seen_number.to_le(), timeout);
    }

    fn row(&self, row: usize) -> Option<&GrantRow> {
        layout(&self.map).rows.get(row)
    }
}

pub(super) fn layout(map: &Mapping) -> &Layout {
    // SAFETY: both views map SIZE bytes, page-aligned; all fields that are accessed are atomics.
    unsafe { map.at(0) }
}

/// Maps the file if it is a valid page.
pub(super) fn open_checked(path: &Path, access: libc::c_int) -> Result<Mapping, FileError> {
    let refused = |e| FILE.io(path, e);
    let file = mapped::open(path, access & libc::PROT_WRITE != 0).map_err(refused)?;
    let metadata = file.metadata().map_err(refused)?;
    FILE.check_size(path, metadata.is_file(), metadata.len())?;
    let mut head = [0; 16];
    file.read_exact_at(&mut head, 0).map_err(refused)?;
    FILE.check_head(path, &head)?;
    file.map(SIZE, access).map_err(refused)
}
