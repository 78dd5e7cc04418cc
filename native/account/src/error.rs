//! Why an account could not be made, attached, joined or read.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// What went wrong with an account file as a whole. A refused charge is a [`crate::Refused`].
#[derive(Debug)]
pub enum AccountError {
    /// The file could not be opened, mapped or locked.
    Io {
        /// The account's path.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The file is not an account of this version: give up, do not guess.
    Damaged {
        /// The account's path.
        path: PathBuf,
        /// The first thing that is wrong with it.
        reason: &'static str,
    },
    /// Every slot belongs to a process: end one, then try again.
    Full {
        /// The account's path.
        path: PathBuf,
    },
}

impl AccountError {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }

    pub(crate) fn damaged(path: &Path, reason: &'static str) -> Self {
        Self::Damaged { path: path.to_owned(), reason }
    }
}

impl fmt::Display for AccountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, source } => write!(f, "account {}: {source}", path.display()),
            Self::Damaged { path, reason } => write!(
                f,
                "account {} is damaged or of another version: {reason}; make the slice again",
                path.display()
            ),
            Self::Full { path } => write!(
                f,
                "account {}: all {} process slots are taken; end a process of the slice first",
                path.display(),
                crate::SLOTS
            ),
        }
    }
}

impl std::error::Error for AccountError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Damaged { .. } | Self::Full { .. } => None,
        }
    }
}
