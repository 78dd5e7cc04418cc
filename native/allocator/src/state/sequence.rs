//! Predicts which name follows which, so that names need not be looked up by hash.
//!
//! kube-scheduler lists its nodes in the same order in most requests. Its workers take chunks of
//! nodes and append what they find to one list, so two or more orders may be interleaved.
//!
//! A name is identified by its slot in memory. A prediction is fastest if the next name is in the
//! next slot, because the processor has loaded that one already. So the sequence counts how often
//! it was in another one, and then the names move ([`crate::state::names`]).

/// No slot.
const NONE: u32 = u32::MAX;

/// One of this many steps may lead to another slot: the last name of a chunk is followed by the
/// first one of any chunk.
const ELSEWHERE: usize = 8;

/// The successor of each name in lists. The entry of a name is one behind its slot; the first entry
/// is for the start of the list.
#[derive(Debug, Default)]
pub struct Sequence {
    /// The usual successor, and the last other one.
    next: Vec<[u32; 2]>,
    /// The number of steps to other slots since the names last moved, in lists with many of them.
    elsewhere: usize,
}

/// One pass along a sequence.
#[derive(Debug)]
pub struct Walk<'a> {
    next: &'a mut [[u32; 2]],
    here: usize,
    /// The position in the other, interleaved order.
    other: usize,
    steps: usize,
    elsewhere: usize,
}

impl Sequence {
    /// Starts a pass along `count` names.
    pub fn walk<T>(&mut self, count: usize, along: impl FnOnce(&mut Walk<'_>) -> T) -> T {
        self.next.resize(count + 1, [NONE; 2]);
        let next = &mut self.next;
        let mut walk = Walk { next, here: 0, other: 0, steps: 0, elsewhere: 0 };
        let found = along(&mut walk);
        if walk.elsewhere > walk.steps / ELSEWHERE {
            self.elsewhere += walk.elsewhere;
        }
        found
    }

    /// Whether moving the names would have been cheaper than the steps to other slots.
    pub fn is_scattered(&self) -> bool {
        self.elsewhere >= self.next.len()
    }

    /// All slots in the order of the sequence. Afterwards the sequence expects that the names have
    /// moved so.
    pub fn arrange(&mut self) -> Vec<u32> {
        let mut order = Vec::with_capacity(self.next.len() - 1);
        let mut moved = vec![NONE; self.next.len() - 1];
        for from in [self.next[0][0]].into_iter().chain(0..moved.len() as u32) {
            let mut place = from;
            while let Some(to) = moved.get_mut(place as usize).filter(|to| **to == NONE) {
                *to = order.len() as u32;
                order.push(place);
                place = self.next[place as usize + 1][0];
            }
        }
        let new = |place: u32| moved.get(place as usize).copied().unwrap_or(NONE);
        let old = std::iter::once(0).chain(order.iter().map(|place| *place as usize + 1));
        self.next = old.map(|place| self.next[place].map(new)).collect();
        self.elsewhere = 0;
        order
    }
}

impl Walk<'_> {
    /// The next slot, if `is` confirms one of the two predictions.
    #[inline]
    pub fn step(&mut self, is: impl Fn(u32) -> bool) -> Option<u32> {
        let guess = self.next[self.here][0];
        if is(guess) {
            self.arrive(guess, self.here);
            return Some(guess);
        }
        let guess = self.next[self.other][0];
        if !is(guess) {
            return None;
        }
        let from = std::mem::replace(&mut self.other, self.here);
        self.arrive(guess, from);
        Some(guess)
    }

    #[inline]
    fn arrive(&mut self, place: u32, from: usize) {
        self.steps += 1;
        self.elsewhere += usize::from(place as usize != from);
        self.here = place as usize + 1;
    }

    /// Records the slot that followed. A single exception does not replace what follows mostly.
    pub fn jump(&mut self, place: u32) {
        let [first, second] = &mut self.next[self.here];
        if *first == NONE {
            *first = place;
        } else if *second == place {
            std::mem::swap(first, second);
        } else {
            *second = place;
        }
        (self.other, self.here) = (self.here, place as usize + 1);
    }
}
