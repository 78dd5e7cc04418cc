//! The limits page: one file of 4096 bytes that says what a slice may use.
//!
//! It is written outside (by `hami run`, or by whoever makes a container) and read inside the limited program, in the
//! path of every allocation, while limits change. So it has one inode for life (a rename over a
//! bind-mounted file is never seen), two copies of everything and a word that says which of them is
//! in force: a writer killed at any instruction leaves a whole page, and readers never wait.
//!
//! ```text
//! offset  field
//!      0  magic: [u8; 8]           "HAMILIM1"
//!      8  version: u32, size: u32  1, 4096
//!     16  slice_id: [u8; 16]       random
//!     32  active: u32              0 or 1: the copy in force
//!     36  regulated: u32           1 while a row in force has a share of 1 to 99
//!     40  reserved, zero
//!     64  copy 0, 2016 bytes
//!   2080  copy 1, 2016 bytes
//!
//! a copy: 0 checksum: u64 | 8 count: u32 | 12 generation: u32 | 16 rows: 16 of 96 bytes | zero
//! a row:  0 uuid: [u8; 64]  | 64 memory_limit: u64
//!        72 share: u32 | 76 mode: u8 (0 hard, 1 soft) | 77 priority: i8 | 78 zero
//! ```
//!
//! The checksum is FNV-1a over bytes 0 to 31 of the page and the rest of the copy, so that a copy
//! belongs to its page. Numbers are little-endian. The eight bytes from `share` on are a row's regime,
//! read with one load. `regulated` is a hint for the path of every launch: after a writer was killed
//! it may be 1 for nothing until the next change, but never 0 while a share is in force. `layout` is the pure half, `writer` the file as
//! its owner sees it, `reader` the mapping that the limited program keeps.

mod layout;
mod reader;
mod writer;

pub use layout::{MAX_ROWS, NO_LIMIT};
pub use reader::LimitsView;
pub use writer::LimitsPage;

/// One card of a slice. Row i of the page is row i of the account for the slice's whole life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The card's UUID as NVML writes it: `GPU-…` or `MIG-…`.
    pub uuid: String,
    /// Bytes that the slice may hold on this card; `None` is no limit.
    pub memory_limit: Option<u64>,
    /// Percent of the card's time, 1 to 100; `None` is no limit.
    pub share: Option<u32>,
    /// What becomes of time that the share leaves unused.
    pub mode: Mode,
    /// Who goes first when several want the card.
    pub priority: Priority,
}

impl Row {
    pub(crate) fn regime(&self) -> Regime {
        Regime { share: self.share.unwrap_or(0), mode: self.mode, priority: self.priority }
    }
}

/// What becomes of time that a share leaves unused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It stays unused: the share is a ceiling.
    #[default]
    Hard,
    /// It is lent: the share is a weight among those who want the card.
    Soft,
}

/// Who goes first when several slices want a card. The shares hold within each priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// After all others.
    Low = -1,
    /// The usual one.
    #[default]
    Normal = 0,
    /// Before all others.
    High = 1,
}

/// How a slice shares one card's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Regime {
    /// Percent of the card's time, 1 to 100; 0 is no limit, as 100 is.
    pub share: u32,
    /// What becomes of time that the share leaves unused.
    pub mode: Mode,
    /// Who goes first.
    pub priority: Priority,
}

impl Regime {
    /// As the page has it.
    pub(super) fn encode(self) -> [u8; 8] {
        let [a, b, c, d] = self.share.to_le_bytes();
        [a, b, c, d, self.mode as u8, self.priority as i8 as u8, 0, 0]
    }

    /// `None` for bytes that no writer writes, but for the share: the rows' check is the one for it.
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
/// The driver gives 16 bytes and does not say whether they name a GPU or a MIG slice of one, NVML
/// writes a word in front. So the word does not count, nor does case.
pub fn same_card(left: &str, right: &str) -> bool {
    let bare = |uuid: &str| {
        let word = uuid.get(..4).filter(|word| matches!(*word, "GPU-" | "MIG-"));
        uuid.get(word.map_or(0, str::len)..).unwrap_or_default().to_ascii_lowercase()
    };
    bare(left) == bare(right)
}

#[cfg(test)]
mod tests;
