//! The work: clients, their contexts and the items in their lanes.
//!
//! The progress of the work is separate, in [`super::state::State`], so that a forecast copies only
//! the progress.

use super::Mark;
use super::{Direction, Slicing};
use crate::durations;
use std::collections::{BTreeMap, VecDeque};

/// An item in the machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queued {
    /// The index of its context.
    pub context: usize,
    pub task: Task,
    /// How long the lane's items up to this one take, with an engine for themselves, in nanoseconds.
    pub lasts: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    Kernel {
        name: u32,
        ns: u64,
        demand: u32,
        /// The number of the launch of a collective, from 1, by process and card; 0: it is not a
        /// collective.
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
    /// The index of its client.
    pub client: usize,
    pub number: u32,
    /// The position of the first item that is still kept.
    first: u64,
    items: VecDeque<Queued>,
    /// How long all items up to the last one take, with an engine for themselves, in nanoseconds.
    lasts: u64,
    /// Whether the last item that takes time is a copy.
    pub is_copying: bool,
}

impl LaneItems {
    pub fn new(client: usize, number: u32) -> Self {
        Self { client, number, first: 1, items: VecDeque::new(), lasts: 0, is_copying: false }
    }

    /// The position of its last item.
    pub fn last(&self) -> u64 {
        self.first + self.items.len() as u64 - 1
    }

    pub fn at(&self, position: u64) -> Option<&Queued> {
        self.items.get(position.checked_sub(self.first)? as usize)
    }

    pub fn push(&mut self, context: usize, task: Task) {
        let ns = match task {
            Task::Kernel { ns, .. } | Task::Copy { ns, .. } => ns,
            Task::Record { .. } | Task::Wait(_) | Task::End => 0,
        };
        self.lasts = self.lasts.saturating_add(ns);
        self.items.push_back(Queued { context, task, lasts: self.lasts });
    }

    /// Drops the items that are done.
    pub fn trim(&mut self, done: u64) {
        while self.first <= done && self.items.pop_front().is_some() {
            self.first += 1;
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ContextOwner {
    /// The index of its client.
    pub client: usize,
    pub card: usize,
}

/// One process.
#[derive(Debug, Default)]
pub(super) struct ClientItems {
    /// The number of the group in which it takes part in collectives.
    pub group: usize,
    /// Context indices, by the process's own number and card.
    pub contexts: BTreeMap<(u32, usize), usize>,
    /// Lane indices, by number.
    pub lanes: BTreeMap<u32, usize>,
    /// By event: the mark of its last record, and when the engine reached it.
    pub events: BTreeMap<u32, (Mark, Option<u64>)>,
    /// Launches of collectives so far, by name, and by card or number of the stream.
    pub turns: BTreeMap<(u32, usize), u64>,
}

/// All work.
#[derive(Debug, Default)]
pub(super) struct Program {
    pub clients: Vec<ClientItems>,
    pub contexts: Vec<ContextOwner>,
    /// `None`: free for the next lane.
    pub lanes: Vec<Option<LaneItems>>,
    pub names: Names,
    pub slicing: Slicing,
}

impl Program {
    pub fn lane(&self, client: usize, mark: Mark) -> Option<usize> {
        self.clients[client].lanes.get(&mark.lane()).copied()
    }

    pub fn item(&self, lane: usize, position: u64) -> Option<&Queued> {
        self.lanes[lane].as_ref()?.at(position)
    }
}

/// A kernel's name.
#[derive(Clone, Debug)]
pub(super) struct Name {
    pub text: String,
    /// The number of participants of the collective; 0: it is not a collective.
    pub meets: u32,
    /// Whether the participants are streams. Otherwise they are cards.
    pub by_stream: bool,
}

/// All kernel names so far.
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

    /// The number of participants of a collective of this name; 0: it is not a collective.
    pub fn meets(&self, number: u32) -> u32 {
        self.get(number).map_or(0, |name| name.meets)
    }
}
