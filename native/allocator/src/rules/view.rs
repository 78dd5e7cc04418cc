//! The view of a node that the rules, the search and the score read: the node as it is, or without
//! some of its pods.

use crate::rules::card::{self, Allocated, Facts, Room};
use crate::rules::fullness::Totals;
use crate::wire::{Card, Mode, Placement};

/// A node.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// How the node shares its cards.
    pub mode: Mode,
    /// The order in which its cards are tried, if the pod requests none.
    pub placement: Option<Placement>,
    /// The cards as published.
    pub cards: &'a [Card],
    /// The properties of each card.
    pub facts: &'a [Facts],
    /// The room of each card.
    pub rooms: &'a [Room],
    /// The allocated part of each card.
    pub allocated: &'a [Allocated],
    /// The link scores of all pairs of cards, row by row.
    pub links: &'a [u32],
    /// The totals of the published cards.
    pub totals: Totals,
}

impl View<'_> {
    /// The NUMA node of a card, if known.
    pub fn numa(&self, card: u8) -> Option<u32> {
        self.cards[usize::from(card)].numa
    }

    /// Whether the card may have MIG instances, perhaps several for one container.
    pub fn has_mig(&self, card: u8) -> bool {
        self.cards[usize::from(card)].mig.is_some()
    }

    /// The number of cards that the node publishes.
    pub fn published(&self) -> usize {
        // A removed node has no cards, but its facts stay.
        card::published(&self.facts[..self.cards.len()])
    }

    /// The rooms and allocations as they would be without any pod.
    pub fn emptied(&self) -> (Vec<Room>, Vec<Allocated>) {
        (
            self.facts.iter().map(Room::empty).collect(),
            vec![Allocated::default(); self.allocated.len()],
        )
    }

    /// The link score of two cards.
    pub fn link(&self, one: usize, other: usize) -> u64 {
        self.links[one * self.cards.len() + other].into()
    }
}
