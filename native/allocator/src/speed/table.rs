//! What a filter reads of all nodes, side by side in memory.
//!
//! A filter of a class that was not met before looks at every card of the cluster, and what it waits for is memory: read
//! from the nodes themselves it takes three times as long. This is a copy of what a [`Node`] knows of its cards, made
//! where a node is summed up ([`crate::engine`]) and nowhere else.

use crate::rules::card::{Facts, Room};
use crate::rules::fullness::Totals;
use crate::state::node::Node;
use crate::wire::{Mode, Placement};

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

/// What is known of one node.
#[derive(Clone, Copy)]
pub struct NodeCards<'a> {
    /// What it enforces.
    pub mode: Mode,
    /// Its own order of cards.
    pub placement: Option<Placement>,
    /// By card.
    pub facts: &'a [Facts],
    /// By card.
    pub rooms: &'a [Room],
    /// Its cards have the same, each of them: then only the first one's need be read.
    pub alike: bool,
    /// Of the cards that are there.
    pub totals: Totals,
}

/// All nodes, by number.
#[derive(Debug, Default)]
pub struct CardTable {
    rows: Vec<Row>,
    facts: Vec<Facts>,
    /// In the same places.
    rooms: Vec<Room>,
    /// How many of the places no row has any more.
    unused: usize,
}

impl CardTable {
    /// The node of that number.
    #[inline]
    pub fn get(&self, number: u32) -> NodeCards<'_> {
        let Row { start, count, mode, placement, alike, totals } = self.rows[number as usize];
        let cards = start as usize..(start + count) as usize;
        let (facts, rooms) = (&self.facts[cards.clone()], &self.rooms[cards]);
        NodeCards { mode, placement, facts, rooms, alike, totals }
    }

    /// Takes a node over as it is now.
    pub fn put(&mut self, number: u32, node: &Node) {
        let view = node.view();
        let count = view.cards.len();
        self.make_room(number, count);
        let row = &mut self.rows[number as usize];
        (row.mode, row.placement, row.totals) = (view.mode, view.placement, view.totals);
        row.alike = view.facts[..count].windows(2).all(|pair| pair[0] == pair[1]);
        let cards = row.start as usize..row.start as usize + count;
        self.facts[cards.clone()].copy_from_slice(&view.facts[..count]);
        self.rooms[cards].copy_from_slice(&view.rooms[..count]);
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
        if self.unused > self.facts.len() / 2 {
            self.close_up();
        }
        (self.rows[at].start, self.rows[at].count) = (self.facts.len() as u32, count as u32);
        let all = self.facts.len() + count;
        self.facts.resize(all, Facts::default());
        self.rooms.resize(all, Room::default());
    }

    fn close_up(&mut self) {
        let left = self.facts.len() - self.unused;
        let (mut facts, mut rooms) = (Vec::with_capacity(left), Vec::with_capacity(left));
        for row in &mut self.rows {
            let cards = row.start as usize..(row.start + row.count) as usize;
            row.start = facts.len() as u32;
            facts.extend_from_slice(&self.facts[cards.clone()]);
            rooms.extend_from_slice(&self.rooms[cards]);
        }
        (self.facts, self.rooms, self.unused) = (facts, rooms, 0);
    }
}
