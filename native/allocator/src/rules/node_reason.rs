//! Why a node does not do, with figures, for programs and for people.

use crate::rules::card_reason::{self, Tally};
use crate::wire::Mode;
use std::fmt;
use std::sync::Arc;

/// Why a node does not do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NodeReason {
    /// Nothing is known of cards there.
    NoCards,
    /// The pod wishes for another mode.
    Mode(Mode),
    /// The node gives whole cards only.
    WholeOnly,
    /// Too few cards.
    Cards {
        /// Which of the pod's containers with cards, and of how many.
        ask: (u8, u8),
        /// Its cards.
        tally: Box<Tally>,
    },
    /// No NUMA node has as many fitting cards as a container wants.
    Numa {
        /// How many it wants.
        wanted: u8,
        /// The most that one has.
        most: u8,
    },
    /// The free cards are not linked as well as others of this node.
    Links {
        /// How many cards must be linked.
        wanted: u8,
        /// The best sum of pairs that the node has; 0: its links are not known.
        best: u64,
    },
    /// Each container has fitting cards, but not all of them together.
    Together,
    /// As before, or so: the search was given up.
    TooMany,
    /// It was not looked at: others took too long.
    NotReached,
    /// The same, and its namespace's pods took too long before, too.
    Exhausted,
    /// A quota of the namespace.
    Quota(Box<QuotaReason>),
    /// The pod is bound to another node.
    Elsewhere(Arc<str>),
}

/// What a quota does not allow.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QuotaReason {
    /// Whose.
    pub namespace: String,
    /// The object.
    pub quota: String,
    /// `cards`, `MiB` or `% of cores`.
    pub unit: &'static str,
    /// Allowed, in use, asked for.
    pub figures: (u64, u64, u64),
}

impl NodeReason {
    /// Whether nobody is to be evicted for it: it is about what the node is, about a quota, or the pod is bound.
    pub fn is_lasting(&self) -> bool {
        matches!(self, Self::NoCards | Self::Mode(_) | Self::WholeOnly | Self::Quota(_))
            || matches!(self, Self::Elsewhere(_))
    }

    /// The same in few words and without what differs from node to node: kube-scheduler counts nodes by text,
    /// and shows all texts on the pod.
    pub fn brief(&self) -> String {
        match self {
            Self::Cards { tally, .. } => card_reason::brief(tally.nearest()).to_owned(),
            Self::Numa { wanted, .. } => format!("no NUMA node has {wanted} fitting cards"),
            Self::Links { wanted, best: 1.. } => {
                format!("no {wanted} free cards are linked as well as the node's best")
            }
            _ => self.to_string(),
        }
    }
}

impl fmt::Display for NodeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCards => f.write_str("no cards are registered"),
            Self::Mode(mode) => {
                write!(f, "its mode is {mode}, another is asked for")
            }
            Self::WholeOnly => f.write_str("it gives whole cards only (mode exclusive)"),
            Self::Cards { ask: (_, 1), tally } => tally.fmt(f),
            Self::Cards { ask: (ask, of), tally } => {
                write!(f, "container {} of {of} that ask: {tally}", ask + 1)
            }
            Self::Numa { wanted, most } => {
                write!(f, "no NUMA node has {wanted} fitting cards (the best has {most})")
            }
            Self::Links { wanted, best: 0 } => {
                write!(
                    f,
                    "it is not known how its cards are linked, and {wanted} linked are asked for"
                )
            }
            Self::Links { wanted, best } => {
                write!(f, "no {wanted} free cards are linked as well as the node's best ({best})")
            }
            Self::Together => {
                f.write_str("cards fit each container, but not all containers together")
            }
            Self::TooMany => f.write_str("no way was found to place all containers together"),
            Self::NotReached => f.write_str("not looked at yet, other nodes took too long"),
            Self::Exhausted => {
                f.write_str("not looked at, pods of its namespace have taken too long")
            }
            Self::Quota(quota) => quota.fmt(f),
            Self::Elsewhere(node) => write!(f, "the pod is bound to node {node}"),
        }
    }
}

impl fmt::Display for QuotaReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (allowed, used, asked) = self.figures;
        let Self { namespace, quota, unit, .. } = self;
        write!(f, "quota {quota} of namespace {namespace} allows {allowed} {unit}: ")?;
        write!(f, "{used} in use, {asked} asked")
    }
}
