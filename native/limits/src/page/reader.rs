//! The page as the limited program sees it: checked once, then one load per question.
//!
//! The file is untrusted input: its bytes are checked in a private buffer, and afterwards nothing
//! that is read from the mapping is used as an index or a length. What remains is a file that is cut
//! short after it was mapped: reading it kills the program. In a container the page is mounted
//! read-only, so a tenant cannot; elsewhere page and program belong to the same user.

use super::layout::{
    ACTIVE, Contents, FILE, MAX_ROWS, PAGE_SIZE, REGULATED, memory_limit_offset, regime_offset,
};
use super::writer::read_page;
use super::{Regime, Row, same_card};
use crate::file::FileError;
use crate::mapped::{self, Mapping};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// A limits page mapped read-only. Limits are always the ones now in force; the list of cards is
/// the one found when it was opened.
#[derive(Debug)]
pub struct LimitsView {
    map: Mapping,
    contents: Contents,
}

impl LimitsView {
    /// Checks the page and maps it. No file descriptor is kept.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let io_error = |e| FILE.io(path, e);
        let file = mapped::open(path, false).map_err(io_error)?;
        let (contents, _) = read_page(&file, path)?;
        let map = file.map(PAGE_SIZE, libc::PROT_READ).map_err(io_error)?;
        Ok(Self { map, contents })
    }

    /// The rows as they were when the page was opened: which card is which row.
    pub fn rows(&self) -> &[Row] {
        &self.contents.rows
    }

    /// The row of a card.
    pub fn row_of(&self, uuid: &str) -> Option<usize> {
        self.contents.rows.iter().position(|row| same_card(&row.uuid, uuid))
    }

    /// Bytes that may be held on the card of `row` now; [`super::NO_LIMIT`] if there is no limit,
    /// 0 for a row that no page has.
    #[inline]
    pub fn memory_limit(&self, row: usize) -> u64 {
        if row >= MAX_ROWS {
            return 0;
        }
        self.in_force(|active| self.u64_at(memory_limit_offset(active, row)))
    }

    /// How the time of the card of `row` is shared now; no limit for a row that no page has, or
    /// that was damaged after the page was opened.
    #[inline]
    pub fn regime(&self, row: usize) -> Regime {
        if row >= MAX_ROWS {
            return Regime::default();
        }
        let bytes = self.in_force(|active| self.u64_at(regime_offset(active, row)));
        Regime::decode(bytes.to_le_bytes()).unwrap_or_default()
    }

    /// 1 while the share of a row is 1 to 99, to be loaded (relaxed) in the path of every launch:
    /// while it is 0, no regime has to be looked at.
    #[inline]
    pub fn regulated(&self) -> &AtomicU32 {
        // SAFETY: aligned, inside the page, and an atomic.
        unsafe { self.map.at(REGULATED) }
    }

    /// Where it is mapped, for a process that has to live with a file that is cut short meanwhile.
    pub fn mapped_at(&self) -> Range<usize> {
        self.map.range()
    }

    /// Reads from the copy in force. A reader that was stopped between its two loads may find
    /// that copy being refilled with what is not in force yet, so it looks again whether the copy
    /// still was the one. Bounded: no writer changes the page several times within nanoseconds.
    #[inline]
    fn in_force<T>(&self, load: impl Fn(u32) -> T) -> T {
        let mut active = self.active();
        for _ in 0..4 {
            let value = load(active);
            let still_active = self.active();
            if still_active == active {
                return value;
            }
            active = still_active;
        }
        load(active)
    }

    #[inline]
    fn active(&self) -> u32 {
        self.u32_at(ACTIVE) & 1
    }

    // Memory that is mapped read-only may be loaded from atomically only with relaxed ordering
    // (std::sync::atomic, "Atomic accesses to read-only memory"), hence the fences.

    #[inline]
    fn u32_at(&self, offset: usize) -> u32 {
        // SAFETY: callers pass offsets of the layout, which are aligned and inside the page.
        let value: &AtomicU32 = unsafe { self.map.at(offset) };
        let value = value.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        u32::from_le(value)
    }

    #[inline]
    fn u64_at(&self, offset: usize) -> u64 {
        // SAFETY: callers pass offsets of the layout, which are aligned and inside the page.
        let value: &AtomicU64 = unsafe { self.map.at(offset) };
        let value = value.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        u64::from_le(value)
    }
}
