//! The page inside the limited program: checked once, then one load per question.
//!
//! The file is untrusted input. Its bytes are checked in a private buffer, and afterwards no value
//! from the mapping is used as an index or a length. One danger remains: if the file is truncated
//! after it was mapped, reading it kills the program. In a container the page is mounted read-only,
//! so a tenant cannot truncate it; elsewhere page and program belong to the same user.

use super::layout::{
    ACTIVE, Contents, FILE, MAX_ROWS, PAGE, REGULATED, memory_limit_at, regime_at,
};
use super::writer::read_page;
use super::{Gang, Regime, Row, same_card};
use crate::file::FileError;
use crate::mapped::{self, Mapping};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// A limits page mapped read-only. Limits are those in force now; the list of cards is the one from
/// when the page was opened.
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
        let map = file.map(PAGE, libc::PROT_READ).map_err(io_error)?;
        Ok(Self { map, contents })
    }

    /// The gang of the slice.
    pub fn gang(&self) -> Option<Gang> {
        self.contents.gang
    }

    /// The rows at the time when the page was opened. They map cards to row numbers.
    pub fn rows(&self) -> &[Row] {
        &self.contents.rows
    }

    /// The row of a card.
    pub fn row_of(&self, uuid: &str) -> Option<usize> {
        self.contents.rows.iter().position(|row| same_card(&row.uuid, uuid))
    }

    /// The bytes that the slice may hold on the card of `row` now. It is [`super::NO_LIMIT`]
    /// without a limit, and 0 for a row that no page has.
    #[inline]
    pub fn memory_limit(&self, row: usize) -> u64 {
        if row >= MAX_ROWS {
            return 0;
        }
        self.in_force(|active| self.u64_at(memory_limit_at(active, row)))
    }

    /// The regime of the card of `row` now. It has no share for a row that no page has, and for one
    /// that was damaged after the page was opened.
    #[inline]
    pub fn regime(&self, row: usize) -> Regime {
        if row >= MAX_ROWS {
            return Regime::default();
        }
        let bytes = self.in_force(|active| self.u64_at(regime_at(active, row)));
        Regime::decode(bytes.to_le_bytes()).unwrap_or_default()
    }

    /// The word that is 1 while the share of a row is 1 to 99. Every launch loads it (relaxed):
    /// while it is 0, no regime has to be read.
    #[inline]
    pub fn regulated(&self) -> &AtomicU32 {
        // SAFETY: aligned, inside the page, and an atomic.
        unsafe { self.map.at(REGULATED) }
    }

    /// The addresses of the mapping, for a process that must survive a truncated file.
    pub fn mapped_at(&self) -> Range<usize> {
        self.map.range()
    }

    /// Reads from the active copy. If the reader is stopped between its two loads, a writer may
    /// have refilled that copy with values that are not in force yet. So the reader checks
    /// afterwards that the copy is still active. Four attempts are enough: no writer changes the
    /// page several times within nanoseconds.
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

    // Only relaxed atomic loads are allowed on memory that is mapped read-only (std::sync::atomic,
    // "Atomic accesses to read-only memory"). Fences order them.

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
