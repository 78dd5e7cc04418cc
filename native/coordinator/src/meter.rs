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
    measures: bool,
    last: Option<Sweep>,
}

impl Meter {
    /// Opens a slice. What the driver holds beyond the charges counts only if it `measures`.
    ///
    /// # Errors
    /// The files cannot be opened, or are damaged.
    pub fn open(directory: &Path, measures: bool) -> io::Result<Self> {
        let slice = Slice::open(directory, 0, |_| 0).map_err(|error| {
            io::Error::other(match error {
                OpenError::NotYet => "its files do not exist, or cannot be opened",
                OpenError::Damaged => "its files are damaged",
            })
        })?;
        Ok(Self { slice, measures, last: None })
    }

    /// Whether any process has joined the slice.
    pub fn has_processes(&self) -> bool {
        self.slice.has_processes()
    }

    /// Compares the account with a sweep: the text of the sweeper's file. A text that no sweeper
    /// writes is ignored.
    ///
    /// # Errors
    /// The files of the slice are damaged.
    pub fn update(&mut self, sweep: &[u8]) -> Result<(), &'static str> {
        if let Some(sweep) = Sweep::parse(sweep, now(), self.last.as_ref()) {
            let measures = self.measures;
            self.slice.contain(|slice| {
                // The sweep that was made before it shows nothing of a death that it finds.
                slice.probe(Scope::All);
                if measures {
                    slice.measure(&sweep);
                }
                slice.publish_departures(&sweep, now());
            });
            self.last = Some(sweep);
        }
        self.slice.damage().map_or(Ok(()), Err)
    }

    /// Forgets what was measured of processes that have ended. The driver may need some more
    /// milliseconds to free it.
    pub fn release_ended(&mut self) {
        self.slice.contain(|slice| {
            slice.probe(Scope::All);
            slice.measure(&Sweep::empty(now()));
        });
    }
}
