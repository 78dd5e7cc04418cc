//! The memory files of exported allocations: an importer gets them here, also after the process has
//! ended that has exported them.

use crate::ledger::{ObjectId, Probe};
use crate::memory_file::MemoryFile;
use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::Arc;

/// The files that this process keeps, while a descriptor is open.
#[derive(Debug, Default)]
pub struct Exported(BTreeMap<ObjectId, Arc<MemoryFile>>);

impl Exported {
    /// Keeps the file that a process has as this descriptor. Returns its number here, and a probe for
    /// the ledger; `None` if the file cannot be opened here.
    pub fn keep(&mut self, process: u32, of: RawFd, object: ObjectId) -> Option<(RawFd, Probe)> {
        if !self.0.contains_key(&object) {
            // While the ledger has a probe, a process may be about to make a descriptor.
            self.0.retain(|_, file| Arc::strong_count(file) > 1 || file.is_exported());
            let file = MemoryFile::of_process(process, of, object[0]).ok()?;
            self.0.insert(object, Arc::new(file));
        }
        let file = Arc::clone(self.0.get(&object)?);
        Some((file.descriptor(), Probe::new(move || file.is_exported())))
    }
}
