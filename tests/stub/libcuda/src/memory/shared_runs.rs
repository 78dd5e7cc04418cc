//! Runs of the cards' arenas whose bytes are in a memory file, so that another process can map
//! them: linear memory with an IPC handle, and chunks of pools that can be exported.
//!
//! The addresses stay the same. When a run is freed, its addresses get private memory again.

use crate::Answer;
use crate::process::{Driver, lock};
use driver_sys::cuda::{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use stub_engine::arena::Arena;
use stub_engine::memory_file::MemoryFile;

const PAGE: usize = 4096;

/// A run with a file.
#[derive(Clone)]
pub struct Run {
    pub file: Arc<MemoryFile>,
    /// Where the run's bytes start in the file.
    pub start: u64,
    /// The run's first offset in its space.
    pub first: u64,
}

/// The runs of this process that have a file, by first address.
#[derive(Default)]
pub struct SharedRuns {
    runs: Mutex<BTreeMap<u64, Run>>,
    /// Whether there has ever been one, so that a free costs one load where there is none.
    is_used: AtomicBool,
    /// Copies and fills hold it while they access bytes; a run that changes its memory locks it.
    pub in_use: RwLock<()>,
}

impl SharedRuns {
    pub fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }

    fn insert(&self, address: u64, run: &Run) {
        self.is_used.store(true, Ordering::Release);
        lock(&self.runs).insert(address, run.clone());
    }

    /// Whether a file has bytes of this process.
    pub fn has_inode(&self, inode: u64) -> bool {
        lock(&self.runs).values().any(|run| run.file.inode() == inode)
    }
}

/// Gives the run of an allocation's offset a file with its bytes, unless it has one.
pub fn share(driver: &Driver, arena: &mut Arena, space: usize, offset: u64) -> Answer<Run> {
    let range = arena.run_of(offset).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let address = driver.backing.pointer(space, range.start);
    if let Some(known) = lock(&driver.shared_runs.runs).get(&address) {
        return Ok(known.clone());
    }
    let bytes = range.end - range.start;
    let failed = |_| CUDA_ERROR_OUT_OF_MEMORY;
    let file = MemoryFile::create("ipc", bytes).map_err(failed)?;
    let _nobody = driver.shared_runs.in_use.write();
    if arena.is_written(offset) {
        // SAFETY: the run is in the reservation, and copies and fills wait for us.
        let old = unsafe { std::slice::from_raw_parts(address as *const u8, bytes as usize) };
        for (at, page) in (0u64..).step_by(PAGE).zip(old.chunks(PAGE)) {
            if page.iter().any(|byte| *byte != 0) {
                file.write(page, at).map_err(failed)?;
            }
        }
    }
    file.map_at(address, &(0..bytes), true).map_err(failed)?;
    // So that its free returns the range.
    arena.mark_written(offset);
    let run = Run { file: Arc::new(file), start: 0, first: range.start };
    driver.shared_runs.insert(address, &run);
    Ok(run)
}

/// Maps a new run, which has no bytes yet, to the same offsets of a file.
pub fn share_new(
    driver: &Driver,
    arena: &mut Arena,
    space: usize,
    offset: u64,
    file: &Arc<MemoryFile>,
) -> Answer {
    let range = arena.run_of(offset).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let address = driver.backing.pointer(space, range.start);
    file.map_at(address, &range, true).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
    arena.mark_written(offset);
    let run = Run { file: Arc::clone(file), start: range.start, first: range.start };
    driver.shared_runs.insert(address, &run);
    Ok(())
}

/// Makes a freed run private; `false` when it has no file.
pub fn end(driver: &Driver, space: usize, range: &Range<u64>) -> bool {
    if !driver.shared_runs.is_used() {
        return false;
    }
    let address = driver.backing.pointer(space, range.start);
    let Some(run) = lock(&driver.shared_runs.runs).remove(&address) else { return false };
    driver.backing.make_private(space, range);
    if Arc::strong_count(&run.file) > 1 {
        // The file stays; only these bytes end.
        run.file.punch(&(run.start..run.start + (range.end - range.start)));
    }
    true
}
