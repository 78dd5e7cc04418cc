//! Looks up the numbers of nodes by their names.

use rustc_hash::FxHashMap;
use std::fmt;
use std::sync::Arc;

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
#[derive(Debug, Default)]
pub struct Names {
    by_name: FxHashMap<Arc<str>, u32>,
    /// How often a name was added or removed.
    changes: u64,
}

impl Names {
    /// The number of a name.
    pub fn get(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// The numbers of many names.
    pub fn get_all<N: AsRef<str>>(&self, names: &[N]) -> Numbers {
        self.numbers(names.iter().map(|name| self.get(name.as_ref())).collect())
    }

    /// Numbers that are valid now.
    pub fn numbers(&self, each: Vec<Option<u32>>) -> Numbers {
        Numbers { each, changes: self.changes }
    }

    /// Whether no name was added or removed since.
    pub fn are_still(&self, numbers: &Numbers) -> bool {
        numbers.changes == self.changes
    }

    /// Adds a name with a free number.
    pub fn insert(&mut self, name: Arc<str>, number: u32) {
        self.changes += 1;
        self.by_name.insert(name, number);
    }

    /// Removes a name.
    pub fn remove(&mut self, name: &str) {
        self.changes += 1;
        self.by_name.remove(name);
    }
}
