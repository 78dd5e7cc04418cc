//! The page in the coordinator, which writes the grants.

use super::layout::{FILE, Grant, GrantRow};
use super::reader::{layout, open_checked};
use crate::file::FileError;
use crate::futex;
use crate::mapped::Mapping;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::Ordering;

/// A grants page, mapped for writing. The coordinator is its only writer.
#[derive(Debug)]
pub struct GrantsPage {
    map: Mapping,
}

impl GrantsPage {
    /// Creates the page of a new slice, without grants and without a coordinator. The file must not
    /// exist; its mode is 0644 less the umask.
    pub fn create(path: &Path) -> Result<Self, FileError> {
        FILE.create(path, 0o644, &FILE.head())?;
        Self::open(path)
    }

    /// Opens a page for writing. Grants of an earlier coordinator are kept.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        open_checked(path, libc::PROT_READ | libc::PROT_WRITE).map(|map| Self { map })
    }

    /// The grant of a row; [`super::Kind::Own`] for a row that no page has.
    pub fn grant(&self, row: usize) -> Grant {
        self.row(row).map_or(Grant::default(), GrantRow::read)
    }

    /// Stores a grant and wakes the processes that wait for the row. A row that no page has is
    /// ignored.
    ///
    /// If number, kind or holder differ from the old grant, the old lease loses its holder with the
    /// first store. If only `until` differs, the lease is prolonged and keeps its holder throughout.
    pub fn set(&self, row: usize, grant: Grant) {
        if let Some(row) = self.row(row) {
            row.write(grant);
            futex::wake_all(row.number_word());
        }
    }

    /// Writes the coordinator's pulse: `now` in nanoseconds of `CLOCK_MONOTONIC`, or 0 to say that
    /// there is no coordinator any more.
    pub fn set_pulse(&self, now: u64) {
        layout(&self.map).pulse.store(now.to_le(), Ordering::Release);
    }

    /// Sets whether launches of the slice need admission because of a neighbour.
    pub fn set_regulated(&self, regulated: bool) {
        layout(&self.map).regulated.store(u32::from(regulated).to_le(), Ordering::Release);
    }

    /// Stores that the driver has freed the memory of the process that joined the account at this
    /// time. A slot that no account has is ignored.
    pub fn set_departed(&self, slot: usize, joined_at: u64) {
        if let Some(departed) = layout(&self.map).departed.get(slot) {
            departed.store(joined_at.to_le(), Ordering::Release);
        }
    }

    /// Stores the time of the last complete sweep, in nanoseconds of `CLOCK_MONOTONIC`; 0 is never.
    /// All departures that it found must have been stored before.
    pub fn set_swept_at(&self, now: u64) {
        layout(&self.map).swept_at.store(now.to_le(), Ordering::Release);
    }

    /// The addresses of the mapping, for a process that must survive a truncated file.
    pub fn mapped_at(&self) -> Range<usize> {
        self.map.range()
    }

    pub(super) fn row(&self, row: usize) -> Option<&GrantRow> {
        layout(&self.map).rows.get(row)
    }
}
