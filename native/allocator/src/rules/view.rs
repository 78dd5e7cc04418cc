//! A node as the rules, the search and the score read it: as it is, or as it would be without some pods.

use crate::rules::card::{Facts, Room, Use};
use crate::rules::fullness::Totals;
use crate::wire::{Card, Mode, Placement};

/// A node as fit and score look at it: as it is, or as it would be without some pods.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// What it enforces.
    pub mode: Mode,
    /// Its own order of cards.
    pub placement: Option<Placement>,
    /// As published.
    pub cards: &'a [Card],
    /// By card.
    pub facts: &'a [Facts],
    /// By card.
    pub rooms: &'a [Room],
    /// By card.
    pub used: &'a [Use],
    /// Pair scores, row by row.
    pub links: &'a [u32],
    /// Of the cards that are there.
    pub totals: Totals,
}

impl View<'_> {
    /// A card's NUMA node, if known.
    pub fn numa(&self, card: u8) -> Option<u32> {
        self.cards[usize::from(card)].numa
    }

    /// The cards as they would be without any pod.
    pub fn emptied(&self) -> (Vec<Room>, Vec<Use>) {
        (self.facts.iter().map(Room::empty).collect(), vec![Use::default(); self.used.len()])
    }

    /// How well two cards are linked.
    pub fn link(&self, one: usize, other: usize) -> u64 {
        self.links[one * self.cards.len() + other].into()
    }
}
