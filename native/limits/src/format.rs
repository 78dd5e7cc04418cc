//! The format of a slice's files: one number for all of them.
//!
//! The limits page, the grants page and the account change together. A container that restarts
//! after an upgrade of the node still has its old library. So the node's library directory has the
//! format in its name (`format-3`), and a file of another format is refused.
//!
//! | format | limits page | grants page | account |
//! |---|---|---|---|
//! | 3 | version 3 | version 3 | version 3 |

/// A format of a slice's files that this version reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The format of the files that this version creates.
    Current = 3,
}

impl Format {
    /// The number of the format, which is the version in the head of each of its files.
    pub const fn number(self) -> u32 {
        self as u32
    }
}
