//! A node: its published cards, cards that only its pods still have (ghosts), and its pods.
//!
//! Allocated amounts are always summed up again from the charges of the pods, never added and
//! subtracted. So they cannot drift. A node has a few dozen pods, and summing up takes about a
//! microsecond.

use crate::rules::card::{Allocated, CardState, Charge, Facts, Room};
use crate::rules::fullness::{Scale, Totals};
use crate::rules::view::View;
use crate::wire::{self, Card, Level, Mode, Placement, Weights};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most cards that are kept for old pods. More can only come from invalid assignments.
const MOST_GHOSTS: usize = 128;

/// A node that is published, or that only pods refer to.
#[derive(Debug)]
pub struct Node {
    /// The name.
    pub name: Arc<str>,
    /// Whether the node is published.
    pub present: bool,
    /// How it shares its cards.
    pub mode: Mode,
    /// The order in which its cards are tried, if the pod requests none.
    pub placement: Option<Placement>,
    /// The published cards by index and UUID, then the ghosts by UUID.
    pub cards: Vec<Card>,
    /// The number of published cards.
    pub published: usize,
    /// The properties of each card.
    pub facts: Vec<Facts>,
    /// The room of each card.
    pub rooms: Vec<Room>,
    /// The allocated part of each card.
    pub allocated: Vec<Allocated>,
    /// Whether the node agent makes MIG instances on one of the published cards.
    pub has_mig: bool,
    links: Vec<u32>,
    /// The numbers of its pods, in no particular order.
    pub pods: Vec<u32>,
    totals: Totals,
}

impl Node {
    /// A node of which only the name is known.
    pub fn unknown(name: &str) -> Self {
        Self {
            name: name.into(),
            present: false,
            mode: Mode::default(),
            placement: None,
            cards: Vec::new(),
            published: 0,
            facts: Vec::new(),
            rooms: Vec::new(),
            allocated: Vec::new(),
            has_mig: false,
            links: Vec::new(),
            pods: Vec::new(),
            totals: Totals::default(),
        }
    }

    /// Takes over a published node.
    pub fn publish(&mut self, node: wire::Node) {
        self.present = true;
        self.mode = node.mode;
        self.placement = node.placement;
        self.cards = node.cards;
        self.cards
            .sort_unstable_by(|one, other| (one.index, &one.uuid).cmp(&(other.index, &other.uuid)));
        self.published = self.cards.len();
        self.has_mig = self.cards.iter().any(|card| card.mig.is_some());
    }

    /// Removes what was published.
    pub fn withdraw(&mut self) {
        let Self { name, pods, .. } = std::mem::replace(self, Self::unknown(""));
        *self = Self { name, pods, ..Self::unknown("") };
    }

    /// The node as it was published, if it is.
    pub fn as_published(&self) -> Option<wire::Node> {
        self.present.then(|| wire::Node {
            name: self.name.to_string(),
            mode: self.mode,
            placement: self.placement,
            cards: self.cards[..self.published].to_vec(),
        })
    }

    /// Adds the ghosts, and derives the facts and links of all cards.
    pub fn derive<'a>(
        &mut self,
        uuids: impl Iterator<Item = &'a str>,
        mut model: impl FnMut(&str) -> u16,
    ) {
        self.cards.truncate(self.published);
        let mut ghosts: Vec<&str> = uuids.filter(|uuid| self.card_index(uuid).is_none()).collect();
        ghosts.sort_unstable();
        ghosts.dedup();
        ghosts.truncate(MOST_GHOSTS);
        self.cards.extend(ghosts.into_iter().map(ghost));
        let facts = |(at, card): (usize, &Card)| {
            if at < self.published { Facts::of(card, model(&card.model)) } else { Facts::default() }
        };
        self.facts = self.cards.iter().enumerate().map(facts).collect();
        // MIG instances have no links.
        let link = |one: &Card, other: &Card| match one.mig.as_ref().or(other.mig.as_ref()) {
            Some(_) => 0,
            None => one.links.get(&other.uuid).copied().unwrap_or(0),
        };
        let pairs =
            self.cards.iter().flat_map(|one| self.cards.iter().map(move |other| (one, other)));
        // One of the two cards may list the link.
        self.links =
            pairs
                .map(|(one, other)| {
                    if one.uuid == other.uuid { 0 } else { link(one, other).max(link(other, one)) }
                })
                .collect();
    }

    /// Sums up the charges.
    pub fn sum<'a>(&mut self, charges: impl Iterator<Item = &'a Charge>) {
        self.totals = sum(&mut self.allocated, &mut self.rooms, &self.facts, charges);
    }

    /// The index of a card.
    pub fn card_index(&self, uuid: &str) -> Option<u8> {
        self.cards.iter().position(|card| card.uuid == uuid).and_then(|at| at.try_into().ok())
    }

    /// Whether there are ghosts.
    pub fn has_ghosts(&self) -> bool {
        self.cards.len() > self.published
    }

    /// The view of the node as it is.
    pub fn view(&self) -> View<'_> {
        self.view_with(&self.rooms, &self.allocated, self.totals)
    }

    /// The view of the node with other allocations.
    pub fn view_with<'a>(
        &'a self,
        rooms: &'a [Room],
        allocated: &'a [Allocated],
        totals: Totals,
    ) -> View<'a> {
        let Self { mode, placement, cards, facts, links, .. } = self;
        // A removed node has no cards for new pods, whatever its old pods have.
        let cards = if self.present { cards.as_slice() } else { &[] };
        View { mode: *mode, placement: *placement, cards, facts, rooms, allocated, links, totals }
    }
}

/// Sums up charges by card, and returns the totals of the node.
pub fn sum<'a>(
    allocated: &mut Vec<Allocated>,
    rooms: &mut Vec<Room>,
    facts: &[Facts],
    charges: impl Iterator<Item = &'a Charge>,
) -> Totals {
    allocated.clear();
    allocated.resize(facts.len(), Allocated::default());
    for charge in charges {
        allocated[usize::from(charge.card)].add(&charge.allocated);
    }
    let mut totals = Totals::default();
    let mut scale = Scale::by(Weights::default());
    rooms.clear();
    for (facts, allocated) in facts.iter().zip(allocated.iter()) {
        rooms.push(Room::of(facts, allocated, &mut scale));
        if facts.state != CardState::Missing {
            totals.add(facts.capacity(), allocated.amounts());
        }
    }
    totals
}

fn ghost(uuid: &str) -> Card {
    Card {
        uuid: uuid.to_owned(),
        index: u32::MAX,
        model: String::new(),
        memory_mib: 0,
        cores: 0,
        slots: 0,
        numa: None,
        healthy: false,
        cordoned: false,
        foreign_mib: 0,
        links: BTreeMap::new(),
        mig: None,
        level: Level::None,
    }
}
