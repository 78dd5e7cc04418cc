//! Kernel names, by number: work carries the number.

use crate::durations;
use std::collections::BTreeMap;

/// A kernel's name.
#[derive(Clone, Debug)]
pub(super) struct Name {
    pub text: String,
    /// How many take part in each launch of it; 0: it is no collective.
    pub meets: u32,
    /// Whether those are streams, and not cards.
    pub by_stream: bool,
}

/// All names that were ever heard.
#[derive(Debug, Default)]
pub(super) struct Names {
    numbers: BTreeMap<String, u32>,
    all: Vec<Name>,
}

impl Names {
    /// The number of a name; never 0.
    pub fn number(&mut self, text: &str) -> u32 {
        if let Some(known) = self.numbers.get(text) {
            return *known;
        }
        let (meets, by_stream) =
            durations::ending(text).map_or((0, false), |ending| (ending.meets, ending.by_stream));
        self.all.push(Name { text: text.to_owned(), meets, by_stream });
        let number = self.all.len() as u32;
        self.numbers.insert(text.to_owned(), number);
        number
    }

    /// The name of a number.
    pub fn get(&self, number: u32) -> Option<&Name> {
        self.all.get((number as usize).checked_sub(1)?)
    }

    /// Whether a launch of it waits for others, and for how many together.
    pub fn meets(&self, number: u32) -> u32 {
        self.get(number).map_or(0, |name| name.meets)
    }
}
