//! The page as the limited program sees it: checked once, then one load per question.
//!
//! The file is untrusted input: its bytes are checked in a private buffer, and afterwards nothing
//! that is read from the mapping is used as an index or a length. What remains is a file that is cut
//! short after it was mapped: reading it kills the program. In a container the page is mounted
//! read-only, so a tenant cannot; elsewhere page and program belong to the same user.

use super::layout::{ACTIVE, Contents, MAX_ROWS, PAGE_SIZE, memory_limit_offset, share_offset};
use super::writer::{open_page, read_page};
use super::{PageError, Row, same_card};
use std::fs::{self, File, Metadata};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// A limits page mapped read-only. Limits are always the ones now in force; the list of cards is
/// the one found when it was opened.
#[derive(Debug)]
pub struct LimitsView {
    map: NonNull<u8>,
    contents: Contents,
}

// SAFETY: the mapping is only read, through atomic loads, and lives until the view is dropped.
unsafe impl Send for LimitsView {}
// SAFETY: as above.
unsafe impl Sync for LimitsView {}

impl LimitsView {
    /// Checks the page and maps it. No file descriptor is kept.
    pub fn open(path: &Path) -> Result<Self, PageError> {
        let io_error = |e| PageError::io(path, e);
        let file = open_page(path, false).map_err(io_error)?;
        let opened = Opened { file: ManuallyDrop::new(file), path };
        let (contents, _) = read_page(&opened.file, path)?;
        let map = map(&opened.file).map_err(io_error)?;
        let view = Self { map, contents };
        if opened.is_the_page() {
            Ok(view)
        } else {
            Err(io_error(io::Error::other("it was closed by the program meanwhile; try again")))
        }
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

    /// Percent of the card of `row` that may be used now; 0 if there is no limit or no such row.
    #[inline]
    pub fn share(&self, row: usize) -> u32 {
        if row >= MAX_ROWS {
            return 0;
        }
        self.in_force(|active| self.u32_at(share_offset(active, row)))
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
        let value = unsafe { self.map.add(offset).cast::<AtomicU32>().as_ref() };
        let value = value.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        u32::from_le(value)
    }

    #[inline]
    fn u64_at(&self, offset: usize) -> u64 {
        // SAFETY: callers pass offsets of the layout, which are aligned and inside the page.
        let value = unsafe { self.map.add(offset).cast::<AtomicU64>().as_ref() };
        let value = value.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        u64::from_le(value)
    }
}

/// The page's descriptor while it is being mapped. A program that closes all descriptors from
/// another thread may get its number for a file of its own: that one is not ours to close.
struct Opened<'a> {
    file: ManuallyDrop<File>,
    path: &'a Path,
}

impl Opened<'_> {
    fn is_the_page(&self) -> bool {
        let (open, named) = (self.file.metadata(), fs::symlink_metadata(self.path));
        let same = |open: &Metadata, named: &Metadata| {
            (open.dev(), open.ino()) == (named.dev(), named.ino())
        };
        open.is_ok_and(|open| named.is_ok_and(|named| same(&open, &named)))
    }
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        if self.is_the_page() {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}

fn map(file: &File) -> io::Result<NonNull<u8>> {
    let (access, kind) = (libc::PROT_READ, libc::MAP_SHARED);
    // SAFETY: a new mapping of an open file; no memory of ours is replaced.
    let map = unsafe { libc::mmap(null_mut(), PAGE_SIZE, access, kind, file.as_raw_fd(), 0) };
    match NonNull::new(map.cast()) {
        Some(page) if map != libc::MAP_FAILED => Ok(page),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Drop for LimitsView {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing borrowed from it outlives the view.
        unsafe { libc::munmap(self.map.as_ptr().cast(), PAGE_SIZE) };
    }
}
