//! The format of a slice's files: one number for all of them.
//!
//! The limits page, the grants page and the account change together. A container that restarts
//! after an upgrade of the node still has its old library. So the code that creates slices and the
//! coordinator read and write two formats: the current one and the previous one. The preload
//! library uses slices of its own format only. On a node, the libraries of two formats are to be
//! installed side by side, each in a directory with the format in its name (`format-3`). No code
//! installs them yet.
//!
//! | format | limits page | grants page | account | new in it |
//! |---|---|---|---|---|
//! | 2 | version 1 | version 1 | version 2 | |
//! | 3 | version 3 | version 3 | version 3 | injected values, context memory, granule, NVML's PID namespace and the gang on the limits page; departures on the grants page; driver memory in the account |

use crate::quantity::InvalidValue;

/// A format that this version reads and writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// The format before the current one.
    Previous,
    /// The format of the files that this version creates by default.
    #[default]
    Current,
}

impl Format {
    /// Both formats, the previous one first.
    pub const ALL: [Self; 2] = [Self::Previous, Self::Current];

    /// The number of the format.
    pub const fn number(self) -> u32 {
        match self {
            Self::Previous => 2,
            Self::Current => 3,
        }
    }

    /// The format with this number.
    pub fn from_number(number: u32) -> Result<Self, InvalidValue> {
        Self::ALL.into_iter().find(|format| format.number() == number).ok_or_else(|| {
            let [previous, current] = Self::ALL.map(Self::number);
            let fix = format!("write {current}, or {previous} for a library of that format");
            InvalidValue::new("format", &number.to_string(), fix)
        })
    }
}

/// The version and size of a kind of file in one format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLayout {
    /// The version in its head.
    pub version: u32,
    /// The size of every file of this kind, in bytes.
    pub size: usize,
}
