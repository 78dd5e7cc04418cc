//! Which name followed which when many were asked for: next time it is mostly the same, and then there is nothing
//! to look up.
//!
//! kube-scheduler's workers take one chunk of nodes after the other and write what they find into one list, so
//! two or more orders are mixed in it, now some names of the one and now some of the other.

/// No number.
const NONE: u32 = u32::MAX;

/// What followed each name: its place is behind the name's number; in the first one, what came first.
#[derive(Debug, Default)]
pub struct Sequence(Vec<[u32; 2]>);

/// A way along a sequence.
#[derive(Debug)]
pub struct Walk<'a> {
    /// What mostly follows, and what did the last time that it did not.
    next: &'a mut [[u32; 2]],
    here: usize,
    /// Where the other order was left.
    other: usize,
}

impl Sequence {
    /// From its beginning; numbers are below `count`.
    pub fn walk(&mut self, count: usize) -> Walk<'_> {
        self.0.resize(count + 1, [NONE; 2]);
        Walk { next: &mut self.0, here: 0, other: 0 }
    }
}

impl Walk<'_> {
    /// The next number, if `is` says so of one of the guesses.
    #[inline]
    pub fn step(&mut self, is: impl Fn(u32) -> bool) -> Option<u32> {
        let guess = self.next[self.here][0];
        if is(guess) {
            self.here = guess as usize + 1;
            return Some(guess);
        }
        let guess = self.next[self.other][0];
        if !is(guess) {
            return None;
        }
        (self.other, self.here) = (self.here, guess as usize + 1);
        Some(guess)
    }

    /// It was this one. What followed once by chance does not take the place of what follows as a rule.
    pub fn jump(&mut self, number: u32) {
        let [first, second] = &mut self.next[self.here];
        if *first == NONE {
            *first = number;
        } else if *second == number {
            std::mem::swap(first, second);
        } else {
            *second = number;
        }
        (self.other, self.here) = (self.here, number as usize + 1);
    }
}
