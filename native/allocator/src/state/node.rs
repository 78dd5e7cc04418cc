//! A node in the books: its cards as published, those that pods still hold and the node no longer publishes
//! (ghosts), and who is there.
//!
//! What is given is always summed up again from the pods' charges, never added to and taken from: it
//! cannot drift, and there is no subtraction that could go wrong. A node has a few dozen pods, so that
//! costs about a microsecond.

use crate::rules::card::{Charge, Facts, Room, Standing, Use};
use crate::rules::fullness::{Scale, Totals};
use crate::rules::view::View;
use crate::wire::{self, Card, Mode, Placement, Weights};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Cards that are remembered for old pods; more are nonsense that somebody wrote.
const MOST_GHOSTS: usize = 128;

/// A node, present or remembered for the pods that are placed on it.
#[derive(Debug)]
pub struct Node {
    /// Its name.
    pub name: Arc<str>,
    /// Whether it was published.
    pub present: bool,
    /// What it enforces.
    pub mode: Mode,
    /// Its own order of cards.
    pub placement: Option<Placement>,
    /// Published cards by index and UUID, then those that only pods know, by UUID.
    pub cards: Vec<Card>,
    /// How many of them are published.
    pub published: usize,
    /// By card.
    pub facts: Vec<Facts>,
    /// By card.
    pub rooms: Vec<Room>,
    /// By card.
    pub used: Vec<Use>,
    links: Vec<u32>,
    /// Who is there, in no particular order.
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
            used: Vec::new(),
            links: Vec::new(),
            pods: Vec::new(),
            totals: Totals::default(),
        }
    }

    /// Takes over what was published.
    pub fn publish(&mut self, node: wire::Node) {
        self.present = true;
        self.mode = node.mode;
        self.placement = node.placement;
        self.cards = node.cards;
        self.cards
            .sort_unstable_by(|one, other| (one.index, &one.uuid).cmp(&(other.index, &other.uuid)));
        self.published = self.cards.len();
    }

    /// Forgets what was published.
    pub fn withdraw(&mut self) {
        let Self { name, pods, .. } = std::mem::replace(self, Self::unknown(""));
        *self = Self { name, pods, ..Self::unknown("") };
    }

    /// What was published, if it was.
    pub fn as_published(&self) -> Option<wire::Node> {
        self.present.then(|| wire::Node {
            name: self.name.to_string(),
            mode: self.mode,
            placement: self.placement,
            cards: self.cards[..self.published].to_vec(),
        })
    }

    /// Adds cards that only pods know, and works out what follows from the cards.
    pub fn settle<'a>(
        &mut self,
        uuids: impl Iterator<Item = &'a str>,
        mut model: impl FnMut(&str) -> u16,
    ) {
        self.cards.truncate(self.published);
        let mut ghosts: Vec<&str> = uuids.filter(|uuid| self.place(uuid).is_none()).collect();
        ghosts.sort_unstable();
        ghosts.dedup();
        ghosts.truncate(MOST_GHOSTS);
        self.cards.extend(ghosts.into_iter().map(ghost));
        let facts = |(at, card): (usize, &Card)| {
            if at < self.published { Facts::of(card, model(&card.model)) } else { Facts::default() }
        };
        self.facts = self.cards.iter().enumerate().map(facts).collect();
        let link = |one: &Card, other: &Card| one.links.get(&other.uuid).copied().unwrap_or(0);
        let pairs =
            self.cards.iter().flat_map(|one| self.cards.iter().map(move |other| (one, other)));
        // Either end may know.
        self.links =
            pairs
                .map(|(one, other)| {
                    if one.uuid == other.uuid { 0 } else { link(one, other).max(link(other, one)) }
                })
                .collect();
    }

    /// Sums up anew.
    pub fn sum<'a>(&mut self, charges: impl Iterator<Item = &'a Charge>) {
        self.totals = sum(&mut self.used, &mut self.rooms, &self.facts, charges);
    }

    /// Which card that is.
    pub fn place(&self, uuid: &str) -> Option<u8> {
        self.cards.iter().position(|card| card.uuid == uuid).and_then(|at| at.try_into().ok())
    }

    /// Whether it has cards that are not published.
    pub fn has_ghosts(&self) -> bool {
        self.cards.len() > self.published
    }

    /// The node as it is.
    pub fn view(&self) -> View<'_> {
        self.view_with(&self.rooms, &self.used, self.totals)
    }

    /// The node with another use of its cards.
    pub fn view_with<'a>(&'a self, rooms: &'a [Room], used: &'a [Use], totals: Totals) -> View<'a> {
        let Self { mode, placement, cards, facts, links, .. } = self;
        // A node that was withdrawn has no cards to give, whatever old pods still hold.
        let cards = if self.present { cards.as_slice() } else { &[] };
        View { mode: *mode, placement: *placement, cards, facts, rooms, used, links, totals }
    }
}

/// The use that comes of these charges, by card and in all.
pub fn sum<'a>(
    used: &mut Vec<Use>,
    rooms: &mut Vec<Room>,
    facts: &[Facts],
    charges: impl Iterator<Item = &'a Charge>,
) -> Totals {
    used.clear();
    used.resize(facts.len(), Use::default());
    for charge in charges {
        used[usize::from(charge.card)].add(&charge.used);
    }
    let mut totals = Totals::default();
    let mut scale = Scale::by(Weights::default());
    rooms.clear();
    for (facts, used) in facts.iter().zip(used.iter()) {
        rooms.push(Room::of(facts, used, &mut scale));
        if facts.standing != Standing::Gone {
            totals.add(facts.has(), used.given());
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
        overhead_mib: 0,
        links: BTreeMap::new(),
        mig: None,
    }
}
