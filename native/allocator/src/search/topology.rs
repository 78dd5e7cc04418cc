//! Finds the best linked subset of some cards, by branch and bound.
//!
//! With eight cards it always finds the best subset. With sixteen it stops after a fixed number of
//! steps and keeps the best subset so far. On most nodes all links are equal, and then that is the
//! first one. If it has found none by then, it returns none.

use crate::rules::view::View;
use crate::search::effort::{Effort, Step};

/// Enough for every subset of eight cards. The limit of the node may end the search earlier.
const STEPS: u32 = 20_000;

/// The cards to choose from.
#[derive(Clone, Copy)]
pub struct Choice<'a> {
    /// In order: of equally linked cards the earlier ones win.
    pub from: &'a [u8],
    /// The cards that the container has already.
    pub with: &'a [u8],
    /// The number of cards to add.
    pub count: usize,
    /// Whether all cards must be on one known NUMA node.
    pub one_numa: bool,
}

struct Search<'a> {
    view: &'a View<'a>,
    choice: Choice<'a>,
    /// The best link score of any pair.
    best_pair: u64,
    hand: Vec<u8>,
    best: Option<(u64, Vec<u8>)>,
    steps: u32,
    effort: &'a mut Effort,
}

/// The best choice, and the sum of the link scores of all its pairs.
pub fn best(view: &View<'_>, choice: Choice<'_>, effort: &mut Effort) -> Option<(u64, Vec<u8>)> {
    let best_pair = best_pair(view);
    let hand = choice.with.to_vec();
    let mut search = Search { view, choice, best_pair, hand, best: None, steps: 0, effort };
    let start = pairs(view, choice.with);
    search.descend(0, start);
    search.best
}

/// The best link score of any pair of the node.
pub fn best_pair(view: &View<'_>) -> u64 {
    view.links.iter().copied().max().unwrap_or(0).into()
}

/// The sum of the link scores of all pairs.
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
