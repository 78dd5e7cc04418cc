//! What there is to do: clients, their contexts and the items in their lanes.
//!
//! How far it has been done is [`super::state::State`]'s, apart from it, so that a forecast copies
//! only that.

use super::Mark;
use super::{Direction, Slicing};
use crate::durations;
use std::collections::{BTreeMap, VecDeque};

/// An item as the machine keeps it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queued {
    /// Index of its context.
    pub context: usize,
    pub task: Task,
    /// Nanoseconds that its lane's items take up to it, it included, each with an engine of its own.
    pub lasts: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    Kernel {
        name: u32,
        ns: u64,
        demand: u32,
        /// The how manieth launch of a collective in its process and on its card, from 1; 0: it is none.
        turn: u64,
    },
    Copy {
        direction: Direction,
        ns: u64,
    },
    Record {
        event: u32,
        /// Whether it needs its context's turn.
        needs_engine: bool,
    },
    Wait(Mark),
    End,
}

#[derive(Debug)]
pub(super) struct LaneItems {
    /// Index of its client.
    pub client: usize,
    pub number: u32,
    /// Place of the first item that is still kept.
    first: u64,
    items: VecDeque<Queued>,
    /// [`Queued::lasts`] of its last item.
    lasts: u64,
    /// Whether the last thing that took time was a copy.
    pub is_copying: bool,
}

impl LaneItems {
    pub fn new(client: usize, number: u32) -> Self {
        Self { client, number, first: 1, items: VecDeque::new(), lasts: 0, is_copying: false }
    }

    /// The place of its last item.
    pub fn last(&self) -> u64 {
        self.first + self.items.len() as u64 - 1
    }

    pub fn at(&self, place: u64) -> Option<&Queued> {
        self.items.get(place.checked_sub(self.first)? as usize)
    }

    pub fn push(&mut self, context: usize, task: Task) {
        let ns = match task {
            Task::Kernel { ns, .. } | Task::Copy { ns, .. } => ns,
            Task::Record { .. } | Task::Wait(_) | Task::End => 0,
        };
        self.lasts = self.lasts.saturating_add(ns);
        self.items.push_back(Queued { context, task, lasts: self.lasts });
    }

    /// Forgets what is done.
    pub fn trim(&mut self, done: u64) {
        while self.first <= done && self.items.pop_front().is_some() {
            self.first += 1;
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ContextPlace {
    /// Index of its client.
    pub client: usize,
    pub card: usize,
}

/// One process.
#[derive(Debug, Default)]
pub(super) struct ClientItems {
    /// Number of the name under which it takes part in collectives.
    pub group: usize,
    /// Index by the process's own number and card.
    pub contexts: BTreeMap<(u32, usize), usize>,
    /// Index by number.
    pub lanes: BTreeMap<u32, usize>,
    /// By event: the mark of its last record, and when the engine got there.
    pub events: BTreeMap<u32, (Mark, Option<u64>)>,
    /// Launches of collectives so far, by name and card, or the number of the stream.
    pub turns: BTreeMap<(u32, usize), u64>,
}

/// Everything there is to do.
#[derive(Debug, Default)]
pub(super) struct Program {
    pub clients: Vec<ClientItems>,
    pub contexts: Vec<ContextPlace>,
    /// `None`: free for the next.
    pub lanes: Vec<Option<LaneItems>>,
    pub names: Names,
    pub slicing: Slicing,
}

impl Program {
    pub fn lane(&self, client: usize, mark: Mark) -> Option<usize> {
        self.clients[client].lanes.get(&mark.lane()).copied()
    }

    pub fn item(&self, lane: usize, place: u64) -> Option<&Queued> {
        self.lanes[lane].as_ref()?.at(place)
    }
}

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
