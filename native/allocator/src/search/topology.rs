//! The best linked so many of some cards.
//!
//! Branch and bound over all subsets. With eight cards it always looks at all it has to; with sixteen it
//! stops after a fixed number of steps and keeps the best so far, which with uniform links, the usual
//! case, is the very first. Where none was found by then it says that there is none.

use crate::rules::view::View;
use crate::search::effort::{Effort, Step};

/// Enough for every subset of eight cards, many times over; less where the node has had its part before.
const STEPS: u32 = 20_000;

/// Which cards may be chosen, and with what.
#[derive(Clone, Copy)]
pub struct Choice<'a> {
    /// The best first: between equally linked ones, earlier cards win.
    pub from: &'a [u8],
    /// Cards that the container has anyway.
    pub with: &'a [u8],
    /// How many more.
    pub count: usize,
    /// Whether all must be of one known NUMA node.
    pub one_numa: bool,
}

struct Search<'a> {
    view: &'a View<'a>,
    choice: Choice<'a>,
    /// No pair is linked better.
    best_pair: u64,
    hand: Vec<u8>,
    best: Option<(u64, Vec<u8>)>,
    steps: u32,
    effort: &'a mut Effort,
}

/// The sum over all pairs of the chosen cards and those they go with, and the chosen ones.
pub fn best(view: &View<'_>, choice: Choice<'_>, effort: &mut Effort) -> Option<(u64, Vec<u8>)> {
    let best_pair = best_pair(view);
    let hand = choice.with.to_vec();
    let mut search = Search { view, choice, best_pair, hand, best: None, steps: 0, effort };
    let start = pairs(view, choice.with);
    search.descend(0, start);
    search.best
}

/// No pair is linked better.
pub fn best_pair(view: &View<'_>) -> u64 {
    view.links.iter().copied().max().unwrap_or(0).into()
}

/// The sum over all pairs.
pub fn pairs(view: &View<'_>, cards: &[u8]) -> u64 {
    let one = |(at, card): (usize, &u8)| to_all(view, *card, &cards[..at]);
    cards.iter().enumerate().map(one).sum()
}

fn to_all(view: &View<'_>, card: u8, others: &[u8]) -> u64 {
    others.iter().map(|other| view.link(card.into(), (*other).into())).sum()
}

impl Search<'_> {
    fn descend(&mut self, next: usize, sum: u64) {
        let whole = self.choice.with.len() + self.choice.count;
        if self.hand.len() == whole {
            if self.best.as_ref().is_none_or(|(best, _)| sum > *best) {
                self.best = Some((sum, self.hand[self.choice.with.len()..].to_vec()));
            }
            return;
        }
        let pairs = |cards: usize| (cards * cards.saturating_sub(1) / 2) as u64;
        let left = (pairs(whole) - pairs(self.hand.len())) * self.best_pair;
        for at in next..self.choice.from.len() {
            let is_hopeless = self.choice.from.len() - at < whole - self.hand.len();
            let is_beaten = self.best.as_ref().is_some_and(|(best, _)| sum + left <= *best);
            if is_hopeless || is_beaten || self.steps > STEPS || self.effort.is_over() {
                return;
            }
            let card = self.choice.from[at];
            if !self.may_join(card) {
                continue;
            }
            self.steps += 1;
            self.effort.step(Step::Link);
            let more = to_all(self.view, card, &self.hand);
            self.hand.push(card);
            self.descend(at + 1, sum + more);
            self.hand.pop();
        }
    }

    fn may_join(&self, card: u8) -> bool {
        let numa = |card: u8| self.view.numa(card);
        let Some(first) = self.hand.first() else {
            return !self.choice.one_numa || numa(card).is_some();
        };
        !self.choice.one_numa || (numa(card).is_some() && numa(card) == numa(*first))
    }
}
