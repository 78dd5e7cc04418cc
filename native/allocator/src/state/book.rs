//! Who holds what: one entry per pod UID, whatever came first.

use crate::rules::card::Charge;
use crate::rules::quota::Spent;
use crate::wire::{Ask, Assignment, Grant, Pod};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::Arc;

/// How firm an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Kept free for a pod that was just scored, until that time.
    Held {
        /// Nanoseconds of the caller's clock.
        until_ns: u64,
    },
    /// Promised at bind; whether the API took it is not known yet.
    Reserved,
    /// Bound, says the API.
    Placed,
}

/// One pod and its cards.
#[derive(Clone, Debug)]
pub struct Holding {
    /// Who.
    pub pod: Pod,
    /// Kubernetes' priority.
    pub priority: i32,
    /// What it asked for.
    pub asks: Box<[Ask]>,
    /// By ask.
    pub grants: Box<[Box<[Grant]>]>,
    /// Its node's number in the allocator.
    pub node: u32,
    /// How firm it is.
    pub state: State,
    /// Whether its ordinary init containers are done.
    pub started: bool,
    /// What it takes of the node's cards, as the node is now.
    pub charges: Box<[Charge]>,
    /// What it counts against quotas.
    pub spent: Spent,
}

impl Holding {
    /// As the annotation has it.
    pub fn assignment(&self, node: &str) -> Assignment {
        let given = self.asks.iter().zip(&self.grants).filter(|(_, grants)| !grants.is_empty());
        let containers =
            given.map(|(ask, grants)| (ask.container.clone(), grants.to_vec())).collect();
        let pod = self.pod.uid.clone();
        Assignment { version: Assignment::VERSION, pod, node: node.to_owned(), containers }
    }
}

/// All entries, by number and by UID.
#[derive(Debug, Default)]
pub struct Book {
    entries: Vec<Option<Holding>>,
    free: Vec<u32>,
    numbers: FxHashMap<Arc<str>, u32>,
    /// When holds end.
    ends: BTreeSet<(u64, u32)>,
    /// Those that are held or reserved.
    promised: BTreeSet<u32>,
}

impl Book {
    /// The number of a pod.
    pub fn number(&self, uid: &str) -> Option<u32> {
        self.numbers.get(uid).copied()
    }

    /// The entry of that number.
    pub fn get(&self, number: u32) -> &Holding {
        self.entries[number as usize].as_ref().expect("numbers in use have entries")
    }

    /// The entry of that number, to be charged anew.
    pub fn get_mut(&mut self, number: u32) -> &mut Holding {
        self.entries[number as usize].as_mut().expect("numbers in use have entries")
    }

    /// The entry of a pod.
    pub fn find(&self, uid: &str) -> Option<&Holding> {
        self.number(uid).map(|number| self.get(number))
    }

    /// A new entry; the pod has none.
    pub fn insert(&mut self, holding: Holding) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() as u32 - 1
        });
        if let State::Held { until_ns } = holding.state {
            self.ends.insert((until_ns, number));
        }
        if holding.state != State::Placed {
            self.promised.insert(number);
        }
        self.numbers.insert(holding.pod.uid.as_str().into(), number);
        self.entries[number as usize] = Some(holding);
        number
    }

    /// Takes an entry out.
    pub fn remove(&mut self, number: u32) -> Holding {
        let holding = self.entries[number as usize].take().expect("numbers in use have entries");
        self.numbers.remove(holding.pod.uid.as_str());
        if let State::Held { until_ns } = holding.state {
            self.ends.remove(&(until_ns, number));
        }
        self.promised.remove(&number);
        self.free.push(number);
        holding
    }

    /// A hold whose time is over.
    pub fn ended(&self, now_ns: u64) -> Option<u32> {
        self.ends.first().filter(|(until_ns, _)| *until_ns <= now_ns).map(|(_, number)| *number)
    }

    /// Entries that are placed or gone soon: reserved, or held until then at most.
    pub fn promised(&self, soon_ns: u64) -> impl Iterator<Item = &Holding> {
        let is_soon = move |holding: &&Holding| match holding.state {
            State::Held { until_ns } => until_ns <= soon_ns,
            State::Reserved | State::Placed => true,
        };
        self.promised.iter().map(|number| self.get(*number)).filter(is_soon)
    }

    /// All entries, by UID.
    pub fn sorted(&self) -> Vec<&Holding> {
        let mut all: Vec<&Holding> = self.entries.iter().flatten().collect();
        all.sort_unstable_by(|one, other| one.pod.uid.cmp(&other.pod.uid));
        all
    }
}
