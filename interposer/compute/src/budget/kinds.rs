//! The kinds of launches that a thread makes (kernel and grid), each with its estimate: the table
//! that the launch wrapper reads.
//!
//! Two kinds share a cache line. A hash selects the line; the wrapper's assembly and this file
//! compute it in the same way. A training step has some hundred kinds of launches, and with this
//! many lines it is rare that three of them need the same one. The table takes 64 KiB in each
//! thread that launches under a share.
//!
//! Estimates are updated whenever a launch of the thread needs admission, so the table is at most
//! one budget behind.

use super::costs;
use super::estimate::Estimate;
use crate::launch::Launch;

/// How many lines there are.
const LINES: usize = 1 << LINE_BITS;
const LINE_BITS: u32 = 10;

/// The hash is Horner's rule modulo 2^32 with this factor: 2^32 over the golden ratio, odd and
/// unrelated to addresses and grids.
pub const HASH: u32 = 0x9e37_79b9;
/// The hash shifted right by this is the number of the line.
pub const HASH_SHIFT: u32 = 32 - LINE_BITS;

/// One kind of launch. All zero is none: every launch has a function.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Kind {
    /// The function or executable graph.
    pub function: usize,
    /// The grid; all 0 for a graph.
    pub grid: [u32; 3],
    /// The part of the budget that one launch uses.
    pub estimate: Estimate,
}

/// The kinds with the same hash.
#[repr(C, align(64))]
#[derive(Clone, Copy, Default)]
pub struct Line([Kind; WAYS]);

const WAYS: usize = 2;

impl Kind {
    fn is_of(&self, launch: &Launch) -> bool {
        (self.function, self.grid) == (launch.function, launch.grid)
    }

    fn launch_key(&self) -> u64 {
        Launch::key_of(self.function, self.grid)
    }
}

/// The position of a kind in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Position {
    line: u16,
    way: u8,
}

/// The table of one thread.
pub struct Kinds {
    lines: Box<[Line]>,
    filled: Vec<Position>,
    /// The way that was replaced last.
    replaced: u8,
    /// [`costs::changes`] when the estimates were last updated.
    changes: u32,
    /// The kind that was looked up last.
    last: Position,
    /// The one kind that does not count as another.
    own: Position,
}

impl Default for Kinds {
    fn default() -> Self {
        Self {
            lines: vec![Line::default(); LINES].into(),
            filled: Vec::new(),
            replaced: 0,
            changes: 0,
            last: Position::default(),
            own: Position::default(),
        }
    }
}

impl Kinds {
    /// The nanoseconds that a launch is predicted to take, at least 1; `None` if its kernel was
    /// never measured.
    pub fn cost(&mut self, launch: &Launch) -> Option<u64> {
        self.update();
        let line = line_of(launch.function, launch.grid);
        let position = self.position_of(launch, line).unwrap_or_else(|| self.insert(launch, line));
        self.last = position;
        match self.at(position).map(|kind| kind.estimate.ns()) {
            Some(ns) if ns < Estimate::UNPAYABLE_NS => Some(u64::from(ns)),
            // Unknown, or too large for an estimate.
            _ => costs::cost_of(launch.key()),
        }
    }

    /// Makes the kind that was looked up last the batch's own. All other kinds count as others.
    pub fn set_own(&mut self) {
        let (before, own) = (self.own, self.last);
        self.own = own;
        for (position, is_other) in [(before, true), (own, false)] {
            if let Some(kind) = self.at_mut(position).filter(|kind| kind.function != 0) {
                kind.estimate = kind.estimate.as_other(is_other);
            }
        }
    }

    /// The lines, which the wrapper reads.
    pub fn table(&self) -> *const Line {
        self.lines.as_ptr()
    }

    /// Brings the estimates up to date.
    fn update(&mut self) {
        let changes = costs::changes();
        if self.changes == changes {
            return;
        }
        self.changes = changes;
        costs::with_costs(|costs| {
            for position in &self.filled {
                let line = self.lines.get_mut(usize::from(position.line));
                if let Some(kind) = line.and_then(|line| line.0.get_mut(usize::from(position.way)))
                {
                    let is_other = kind.estimate.has_others();
                    kind.estimate = estimate(costs.cost(kind.launch_key())).as_other(is_other);
                }
            }
        });
    }

    fn position_of(&self, launch: &Launch, line: u16) -> Option<Position> {
        let kinds = &self.lines.get(usize::from(line))?.0;
        let way = kinds.iter().position(|kind| kind.is_of(launch))?;
        Some(Position { line, way: way as u8 })
    }

    #[cold]
    fn insert(&mut self, launch: &Launch, line: u16) -> Position {
        let kinds = self.lines.get(usize::from(line));
        let free = kinds.and_then(|line| line.0.iter().position(|kind| kind.function == 0));
        let position = if let Some(way) = free {
            let position = Position { line, way: way as u8 };
            self.filled.push(position);
            position
        } else {
            self.replaced ^= 1;
            Position { line, way: self.replaced }
        };
        let estimate = estimate(costs::cost_of(launch.key()));
        if let Some(kind) = self.at_mut(position) {
            *kind = Kind { function: launch.function, grid: launch.grid, estimate };
        }
        position
    }

    fn at(&self, position: Position) -> Option<&Kind> {
        self.lines.get(usize::from(position.line))?.0.get(usize::from(position.way))
    }

    fn at_mut(&mut self, position: Position) -> Option<&mut Kind> {
        self.lines.get_mut(usize::from(position.line))?.0.get_mut(usize::from(position.way))
    }
}

/// The part of a budget that a launch uses, until it is known to be of the batch's own kind.
fn estimate(cost: Option<u64>) -> Estimate {
    // A kernel may have been too short to be measured.
    let ns = cost.map(|cost| cost.clamp(1, u64::from(Estimate::UNPAYABLE_NS)));
    Estimate::of_launch(ns.map_or(Estimate::UNPAYABLE_NS, |ns| ns as u32))
}

/// The number of the line of a kind, as the wrapper computes it.
pub fn line_of(function: usize, grid: [u32; 3]) -> u16 {
    let [x, y, z] = grid;
    let hash = [y, x, function as u32, 0]
        .iter()
        .fold(z, |hash, next| hash.wrapping_mul(HASH).wrapping_add(*next));
    (hash >> HASH_SHIFT) as u16
}
