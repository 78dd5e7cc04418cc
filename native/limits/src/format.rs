//! The format of a slice's files: one number for all of them.
//!
//! The limits page, the grants page and the account change together. A container that restarts
//! after an upgrade of the node still has its old library, so the side that prepares slices and the
//! coordinator read and write two formats: the current one and the one before it. The preload
//! library uses slices of its own format only. The directory of an installed library has the number
//! in its name (`format-3`), so the libraries of two formats can be installed side by side.
//!
//! | format | limits page | grants page | account | new in it |
//! |---|---|---|---|---|
//! | 2 | version 1 | version 1 | version 2 | |
//! | 3 | version 3 | version 3 | version 3 | injected values, context memory, NVML's PID namespace and the gang on the limits page; departures on the grants page; driver memory in the account |

use crate::quantity::InvalidValue;

/// A format that this version reads and writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// The one of the version before.
    Previous,
    /// The one of this version.
    #[default]
    Current,
}

impl Format {
    /// Both, the previous one first.
    pub const ALL: [Self; 2] = [Self::Previous, Self::Current];

    /// Its number, which the directory of an installed library has in its name.
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
