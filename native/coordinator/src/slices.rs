//! The slices of a runtime directory: found, read together, written to.

use crate::slice::{OpenError, Scope, Slice};
use crate::sweep::Sweep;
use crate::wait::{WakeWord, now};
use hami_limits::same_card;
use hami_share::lease::{Decision, SliceView, View};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// File systems count time in steps of milliseconds, at most so many.
const CLOCK_STEP: Duration = Duration::from_millis(50);

/// A directory of a slice. If a directory is removed and another one created under its name, the
/// two differ.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SliceDirectory {
    name: OsString,
    device: u64,
    inode: u64,
    /// A file system may use the inode again; not all know when it was created.
    created: Option<SystemTime>,
}

pub(crate) struct Slices {
    directory: PathBuf,
    /// The open slices, ordered by name, so that the same files always give the same leases.
    open: BTreeMap<SliceDirectory, Box<Slice>>,
    /// Directories that must not be opened again. A slice that was open keeps getting a pulse and
    /// no lease; without a pulse its processes would launch by their own buckets.
    damaged: BTreeMap<SliceDirectory, Option<Box<Slice>>>,
    /// Whether the last scan found any directory, damaged or not.
    found_any: bool,
    /// When `slices` was last modified before the last scan. `None` if the next scan may find more
    /// although `slices` is not modified.
    scanned: Option<SystemTime>,
    /// The number of keys used so far.
    keys: u64,
    /// The UUID of each card, by its number.
    cards: Vec<String>,
}

impl Slices {
    /// The slices of a runtime directory. The directory must exist; its `slices` may be created
    /// later.
    pub fn new(runtime: &Path) -> io::Result<Self> {
        std::fs::read_dir(runtime)?;
        Ok(Self {
            directory: runtime.join("slices"),
            open: BTreeMap::new(),
            damaged: BTreeMap::new(),
            found_any: false,
            scanned: None,
            keys: 0,
            cards: Vec::new(),
        })
    }

    /// Whether slices were created or removed since the last scan. It costs one system call.
    pub fn may_have_changed(&self) -> bool {
        self.scanned.is_none() || self.modified() != self.scanned
    }

    fn modified(&self) -> Option<SystemTime> {
        std::fs::metadata(&self.directory).and_then(|metadata| metadata.modified()).ok()
    }

    /// Opens new slices and drops removed ones. A slice exists as long as its directory.
    pub fn scan(&mut self) {
        // A later change in the same step of the file system's clock would not be seen.
        let is_past = |at: &SystemTime| at.elapsed().map_or(true, |age| age >= CLOCK_STEP);
        let modified = self.modified().filter(is_past);
        let found = match self.directories() {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeSet::new(),
            // Keep the slices until the directory can be read again.
            Err(_) => return,
        };
        let count = found.len();
        self.found_any = count > 0;
        self.open.retain(|directory, _| found.contains(directory));
        self.damaged.retain(|directory, _| found.contains(directory));
        for directory in found {
            if !self.open.contains_key(&directory) && !self.damaged.contains_key(&directory) {
                self.try_open(directory);
            }
        }
        let all_are_known = self.open.len() + self.damaged.len() == count;
        self.scanned = modified.filter(|_| all_are_known);
    }

    fn directories(&self) -> io::Result<BTreeSet<SliceDirectory>> {
        let mut directories = BTreeSet::new();
        for entry in std::fs::read_dir(&self.directory)? {
            let entry = entry?;
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            // It may have been removed since.
            let Ok(metadata) = entry.metadata() else { continue };
            directories.insert(SliceDirectory {
                name: entry.file_name(),
                device: metadata.dev(),
                inode: metadata.ino(),
                created: metadata.created().ok(),
            });
        }
        Ok(directories)
    }

    fn try_open(&mut self, directory: SliceDirectory) {
        let cards = &mut self.cards;
        let card = |uuid: &str| {
            let known = cards.iter().position(|card| same_card(card, uuid));
            known.unwrap_or_else(|| {
                cards.push(uuid.to_owned());
                cards.len() - 1
            }) as u64
        };
        match Slice::open(&self.directory.join(&directory.name), self.keys, card) {
            Ok(slice) => {
                self.keys += 1;
                self.open.insert(directory, slice);
            }
            Err(OpenError::NotYet) => {}
            Err(OpenError::Damaged) => _ = self.damaged.insert(directory, None),
        }
    }

    #[cfg(test)]
    pub fn damaged_count(&self) -> usize {
        self.damaged.len()
    }

    pub fn found_any(&self) -> bool {
        self.found_any
    }

    /// Whether the launches of any slice need admission, so that processes wait for the next
    /// decision.
    pub fn any_regulated(&self) -> bool {
        self.open.values().any(|slice| slice.regulated()) || self.blocked().next().is_some()
    }

    /// The damaged slices, in which no process may launch.
    fn blocked(&self) -> impl Iterator<Item = &Slice> {
        self.damaged.values().flatten().map(Box::as_ref)
    }

    /// Looks for dead processes.
    pub fn probe(&mut self, scope: Scope) {
        self.open.values_mut().for_each(|slice| slice.contain(|slice| slice.probe(scope)));
    }

    /// Writes what a sweep shows of the processes of all slices.
    pub fn publish_sweep(&mut self, sweep: &Sweep, now: u64) {
        for slice in self.open.values_mut() {
            slice.contain(|slice| {
                slice.measure(sweep);
                slice.publish_departures(sweep, now);
            });
        }
    }

    /// Lets the wake-ups of all slices count again.
    pub fn reset_wakes(&mut self) {
        self.open.values_mut().for_each(|slice| slice.reset_wakes());
    }

    /// Reads the reports of all processes. A damaged slice is left out from then on.
    pub fn read(&mut self, view: &mut View) {
        view.slices.resize_with(self.open.len(), SliceView::default);
        for (slice, view) in self.open.values_mut().zip(&mut view.slices) {
            slice.contain(|slice| slice.read(view));
        }
        self.leave_out_damaged(view);
    }

    fn leave_out_damaged(&mut self, view: &mut View) {
        let now = now();
        let open = self.open.iter();
        let damaged = open.filter_map(|(name, slice)| Some((name.clone(), slice.damage()?)));
        let damaged: Vec<_> = damaged.collect();
        for (directory, damage) in damaged {
            eprintln!(
                "slice {}: {damage}; its programs cannot launch kernels any more: end them, and make \
                 the slice again",
                directory.name.display()
            );
            let mut slice = self.open.remove(&directory);
            if let Some(slice) = &mut slice {
                view.slices.retain(|view| view.key != slice.key());
                slice.block(now);
            }
            self.damaged.insert(directory, slice);
        }
    }

    /// Writes a decision in its order: the `regulated` words before the grants.
    pub fn publish(&mut self, decision: &Decision, now: u64) {
        for (key, regulated) in &decision.regulated {
            if let Some(slice) = self.by_key(*key) {
                slice.set_regulated(*regulated, now);
            }
        }
        self.open.values_mut().for_each(|slice| slice.initialise(now));
        for publish in &decision.grants {
            if let Some(slice) = self.by_key(publish.slice) {
                slice.grant(publish.row, publish.grant);
            }
        }
    }

    /// Writes the pulse for all slices whose launches need admission, and for the damaged ones.
    pub fn pulse(&self, now: u64) {
        self.open.values().filter(|slice| slice.regulated()).for_each(|slice| slice.pulse(now));
        self.blocked().for_each(|slice| slice.pulse(now));
    }

    /// The wake-up words to wait for.
    pub fn wake_words(&self) -> impl Iterator<Item = WakeWord<'_>> {
        self.open.values().filter_map(|slice| slice.wake_word())
    }

    fn by_key(&mut self, key: u64) -> Option<&mut Slice> {
        self.open.values_mut().find(|slice| slice.key() == key).map(Box::as_mut)
    }
}
