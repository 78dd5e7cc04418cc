//! The slices of a runtime directory: found, read together, written to.

use crate::slice::{Refused, Slice};
use crate::wait::{Bell, now};
use hami_limits::same_card;
use hami_share::turns::{Decision, SliceView, View};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

pub(crate) struct Slices {
    directory: PathBuf,
    /// By name, as all of this: the same files give the same turns, whoever looks.
    open: BTreeMap<OsString, Box<Slice>>,
    /// Directories that are there and are not to be opened again; those that were open keep being
    /// told that it is nobody's turn, or their processes would do without a coordinator.
    damaged: BTreeMap<OsString, Option<Box<Slice>>>,
    /// Whether any directory was there at the last look, of whatever kind.
    found_any: bool,
    /// Keys given so far.
    keys: u64,
    /// Card i is the one with this UUID.
    cards: Vec<String>,
}

impl Slices {
    /// The slices of a runtime directory, which has to be there; they themselves may come later.
    pub fn new(runtime: &Path) -> io::Result<Self> {
        std::fs::read_dir(runtime)?;
        Ok(Self {
            directory: runtime.join("slices"),
            open: BTreeMap::new(),
            damaged: BTreeMap::new(),
            found_any: false,
            keys: 0,
            cards: Vec::new(),
        })
    }

    /// Opens those that are new and forgets those that are gone. A slice is there as long as its
    /// directory is.
    pub fn look(&mut self) {
        let found = match self.names() {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeSet::new(),
            // They are as they were, until it can be read again.
            Err(_) => return,
        };
        self.found_any = !found.is_empty();
        self.open.retain(|name, _| found.contains(name));
        self.damaged.retain(|name, _| found.contains(name));
        for name in found {
            if !self.open.contains_key(&name) && !self.damaged.contains_key(&name) {
                self.try_open(name);
            }
        }
    }

    fn names(&self) -> io::Result<BTreeSet<OsString>> {
        let mut names = BTreeSet::new();
        for entry in std::fs::read_dir(&self.directory)? {
            let entry = entry?;
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                names.insert(entry.file_name());
            }
        }
        Ok(names)
    }

    fn try_open(&mut self, name: OsString) {
        let cards = &mut self.cards;
        let card = |uuid: &str| {
            let known = cards.iter().position(|card| same_card(card, uuid));
            known.unwrap_or_else(|| {
                cards.push(uuid.to_owned());
                cards.len() - 1
            }) as u64
        };
        match Slice::open(&self.directory.join(&name), self.keys, card) {
            Ok(slice) => {
                self.keys += 1;
                self.open.insert(name, slice);
            }
            Err(Refused::NotYet) => {}
            Err(Refused::Damaged) => _ = self.damaged.insert(name, None),
        }
    }

    pub fn found_any(&self) -> bool {
        self.found_any
    }

    /// Whether the processes of any slice have to ask, and so wait for what comes next.
    pub fn any_asks(&self) -> bool {
        self.open.values().any(|slice| slice.asks()) || self.shut().next().is_some()
    }

    /// Slices that nobody may launch in.
    fn shut(&self) -> impl Iterator<Item = &Slice> {
        self.damaged.values().flatten().map(Box::as_ref)
    }

    /// Looks for processes that have died with work in hand; `all`: or with none, where that matters.
    pub fn probe(&mut self, all: bool) {
        self.open.values_mut().for_each(|slice| slice.probe(all));
    }

    /// Listens to all bells again.
    pub fn listen(&mut self) {
        self.open.values_mut().for_each(|slice| slice.listen());
    }

    /// Reads what all processes say. A slice that turns out to be damaged is left out, for good.
    pub fn read(&mut self, view: &mut View) {
        view.slices.resize_with(self.open.len(), SliceView::default);
        for (slice, view) in self.open.values_mut().zip(&mut view.slices) {
            slice.read(view);
        }
        self.leave_out_damaged(view);
    }

    fn leave_out_damaged(&mut self, view: &mut View) {
        let now = now();
        let damaged: Vec<_> = self.open.iter().filter(|(_, slice)| slice.is_damaged()).collect();
        let (keys, names): (BTreeSet<u64>, Vec<OsString>) =
            damaged.into_iter().map(|(name, slice)| (slice.key(), name.clone())).unzip();
        if !names.is_empty() {
            view.slices.retain(|slice| !keys.contains(&slice.key));
            for name in names {
                let mut slice = self.open.remove(&name);
                if let Some(slice) = &mut slice {
                    slice.shut(now);
                }
                self.damaged.insert(name, slice);
            }
        }
    }

    /// Writes what was decided, in the order in which it was: who has to ask learns that first.
    pub fn publish(&mut self, decision: &Decision, now: u64) {
        for (key, asks) in &decision.regulated {
            if let Some(slice) = self.by_key(*key) {
                slice.set_asks(*asks, now);
            }
        }
        self.open.values_mut().for_each(|slice| slice.settle(now));
        for publish in &decision.grants {
            if let Some(slice) = self.by_key(publish.slice) {
                slice.grant(publish.row, publish.grant);
            }
        }
    }

    /// Says that the coordinator lives to all who would do without it otherwise.
    pub fn pulse(&self, now: u64) {
        self.open.values().filter(|slice| slice.asks()).for_each(|slice| slice.pulse(now));
        self.shut().for_each(|slice| slice.pulse(now));
    }

    /// The bells to wait for.
    pub fn bells(&self) -> impl Iterator<Item = Bell<'_>> {
        self.open.values().filter_map(|slice| slice.bell())
    }

    fn by_key(&mut self, key: u64) -> Option<&mut Slice> {
        self.open.values_mut().find(|slice| slice.key() == key).map(Box::as_mut)
    }
}
