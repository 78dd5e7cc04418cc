//! The cards of a node that fit each container by itself, and the reasons of the others.

use crate::rules::card_reason::{CardReason, Tally};
use crate::rules::class::Class;
use crate::rules::fit;
use crate::rules::node_reason::NodeReason;
use crate::rules::view::View;
use crate::search::effort::Effort;
use crate::search::topology::{self, Choice};
use crate::wire::ContainerRequest;

/// The cards with room for an ID of the group.
pub fn candidates_of(class: &Class, view: &View<'_>, group: usize) -> Result<Vec<u8>, NodeReason> {
    let (mut cards, wanted) = (Vec::new(), class.shape.groups[group].count);
    let mut tally = Tally::of(view.cards.len() as u8, 0, wanted as u8);
    for card in 0..view.cards.len() {
        let reason = fit::fits(class, view, card, group).err();
        match reason {
            None => cards.push(card as u8),
            Some(reason) => tally.count(reason),
        }
        // One card can have all instances.
        if view.has_mig(card as u8) && !reason.is_some_and(CardReason::lasts) {
            tally.least = 1;
        }
    }
    if cards.len() >= wanted || cards.iter().any(|card| view.has_mig(*card)) {
        return Ok(cards);
    }
    tally.fit = cards.len() as u8;
    let container = (class.shape.groups[group].container as u8, class.containers.len() as u8);
    Err(NodeReason::Cards { container, tally: Box::new(tally) })
}

/// The best sum of link scores that the empty node has, by container.
pub fn best_links(
    class: &Class,
    view: &View<'_>,
    effort: &mut Effort,
) -> Result<Vec<u64>, NodeReason> {
    let (rooms, allocated) = view.emptied();
    let empty = View { rooms: &rooms, allocated: &allocated, ..*view };
    let mut best = |container: &ContainerRequest| {
        if container.cards < 2 {
            return Ok(0);
        }
        let usable = |card: &usize| {
            (0..class.shape.groups.len())
                .any(|group| fit::fits(class, &empty, *card, group).is_ok())
        };
        let from: Vec<u8> = (0..view.cards.len()).filter(usable).map(|card| card as u8).collect();
        let count = container.cards as usize;
        let choice = Choice { from: &from, with: &[], count, one_numa: class.card_request.numa };
        match topology::best(&empty, choice, effort) {
            Some((sum, _)) if sum > 0 => Ok(sum),
            None if effort.is_over() => Err(NodeReason::TooMany),
            _ => Err(NodeReason::Links { requested: container.cards as u8, best: 0 }),
        }
    };
    class.containers.iter().map(&mut best).collect()
}
