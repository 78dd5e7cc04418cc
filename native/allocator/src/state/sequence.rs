//! Which name followed which when many were asked for: next time it is mostly the same, and then there is nothing
//! to look up.
//!
//! kube-scheduler's workers take one chunk of nodes after the other and write what they find into one list, so
//! two or more orders are mixed in it, now some names of the one and now some of the other.
//!
//! Names are called by their places in memory. What follows is best found at the next place, where it has
//! come before it is asked for; so it is counted how often it was elsewhere, and names move ([`crate::state::names`]).

/// No place.
const NONE: u32 = u32::MAX;

/// Of so many steps one may lead elsewhere: the last name of a chunk is followed by any chunk's first one.
const ELSEWHERE: usize = 8;

/// What followed each name: its own place is one behind the name's; in the first one, what came first.
#[derive(Debug, Default)]
pub struct Sequence {
    /// What mostly follows, and what did the last time that it did not.
    next: Vec<[u32; 2]>,
    /// Steps that led elsewhere since names were arranged, of lists with many of them.
    elsewhere: usize,
}

/// A way along a sequence.
#[derive(Debug)]
pub struct Walk<'a> {
    next: &'a mut [[u32; 2]],
    here: usize,
    /// Where the other order was left.
    other: usize,
    steps: usize,
    elsewhere: usize,
}

impl Sequence {
    /// From its beginning, along `count` names.
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

    /// Whether moving the names would have cost less than looking elsewhere for so many of them.
    pub fn is_scattered(&self) -> bool {
        self.elsewhere >= self.next.len()
    }

    /// All places, each before the one that mostly follows it, as far as that goes. From now on the sequence is of
    /// names that have moved so.
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
    /// The next place, if `is` says so of one of the guesses.
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

    /// It was this one. What followed once by chance does not take the place of what follows as a rule.
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
