//! The page as the limited program sees it: whose turn it is, and waiting for another.

use super::layout::{FILE, Grant, Layout, Row, SIZE};
use crate::file::FileError;
use crate::futex;
use crate::mapped::{self, Mapping, Opened};
use crate::page::MAX_ROWS;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A grants page mapped read-only. No file descriptor is kept.
///
/// What remains is a file that is cut short after it was mapped: reading it kills the program. In a
/// container it is mounted read-only; elsewhere page and program belong to the same user.
#[derive(Debug)]
pub struct GrantsView {
    map: Mapping,
}

impl GrantsView {
    /// Checks the page and maps it.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let file = open_checked(path, false)?;
        let map = file.map(SIZE, libc::PROT_READ).map_err(|e| FILE.io(path, e))?;
        Ok(Self { map })
    }

    /// What is granted on the card of `row` now, if anybody coordinates: see [`Self::pulse`]. For a
    /// row that no page has, what nobody wrote: [`super::Kind::Own`].
    #[inline]
    pub fn grant(&self, row: usize) -> Grant {
        self.row(row).map_or(Grant::default(), Row::read)
    }

    /// When the coordinator was last seen, in nanoseconds of `CLOCK_MONOTONIC`; 0 is never. Older
    /// than [`super::SILENCE_NS`]: no grant of the page counts.
    #[inline]
    pub fn pulse(&self) -> u64 {
        u64::from_le(layout(&self.map).pulse.load(Ordering::Relaxed))
    }

    /// 1 while launches of this slice have to ask because of a neighbour, to be loaded (relaxed) in
    /// the path of every launch.
    #[inline]
    pub fn regulated(&self) -> &AtomicU32 {
        &layout(&self.map).regulated
    }

    /// The turn of a row, to be loaded (relaxed) or waited for. Rows that no page has share the last.
    #[inline]
    pub fn turn_word(&self, row: usize) -> &AtomicU32 {
        layout(&self.map).rows[row.min(MAX_ROWS - 1)].turn_word()
    }

    /// Sleeps until the row has another turn than `seen_turn` or anything else was written there, at
    /// most about `timeout`; may return early.
    pub fn wait(&self, row: usize, seen_turn: u32, timeout: Duration) {
        futex::wait(self.turn_word(row), seen_turn.to_le(), timeout);
    }

    fn row(&self, row: usize) -> Option<&Row> {
        layout(&self.map).rows.get(row)
    }
}

pub(super) fn layout(map: &Mapping) -> &Layout {
    // SAFETY: both views map SIZE bytes, page-aligned; all fields that are accessed are atomics.
    unsafe { map.at(0) }
}

/// Opens the file if it is a whole page.
pub(super) fn open_checked(path: &Path, write: bool) -> Result<Opened<'_>, FileError> {
    let refused = |e| FILE.io(path, e);
    let file = mapped::open(path, write).map_err(refused)?;
    let metadata = file.metadata().map_err(refused)?;
    if !metadata.is_file() || metadata.len() != SIZE as u64 {
        return Err(FILE.wrong_size(path));
    }
    let mut head = [0; 16];
    file.read_exact_at(&mut head, 0).map_err(refused)?;
    FILE.check_head(&head).map_err(|reason| FILE.damaged(path, reason))?;
    Ok(file)
}
