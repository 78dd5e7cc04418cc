//! Why an account could not be made, attached, joined or read.

use hami_limits::FileError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

const WHAT: &str = "account";

/// What went wrong with an account file as a whole. A refused charge is a [`crate::Refused`].
#[derive(Debug)]
pub enum AccountError {
    /// The file cannot be used.
    File(FileError),
    /// Every slot belongs to a process: end one, then try again.
    Full {
        /// The account's path.
        path: PathBuf,
    },
}

impl AccountError {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        Self::File(FileError::io(WHAT, path, source))
    }

    pub(crate) fn damaged(path: &Path, reason: &'static str) -> Self {
        Self::File(FileError::damaged(WHAT, path, reason))
    }
}

impl fmt::Display for AccountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::Full { path } => write!(
                f,
                "{WHAT} {}: all {} process slots are taken; end a process of the slice first",
                path.display(),
                crate::SLOTS
            ),
        }
    }
}

impl std::error::Error for AccountError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File(error) => error.source(),
            Self::Full { .. } => None,
        }
    }
}
