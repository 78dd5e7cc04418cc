//! What quotas say of a node before its cards are chosen.
//!
//! A share of a card counts as what it comes to there. Mostly that is one number for all of a node's cards, and
//! then which of them it is of makes no difference.

use crate::class::Class;
use crate::demand;
use crate::node::Node;
use crate::quota::{Room, Spent};
use crate::reason::NodeReason;
use crate::wire::{Ask, Mode};

/// What they say.
pub enum Bound {
    /// Yes, whichever cards are chosen.
    Allows,
    /// No, whichever they are.
    Forbids(NodeReason),
    /// They say it of some.
    Depends,
}

impl Bound {
    /// Of this node.
    pub fn of(class: &Class, room: &Room<'_>, node: &Node) -> Self {
        if node.mode == Mode::Mig {
            return Self::Depends;
        }
        let limit = |facts, ask: &Ask| demand::limit(&ask.memory, facts);
        let most = |ask: &Ask| node.facts.iter().map(|facts| limit(facts, ask)).max().unwrap_or(0);
        let least = |ask: &Ask| node.facts.iter().map(|facts| limit(facts, ask)).min().unwrap_or(0);
        if room.over(&Spent::with(&class.asks, most)).is_none() {
            return Self::Allows;
        }
        let over = room.over(&Spent::with(&class.asks, least));
        over.map_or(Self::Depends, |over| Self::Forbids(NodeReason::Quota(Box::new(over))))
    }
}

/// The quota that forbids such pods on whatever card.
pub fn over(class: &Class, room: &Room<'_>) -> Option<NodeReason> {
    let over = room.over(&Spent::of(&class.asks, |_| &[], false))?;
    Some(NodeReason::Quota(Box::new(over)))
}
