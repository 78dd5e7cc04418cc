//! What filters read of all nodes: numbers alone, one node's cards after the other's.
//!
//! A filter of a class that was not met before looks at every card of the cluster, and what it waits for is memory.
//! So what decides is here a second time: what is left of each card, 12 bytes, in an array that is gone through from
//! one end to the other, and beside it what each card has, which is mostly the same for a node's cards and then read
//! once. It is written where a node is summed up ([`crate::engine`]), whatever the reason was, and nowhere else.

use crate::rules::card::{Facts, Standing, Use};
use crate::rules::fullness::{self, Scale, Totals};
use crate::state::node::Node;
use crate::wire::{Mode, Placement, Weights};

/// What a card has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Has {
    /// All of its memory.
    pub memory_mib: u32,
    /// Less what programs that are not ours use.
    pub usable_mib: u32,
    /// On top of each limit in MiB.
    pub overhead_mib: u32,
    /// Percent to give.
    pub cores: u16,
    /// Device IDs to give.
    pub slots: u16,
    /// Which of the models that the allocator has met.
    pub model: u16,
    /// Whether new pods may go there.
    pub standing: Standing,
}

/// What of it is left.
///
/// It is read together with what is given: the one is the rest of the other wherever a pod fits, and where none does,
/// nothing else is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rest {
    /// How full it is by the usual weights, in millionths.
    pub full: u32,
    /// Memory that a new pod may have: what is left, and nothing on a card that takes none.
    pub room_mib: u32,
    /// Percent that are left.
    pub free_cores: u16,
    /// Device IDs that are given, or the most that can be said here: more than any card has.
    pub used_slots: u16,
}

/// A card.
#[derive(Clone, Copy, Debug)]
pub struct Slim<'a> {
    /// What it has.
    pub has: &'a Has,
    /// What of it is left.
    pub rest: Rest,
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
    /// What its cards have.
    pub has: &'a [Has],
    /// What of each is left.
    pub rests: &'a [Rest],
    /// They have as much of everything, each of them.
    pub alike: bool,
    /// Of the cards that are there.
    pub totals: Totals,
}

/// All nodes, by number.
#[derive(Debug, Default)]
pub struct Shelf {
    rows: Vec<Row>,
    has: Vec<Has>,
    /// In the same places.
    rests: Vec<Rest>,
    /// How many of the places no row has any more.
    unused: usize,
}

impl Has {
    fn of(facts: &Facts) -> Self {
        let memory_mib = small(facts.memory_mib());
        Self {
            memory_mib,
            usable_mib: memory_mib.saturating_sub(small(facts.foreign_mib())),
            overhead_mib: small(facts.overhead_mib()),
            cores: smaller(facts.cores),
            slots: facts.slots,
            model: facts.model,
            standing: facts.standing,
        }
    }

    /// Slots, cores and memory.
    pub fn measures(&self) -> [u64; 3] {
        [self.slots.into(), self.cores.into(), self.memory_mib.into()]
    }

    fn is_like(&self, other: &Self) -> bool {
        self.measures() == other.measures() && self.overhead_mib == other.overhead_mib
    }
}

impl Rest {
    fn of(facts: &Facts, used: &Use, scale: &mut Scale) -> Self {
        let used_slots = smaller(used.slots);
        let closed = facts.standing != Standing::Open || used_slots >= facts.slots;
        let full = fullness::whole(scale.made_for(facts.has()).part(used.given()));
        Self {
            full: full.try_into().unwrap_or(u32::MAX),
            room_mib: if closed { 0 } else { small(facts.free_memory(used)) },
            free_cores: smaller(facts.cores.saturating_sub(used.cores)),
            used_slots,
        }
    }
}

impl<'a> Slim<'a> {
    /// A card as it would be if nobody had anything of it.
    pub fn empty(has: &'a Has) -> Self {
        let room_mib = if has.standing == Standing::Open { has.usable_mib } else { 0 };
        Self { has, rest: Rest { full: 0, room_mib, free_cores: has.cores, used_slots: 0 } }
    }

    /// What of it is given, where a pod fits: slots, cores and memory.
    pub fn given(&self) -> [u64; 3] {
        let Self { has, rest } = self;
        let cores = (has.cores - rest.free_cores).into();
        [rest.used_slots.into(), cores, (has.usable_mib - rest.room_mib).into()]
    }
}

impl<'a> Glance<'a> {
    /// Its cards.
    pub fn cards(&self) -> impl Iterator<Item = Slim<'a>> {
        self.has.iter().zip(self.rests).map(|(has, rest)| Slim { has, rest: *rest })
    }

    /// One of them; of what it has, what `alike` is about is right: slots, cores, memory and overhead.
    pub fn card(&self, at: u8) -> Slim<'a> {
        // Where all have the same, what the first one has is in the cache already.
        let like = if self.alike { 0 } else { usize::from(at) };
        Slim { has: &self.has[like], rest: self.rests[usize::from(at)] }
    }
}

impl Shelf {
    /// The node of that number.
    pub fn get(&self, number: u32) -> Glance<'_> {
        let row = &self.rows[number as usize];
        let place = row.start as usize..(row.start + row.count) as usize;
        let (has, rests) = (&self.has[place.clone()], &self.rests[place]);
        let Row { mode, placement, alike, totals, .. } = *row;
        Glance { mode, placement, has, rests, alike, totals }
    }

    /// Takes a node over as it is now.
    pub fn put(&mut self, number: u32, node: &Node) {
        let view = node.view();
        let count = view.cards.len();
        self.make_room(number, count);
        let row = &mut self.rows[number as usize];
        (row.mode, row.placement, row.totals) = (view.mode, view.placement, view.totals);
        let start = row.start as usize;
        let mut scale = Scale::by(Weights::default());
        for (at, (facts, used)) in (start..start + count).zip(view.facts.iter().zip(view.used)) {
            (self.has[at], self.rests[at]) = (Has::of(facts), Rest::of(facts, used, &mut scale));
        }
        let has = &self.has[start..start + count];
        row.alike = has.windows(2).all(|pair| pair[0].is_like(&pair[1]));
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
        if self.unused > self.has.len() / 2 {
            self.close_up();
        }
        (self.rows[at].start, self.rows[at].count) = (self.has.len() as u32, count as u32);
        let all = self.has.len() + count;
        self.has.resize(all, Has::default());
        self.rests.resize(all, Rest::default());
    }

    fn close_up(&mut self) {
        let left = self.has.len() - self.unused;
        let (mut has, mut rests) = (Vec::with_capacity(left), Vec::with_capacity(left));
        for row in &mut self.rows {
            let place = row.start as usize..(row.start + row.count) as usize;
            row.start = has.len() as u32;
            has.extend_from_slice(&self.has[place.clone()]);
            rests.extend_from_slice(&self.rests[place]);
        }
        (self.has, self.rests, self.unused) = (has, rests, 0);
    }
}

fn small(value: u64) -> u32 {
    value.try_into().unwrap_or(u32::MAX)
}

/// Nothing larger comes through `check`.
fn smaller(value: u32) -> u16 {
    value.try_into().unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::Rest;

    #[test]
    fn what_is_left_takes_twelve_bytes() {
        assert_eq!(size_of::<Rest>(), 12);
    }
}
