//! Why a file of a slice cannot be used: the same two ways for all of them.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// What is wrong with a file.
#[derive(Debug)]
pub enum FileError {
    /// The file could not be opened, mapped, locked or written.
    Io {
        /// What the file is, as people call it.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The file is not of this kind and version: give up, do not guess.
    Damaged {
        /// What the file should be, as people call it.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// The first thing that is wrong with it.
        reason: &'static str,
    },
}

impl FileError {
    /// The kernel refused.
    pub fn io(what: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { what, path: path.to_owned(), source }
    }

    /// What kind of refusal it was, if the kernel refused.
    pub fn kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Io { source, .. } => Some(source.kind()),
            Self::Damaged { .. } => None,
        }
    }

    /// The content is wrong.
    pub fn damaged(what: &'static str, path: &Path, reason: &'static str) -> Self {
        Self::Damaged { what, path: path.to_owned(), reason }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { what, path, source } => write!(f, "{what} {}: {source}", path.display()),
            Self::Damaged { what, path, reason } => write!(
                f,
                "{what} {} is damaged or of another version: {reason}; make the slice again",
                path.display()
            ),
        }
    }
}

impl std::error::Error for FileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Damaged { .. } => None,
        }
    }
}
