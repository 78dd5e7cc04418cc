//! What filters read of all nodes: numbers alone, one node's cards after the other's.
//!
//! A filter of a class that was not met before looks at every card of the cluster. So what decides is here a
//! second time, 40 bytes per card, in an array that is gone through from one end to the other. It is
//! written where a node is summed up ([`crate::engine`]), whatever the reason was, and nowhere else.

use crate::card::{Facts, Standing, Use};
use crate::node::Node;
use crate::score::{Scale, Totals};
use crate::wire::{Mode, Placement, Weights};

/// A card: what it has, and what of it is left.
///
/// What is left is read together with what is given: the one is the rest of the other wherever a pod
/// fits, and where none does, nothing else is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slim {
    /// All of its memory.
    pub memory_mib: u32,
    /// Less what programs that are not ours use.
    pub usable_mib: u32,
    /// On top of each limit in MiB.
    pub overhead_mib: u32,
    /// Memory that a new pod may have: what is left, and nothing on a card that takes none.
    pub room_mib: u32,
    /// Percent to give.
    pub cores: u32,
    /// Percent that are left.
    pub free_cores: u32,
    /// Device IDs to give.
    pub slots: u16,
    /// Device IDs that are given, or the most that can be said here: more than any card has.
    pub used_slots: u16,
    /// Which of the models that the allocator has met.
    pub model: u16,
    /// Whether new pods may go there.
    pub standing: Standing,
    /// How full it is by the usual weights, in millionths.
    pub full: f64,
}

/// A node; one that is not there has no cards.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    start: u32,
    count: u32,
    mode: Mode,
    placement: Option<Placement>,
    alike: bool,
    totals: Totals,
}

/// What is seen of one node.
#[derive(Clone, Copy)]
pub struct Glance<'a> {
    /// What it enforces.
    pub mode: Mode,
    /// Its own order of cards.
    pub placement: Option<Placement>,
    /// Its cards.
    pub cards: &'a [Slim],
    /// They have as much of everything, each of them.
    pub alike: bool,
    /// Of the cards that are there.
    pub totals: Totals,
}

/// All nodes, by number.
#[derive(Debug, Default)]
pub struct Shelf {
    rows: Vec<Row>,
    cards: Vec<Slim>,
    /// How many of the cards no row has any more.
    unused: usize,
}

impl Slim {
    fn of(facts: &Facts, used: &Use, scale: &mut Scale) -> Self {
        let memory_mib = small(facts.memory_mib());
        let usable_mib = memory_mib.saturating_sub(small(facts.foreign_mib()));
        let used_slots = used.slots.try_into().unwrap_or(u16::MAX);
        let closed = facts.standing != Standing::Open || used_slots >= facts.slots;
        Self {
            memory_mib,
            usable_mib,
            overhead_mib: small(facts.overhead_mib()),
            room_mib: if closed { 0 } else { small(facts.free_memory(used)) },
            cores: facts.cores,
            free_cores: facts.cores.saturating_sub(used.cores),
            slots: facts.slots,
            used_slots,
            model: facts.model,
            standing: facts.standing,
            full: scale.made_for(facts.has()).part(used.given()),
        }
    }

    /// What it has: slots, cores and memory.
    pub fn has(&self) -> [u64; 3] {
        [self.slots.into(), self.cores.into(), self.memory_mib.into()]
    }

    /// What of it is given, where a pod fits: slots, cores and memory.
    pub fn given(&self) -> [u64; 3] {
        let cores = (self.cores - self.free_cores).into();
        [self.used_slots.into(), cores, (self.usable_mib - self.room_mib).into()]
    }

    fn is_like(&self, other: &Self) -> bool {
        self.has() == other.has() && self.overhead_mib == other.overhead_mib
    }

    /// The card as it would be if nobody had anything of it.
    pub fn emptied(self) -> Self {
        let room_mib = if self.standing == Standing::Open { self.usable_mib } else { 0 };
        Self { room_mib, free_cores: self.cores, used_slots: 0, full: 0.0, ..self }
    }
}

impl Shelf {
    /// The node of that number.
    pub fn get(&self, number: u32) -> Glance<'_> {
        let row = &self.rows[number as usize];
        let cards = &self.cards[row.start as usize..][..row.count as usize];
        let Row { mode, placement, alike, totals, .. } = *row;
        Glance { mode, placement, cards, alike, totals }
    }

    /// Takes a node over as it is now.
    pub fn put(&mut self, number: u32, node: &Node) {
        let view = node.view();
        let count = view.cards.len();
        self.make_room(number, count);
        let row = &mut self.rows[number as usize];
        (row.mode, row.placement, row.totals) = (view.mode, view.placement, view.totals);
        let cards = &mut self.cards[row.start as usize..][..count];
        let mut scale = Scale::by(Weights::default());
        for (card, (facts, used)) in cards.iter_mut().zip(view.facts.iter().zip(view.used)) {
            *card = Slim::of(facts, used, &mut scale);
        }
        row.alike = cards.windows(2).all(|pair| pair[0].is_like(&pair[1]));
    }

    /// There is no node of that number any more.
    pub fn remove(&mut self, number: u32) {
        self.make_room(number, 0);
    }

    fn make_room(&mut self, number: u32, count: usize) {
        let at = number as usize;
        if self.rows.len() <= at {
            self.rows.resize(at + 1, Row::default());
        }
        if self.rows[at].count as usize == count {
            return;
        }
        self.unused += self.rows[at].count as usize;
        self.rows[at].count = 0;
        if self.unused > self.cards.len() / 2 {
            self.close_up();
        }
        (self.rows[at].start, self.rows[at].count) = (self.cards.len() as u32, count as u32);
        self.cards.resize(self.cards.len() + count, Slim::default());
    }

    fn close_up(&mut self) {
        let mut cards = Vec::with_capacity(self.cards.len() - self.unused);
        for row in &mut self.rows {
            let there = &self.cards[row.start as usize..][..row.count as usize];
            row.start = cards.len() as u32;
            cards.extend_from_slice(there);
        }
        (self.cards, self.unused) = (cards, 0);
    }
}

fn small(value: u64) -> u32 {
    value.try_into().unwrap_or(u32::MAX)
}
