//! Measuring one slice without a coordinator.

use crate::slice::{OpenError, Scope, Slice};
use crate::sweep::Sweep;
use crate::wait::now;
use std::io;
use std::path::Path;

/// Writes into a slice's account what the driver holds for its processes beyond what they are
/// charged. Only one process may do so at a time.
///
/// It maps the files of the slice, so the processes of the slice must be trusted not to truncate
/// them.
pub struct Meter {
    slice: Box<Slice>,
    last: Option<Sweep>,
}

impl Meter {
    /// Opens a slice.
    ///
    /// # Errors
    /// The files cannot be opened, or are damaged.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let slice = Slice::open(directory, 0, |_| 0).map_err(|error| {
            io::Error::other(match error {
                OpenError::NotYet => "its files do not exist, or cannot be opened",
                OpenError::Damaged => "its files are damaged",
            })
        })?;
        Ok(Self { slice, last: None })
    }

    /// Whether any process has joined the slice.
    pub fn has_processes(&self) -> bool {
        self.slice.has_processes()
    }

    /// Compares the account with a sweep: the text of the sweeper's file. A text that no sweeper
    /// writes is ignored, and so are the files of a slice that are found to be damaged.
    pub fn update(&mut self, sweep: &[u8]) {
        if self.slice.damage().is_none()
            && let Some(sweep) = Sweep::parse(sweep, now(), self.last.as_ref())
        {
            self.slice.contain(|slice| {
                slice.probe(Scope::All);
                slice.measure(&sweep);
            });
            self.last = Some(sweep);
        }
    }
}
