//! The limits page: a file of 8192 bytes with the limits of a slice.
//!
//! It is written outside, by `hami run` or by the code that prepares a container. The limited
//! program reads it for every allocation, and limits may change meanwhile. So the page keeps its
//! inode for its whole life: a container with a bind-mounted file does not see a new file that is
//! renamed to the same path. And it contains everything twice, with a checksum and a word that
//! names the active copy. A writer fills the inactive copy and then flips that word. If the writer
//! is killed at any instruction, the page is still complete, and readers never wait.
//!
//! ```text
//! offset  field
//!      0  magic: [u8; 8]           "HAMILIM1"
//!      8  version: u32, size: u32  1, 8192
//!     16  slice_id: [u8; 16]       random
//!     32  active: u32              0 or 1: the copy in force
//!     36  regulated: u32           1 while a row in force has a share of 1 to 99
//!     40  reserved, zero
//!     64  copy 0, 4064 bytes
//!   4128  copy 1, 4064 bytes
//!
//! a copy: 0 checksum: u64 | 8 count: u32 | 12 generation: u32 | 16 rows: 16 of 128 bytes
//!      2064 gang: [u8; 16], zero for none
//!      2080 zero
//! a row:  0 uuid: [u8; 64]  | 64 memory_limit: u64
//!        72 share: u32 | 76 mode: u8 (0 hard, 1 soft) | 77 priority: i8 | 78 zero
//!        80 context_memory: u64, zero for unknown
//!        88 injected_memory: u64, zero for none | 96 injected_share: u32, zero for none
//!       100 granule: u32, zero for none | 104 zero
//! ```
//!
//! Numbers are little-endian. The checksum is FNV-1a over bytes 0 to 31 of the page and the rest of
//! the copy, so a copy is valid in its own page only. The eight bytes from `share` on are the
//! *regime* of a row: share in percent, mode and priority. Like the memory limit, they are read
//! with one load.
//!
//! A reader checks magic, version, size and checksum once, when it opens the page. After that, it
//! reads a limit or a regime with one aligned 8-byte load from the active copy. It then checks that
//! this copy is still the active one. So every value that it returns was in force at some moment of
//! the read.
//!
//! The *injected values* of a row are the limits that the control plane has put into environment
//! variables of the container. They stay what they are when the container is resized. A variable
//! that has such a value sets no limit: the page has the newer value.
//!
//! `regulated` shows whether any row has a share, so that a launch needs only this one load if no
//! row has one. A writer sets it to 1 before the flip, or to 0 after the flip. If the writer is
//! killed in between, the word may stay 1 without need until the next change, but it is never 0
//! while a share is in force.
//!
//! `layout` encodes and checks the bytes, `writer` has the file for its owner, and `reader` has the
//! mapping for the limited program.

mod layout;
mod reader;
mod writer;

pub use layout::{MAX_ROWS, NO_LIMIT};
pub use reader::LimitsView;
pub use writer::LimitsPage;

/// One card of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The card's UUID as NVML writes it: `GPU-…` or `MIG-…`.
    pub uuid: String,
    /// Bytes that the slice may hold on this card; `None` is no limit.
    pub memory_limit: Option<u64>,
    /// Percent of the card's time, 1 to 100; `None` is no limit.
    pub share: Option<u32>,
    /// How the share is enforced.
    pub mode: Mode,
    /// The order among slices that compete for the card.
    pub priority: Priority,
    /// Bytes that the driver takes for a context of a process on this card; `None` if unknown.
    pub context_memory: Option<u64>,
    /// The driver takes requests of more than half of this many bytes in multiples of it, a power of
    /// two; `None` if it takes what is requested.
    pub granule: Option<u32>,
    /// The memory limit, in bytes, that the control plane has put into the environment.
    pub injected_memory: Option<u64>,
    /// The share, in percent, that the control plane has put into the environment.
    pub injected_share: Option<u32>,
}

impl Row {
    /// A card without limits.
    pub fn new(uuid: impl Into<String>) -> Self {
        Self {
            uuid: uuid.into(),
            memory_limit: None,
            share: None,
            mode: Mode::default(),
            priority: Priority::default(),
            context_memory: None,
            granule: None,
            injected_memory: None,
            injected_share: None,
        }
    }

    pub(crate) fn regime(&self) -> Regime {
        Regime { share: self.share.unwrap_or(0), mode: self.mode, priority: self.priority }
    }
}

/// The gang of a slice: all slices with the same value have leases together. Not zero.
pub type Gang = [u8; 16];

/// How a share is enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The share is a ceiling: time that the slice does not use stays idle.
    #[default]
    Hard,
    /// The share is a weight among the slices that want the card: idle time is lent.
    Soft,
}

/// The order of slices that compete for a card. A higher priority goes first, whatever the shares;
/// the shares divide the time within a priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// After all other slices.
    Low = -1,
    /// The default.
    #[default]
    Normal = 0,
    /// Before all other slices.
    High = 1,
}

/// How a slice shares one card's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Regime {
    /// Percent of the card's time, 1 to 100. Both 0 and 100 are no limit.
    pub share: u32,
    /// How the share is enforced.
    pub mode: Mode,
    /// The order among slices that compete for the card.
    pub priority: Priority,
}

impl Regime {
    /// The eight bytes of the page.
    pub(super) fn encode(self) -> [u8; 8] {
        let [a, b, c, d] = self.share.to_le_bytes();
        [a, b, c, d, self.mode as u8, self.priority as i8 as u8, 0, 0]
    }

    /// `None` for bytes that no writer writes. The range of the share is checked with the row.
    pub(super) fn decode(bytes: [u8; 8]) -> Option<Self> {
        let [a, b, c, d, mode, priority, 0, 0] = bytes else { return None };
        let share = u32::from_le_bytes([a, b, c, d]);
        let mode = match mode {
            0 => Mode::Hard,
            1 => Mode::Soft,
            _ => return None,
        };
        let priority = match priority as i8 {
            -1 => Priority::Low,
            0 => Priority::Normal,
            1 => Priority::High,
            _ => return None,
        };
        Some(Self { share, mode, priority })
    }
}

/// Whether two UUIDs name the same card.
///
/// The driver returns 16 bytes, and not whether they name a GPU or a MIG device; NVML writes `GPU-`
/// or `MIG-` in front. So this prefix is ignored, and so is case.
pub fn same_card(left: &str, right: &str) -> bool {
    let bare = |uuid: &str| {
        let word = uuid.get(..4).filter(|word| matches!(*word, "GPU-" | "MIG-"));
        uuid.get(word.map_or(0, str::len)..).unwrap_or_default().to_ascii_lowercase()
    };
    bare(left) == bare(right)
}

#[cfg(test)]
mod tests;
