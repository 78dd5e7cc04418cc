//! The kinds of launches that a thread makes, and what one of each takes: the table that the launch
//! wrapper looks into.
//!
//! Two kinds share a cache line, and a line is found by a hash that [`crate::arch`] and this file
//! compute alike. A training step makes some hundred kinds of launches: with this many lines hardly
//! three of them want the same one. That is 64 KiB for each thread that launches under a share.
//!
//! What was learned meanwhile is looked up again whenever the thread comes by the gate, so the
//! table is at most one ticket behind.

use super::learned;
use crate::compute::shape::Launch;
use crate::compute::ticket::Price;

/// How many lines there are.
const LINES: usize = 1 << LINE_BITS;
const LINE_BITS: u32 = 10;

/// The hash is Horner's rule modulo 2^32 in this number, which is odd and nothing that addresses and
/// grids have in common: 2^32 over the golden ratio.
pub(crate) const HASH: u32 = 0x9e37_79b9;
/// What is left of it is the number of the line.
pub(crate) const HASH_SHIFT: u32 = 32 - LINE_BITS;

/// One kind of launch. All zero: none; no driver takes a launch without function and grid.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Kind {
    pub(crate) function: usize,
    pub(crate) grid: [u32; 3],
    pub(crate) price: Price,
}

/// Kinds with the same hash.
#[repr(C, align(64))]
#[derive(Clone, Copy, Default)]
pub(crate) struct Line(pub(crate) [Kind; WAYS]);

const WAYS: usize = 2;

impl Kind {
    fn is_of(&self, launch: &Launch) -> bool {
        (self.function, self.grid) == (launch.function, launch.grid)
    }

    fn launch_key(&self) -> u64 {
        Launch::key_of(self.function, self.grid)
    }
}

/// Where a kind stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Place {
    line: u16,
    way: u8,
}

/// See the module.
pub(in crate::compute) struct Kinds {
    lines: Box<[Line]>,
    filled: Vec<Place>,
    /// Which of two ways makes room next.
    leaves: u8,
    /// The state of what was learned that the prices are of.
    changes: u32,
    /// The kind that was looked up last.
    last: Place,
    /// The one kind that is not counted as another.
    own: Place,
}

impl Default for Kinds {
    fn default() -> Self {
        Self {
            lines: vec![Line::default(); LINES].into(),
            filled: Vec::new(),
            leaves: 0,
            changes: 0,
            last: Place::default(),
            own: Place::default(),
        }
    }
}

impl Kinds {
    /// The ns that a launch is predicted to take, at least 1; `None` where nobody knows.
    pub(in crate::compute) fn cost(&mut self, launch: &Launch) -> Option<u64> {
        self.follow();
        let line = line_of(launch.function, launch.grid);
        let place = self.place_of(launch, line).unwrap_or_else(|| self.insert(launch, line));
        self.last = place;
        match self.at(place).map(|kind| kind.price.ns()) {
            Some(ns) if ns < Price::DEAR_NS => Some(u64::from(ns)),
            // Not known, or more than fits.
            _ => learned::cost_of(launch.key()),
        }
    }

    /// From here on launches of the kind that was looked up last are the batch's own, and all others
    /// are counted as such.
    pub(in crate::compute) fn set_own(&mut self) {
        let (before, own) = (self.own, self.last);
        self.own = own;
        for (place, is_other) in [(before, true), (own, false)] {
            if let Some(kind) = self.at_mut(place).filter(|kind| kind.function != 0) {
                kind.price = kind.price.as_other(is_other);
            }
        }
    }

    /// The table, as the wrapper reads it until it is next changed.
    pub(in crate::compute) fn table(&self) -> *const Line {
        self.lines.as_ptr()
    }

    /// Brings the prices up to date.
    fn follow(&mut self) {
        let changes = learned::changes();
        if self.changes == changes {
            return;
        }
        self.changes = changes;
        learned::with_costs(|costs| {
            for place in &self.filled {
                let line = self.lines.get_mut(usize::from(place.line));
                if let Some(kind) = line.and_then(|line| line.0.get_mut(usize::from(place.way))) {
                    let is_other = kind.price.has_others();
                    kind.price = price(costs.cost(kind.launch_key())).as_other(is_other);
                }
            }
        });
    }

    fn place_of(&self, launch: &Launch, line: u16) -> Option<Place> {
        let kinds = &self.lines.get(usize::from(line))?.0;
        let way = kinds.iter().position(|kind| kind.is_of(launch))?;
        Some(Place { line, way: way as u8 })
    }

    #[cold]
    fn insert(&mut self, launch: &Launch, line: u16) -> Place {
        let kinds = self.lines.get(usize::from(line));
        let free = kinds.and_then(|line| line.0.iter().position(|kind| kind.function == 0));
        let place = if let Some(way) = free {
            let place = Place { line, way: way as u8 };
            self.filled.push(place);
            place
        } else {
            self.leaves ^= 1;
            Place { line, way: self.leaves }
        };
        let price = price(learned::cost_of(launch.key()));
        if let Some(kind) = self.at_mut(place) {
            *kind = Kind { function: launch.function, grid: launch.grid, price };
        }
        place
    }

    fn at(&self, place: Place) -> Option<&Kind> {
        self.lines.get(usize::from(place.line))?.0.get(usize::from(place.way))
    }

    fn at_mut(&mut self, place: Place) -> Option<&mut Kind> {
        self.lines.get_mut(usize::from(place.line))?.0.get_mut(usize::from(place.way))
    }
}

/// What a launch takes off a ticket, until it is known to be of the batch's own kind.
fn price(cost: Option<u64>) -> Price {
    // A kernel may have been too short to be measured.
    let ns = cost.map(|cost| cost.clamp(1, u64::from(Price::DEAR_NS)));
    Price::of_launch(ns.map_or(Price::DEAR_NS, |ns| ns as u32))
}

/// The line of a kind, as the wrapper computes it.
pub(in crate::compute) fn line_of(function: usize, grid: [u32; 3]) -> u16 {
    let [x, y, z] = grid;
    let hash = [y, x, function as u32, 0]
        .iter()
        .fold(z, |hash, next| hash.wrapping_mul(HASH).wrapping_add(*next));
    (hash >> HASH_SHIFT) as u16
}
