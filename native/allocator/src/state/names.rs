//! Looks up the numbers of nodes by their names.
//!
//! A filter looks up thousands of names, and memory latency decides how long that takes. So the map
//! only has hashes and numbers and stays in the processor's cache, and short names are stored in
//! place, in the order in which they are looked up ([`crate::state::sequence`]). With a plain map
//! from strings a filter and a score over 5,000 nodes take 0.14 ms longer. Names with equal hashes
//! have a map of their own.

use crate::state::sequence::{Sequence, Walk};
use rustc_hash::{FxHashMap, FxHasher};
use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::Hasher;

const SHORT: usize = 38;

/// A name. It is stored in place if it is short.
#[derive(Clone, Debug)]
enum Name {
    Short(u8, [u8; SHORT]),
    Long(Box<[u8]>),
    /// A name that needs escapes in JSON.
    Odd(Box<[u8]>),
}

/// The numbers of some names. They are valid until a name is added or removed.
#[derive(Clone, Default)]
pub struct Numbers {
    each: Vec<Option<u32>>,
    changes: u64,
}

impl fmt::Debug for Numbers {
    // The numbers depend on the order of events, and answers must not.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Numbers").finish_non_exhaustive()
    }
}

impl Numbers {
    /// The number of each name.
    pub(crate) fn each(&self) -> &[Option<u32>] {
        &self.each
    }

    /// The numbers at these positions.
    pub(crate) fn of(&self, positions: &[u32]) -> Self {
        let each = positions.iter().map(|at| self.each[*at as usize]).collect();
        Self { each, changes: self.changes }
    }
}

/// Names and their numbers.
#[derive(Debug)]
pub struct Names {
    by_hash: FxHashMap<u64, u32>,
    /// By slot; empty for a removed name.
    texts: Vec<Name>,
    /// By slot; each number has one slot.
    numbers: Vec<u32>,
    /// By number.
    places: Vec<u32>,
    sequence: Sequence,
    twins: BTreeMap<Box<[u8]>, u32>,
    /// The bits of the hash that count: all, except in a test.
    bits: u64,
    /// How often a name was added or removed.
    changes: u64,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            by_hash: FxHashMap::default(),
            texts: Vec::new(),
            numbers: Vec::new(),
            places: Vec::new(),
            sequence: Sequence::default(),
            twins: BTreeMap::new(),
            bits: u64::MAX,
            changes: 0,
        }
    }
}

impl Names {
    /// The number of a name.
    pub fn get(&self, name: &str) -> Option<u32> {
        let there = self.by_hash.get(&self.hash(name.as_bytes())).copied();
        let there = there.filter(|number| self.at(*number) == Some(name.as_bytes()));
        there.or_else(|| {
            if self.twins.is_empty() { None } else { self.twins.get(name.as_bytes()).copied() }
        })
    }

    /// The numbers of many names.
    pub fn get_all<N: AsRef<str>>(&mut self, names: &[N]) -> Numbers {
        let each = self.along(|known, walk| {
            names.iter().map(|name| known.next(walk, name.as_ref())).collect()
        });
        self.numbers(each)
    }

    /// Looks up many names, one after the other.
    pub fn along<T>(&mut self, look: impl FnOnce(&Self, &mut Walk<'_>) -> T) -> T {
        let mut sequence = std::mem::take(&mut self.sequence);
        let found = sequence.walk(self.texts.len(), |walk| look(self, walk));
        if sequence.is_scattered() {
            self.arrange(&sequence.arrange());
        }
        self.sequence = sequence;
        found
    }

    fn arrange(&mut self, order: &[u32]) {
        let mut texts = std::mem::take(&mut self.texts);
        let text = |place: &u32| std::mem::replace(&mut texts[*place as usize], Name::of(b""));
        self.texts = order.iter().map(text).collect();
        self.numbers = order.iter().map(|place| self.numbers[*place as usize]).collect();
        for (place, number) in (0..).zip(&self.numbers) {
            self.places[*number as usize] = place;
        }
    }

    /// The number of the next name.
    fn next(&self, walk: &mut Walk<'_>, name: &str) -> Option<u32> {
        let is = |place| {
            let text = self.texts.get(place as usize).map(Name::bytes);
            // Removed names are empty.
            !name.is_empty() && text == Some(name.as_bytes())
        };
        match walk.step(is) {
            Some(place) => Some(self.numbers[place as usize]),
            None => self.jump(walk, name),
        }
    }

    /// The same if the sequence did not predict it.
    pub fn jump(&self, walk: &mut Walk<'_>, name: &str) -> Option<u32> {
        self.get(name).inspect(|number| walk.jump(self.places[*number as usize]))
    }

    /// Numbers that are valid now.
    pub fn numbers(&self, each: Vec<Option<u32>>) -> Numbers {
        Numbers { each, changes: self.changes }
    }

    /// Whether no name was added or removed since.
    pub fn are_still(&self, numbers: &Numbers) -> bool {
        numbers.changes == self.changes
    }

    /// The name of a number; empty if it was removed.
    pub fn at(&self, number: u32) -> Option<&[u8]> {
        let place = self.places.get(number as usize)?;
        Some(self.texts[*place as usize].bytes())
    }

    /// The name in a slot, if it needs no escapes in JSON.
    #[inline]
    pub fn plain(&self, place: u32) -> Option<&[u8]> {
        match self.texts.get(place as usize)? {
            Name::Short(length, bytes) if *length > 0 => Some(&bytes[..usize::from(*length)]),
            Name::Long(text) => Some(text),
            Name::Short(..) | Name::Odd(_) => None,
        }
    }

    /// The number and the length of the name in a slot.
    #[inline]
    pub fn known(&self, place: u32) -> (u32, usize) {
        (self.numbers[place as usize], self.texts[place as usize].bytes().len())
    }

    /// Adds a name with a free number.
    pub fn insert(&mut self, name: &str, number: u32) {
        self.changes += 1;
        while self.places.len() <= number as usize {
            let next = self.places.len() as u32;
            self.places.push(next);
            self.numbers.push(next);
            self.texts.push(Name::of(b""));
        }
        self.texts[self.places[number as usize] as usize] = Name::of(name.as_bytes());
        let hash = self.hash(name.as_bytes());
        match self.by_hash.entry(hash) {
            Entry::Vacant(place) => {
                place.insert(number);
            }
            Entry::Occupied(_) => {
                self.twins.insert(name.as_bytes().into(), number);
            }
        }
    }

    /// Removes the name of a number.
    pub fn remove(&mut self, number: u32) {
        self.changes += 1;
        let place = self.places[number as usize] as usize;
        let name = std::mem::replace(&mut self.texts[place], Name::of(b""));
        let hash = self.hash(name.bytes());
        if self.by_hash.get(&hash) == Some(&number) {
            self.by_hash.remove(&hash);
        } else {
            self.twins.remove(name.bytes());
        }
    }

    fn hash(&self, name: &[u8]) -> u64 {
        let mut hasher = FxHasher::default();
        hasher.write(name);
        hasher.finish() & self.bits
    }
}

impl Name {
    fn of(text: &[u8]) -> Self {
        if text.iter().any(|byte| matches!(byte, b'"' | b'\\' | ..b' ')) {
            return Self::Odd(text.into());
        }
        let mut bytes = [0; SHORT];
        match bytes.get_mut(..text.len()) {
            None => Self::Long(text.into()),
            Some(place) => {
                place.copy_from_slice(text);
                Self::Short(text.len() as u8, bytes)
            }
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Short(length, bytes) => &bytes[..usize::from(*length)],
            Self::Long(text) | Self::Odd(text) => text,
        }
    }
}

#[cfg(test)]
mod tests;
