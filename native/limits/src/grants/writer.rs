//! The page as the coordinator sees it: grants are written here, one stored word each.

use super::layout::{FILE, Grant, Row, SIZE};
use super::reader::{layout, open_checked};
use crate::file::FileError;
use crate::futex;
use crate::mapped::Mapping;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::Ordering;

/// A grants page, mapped for writing. It has one writer at a time: the coordinator.
#[derive(Debug)]
pub struct GrantsPage {
    map: Mapping,
}

impl GrantsPage {
    /// Makes the page of a new slice: nothing is granted, nobody coordinates. The file must not
    /// exist; its mode is 0644 less the umask.
    pub fn create(path: &Path) -> Result<Self, FileError> {
        FILE.create(path, 0o644, &FILE.head())?;
        Self::open(path)
    }

    /// Opens a page to write grants. What an earlier coordinator wrote is kept.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let file = open_checked(path, true)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let map = file.map(SIZE, access).map_err(|e| FILE.io(path, e))?;
        Ok(Self { map })
    }

    /// What the row says; [`super::Kind::Own`] for one that no page has.
    pub fn grant(&self, row: usize) -> Grant {
        self.row(row).map_or(Grant::default(), Row::read)
    }

    /// Grants, and wakes whoever waits for the row. A row that no page has is left alone.
    ///
    /// From the first store on, the old turn is nobody's, so it is not for making a turn longer
    /// (where turn, kind and holder stay, only `until` changes, and nothing is closed).
    pub fn set(&self, row: usize, grant: Grant) {
        if let Some(row) = self.row(row) {
            row.write(grant);
            futex::wake_all(row.turn_word());
        }
    }

    /// Says that the coordinator lives, at `now` in nanoseconds of `CLOCK_MONOTONIC`; 0 says that
    /// nobody coordinates any more.
    pub fn set_pulse(&self, now: u64) {
        layout(&self.map).pulse.store(now.to_le(), Ordering::Release);
    }

    /// Says whether launches of the slice have to ask because of a neighbour.
    pub fn set_regulated(&self, regulated: bool) {
        layout(&self.map).regulated.store(u32::from(regulated).to_le(), Ordering::Release);
    }

    /// Where it is mapped, for a process that has to live with a file that is cut short meanwhile.
    pub fn mapped_at(&self) -> Range<usize> {
        self.map.range()
    }

    pub(super) fn row(&self, row: usize) -> Option<&Row> {
        layout(&self.map).rows.get(row)
    }
}
