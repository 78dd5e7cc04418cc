//! The reasons why a node does not fit.

use crate::rules::card_reason::{self, Tally};
use crate::wire::Mode;
use std::fmt;
use std::sync::Arc;

/// The reason why a node does not fit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NodeReason {
    /// The node has no published cards.
    NoCards,
    /// The pod requests another mode.
    Mode(Mode),
    /// The node allocates whole cards only, and the pod requests a part of a card.
    WholeOnly,
    /// The node has fewer cards than a container requests.
    FewCards {
        /// The number of requested cards.
        requested: u8,
        /// The number of published cards, whatever their state.
        cards: u8,
    },
    /// Too few cards fit.
    Cards {
        /// The index of the container that has too few, and the number of containers that request
        /// cards.
        container: (u8, u8),
        /// The reasons of the cards.
        tally: Box<Tally>,
    },
    /// No NUMA node has enough fitting cards for a container.
    Numa {
        /// The number of requested cards.
        requested: u8,
        /// The largest number of fitting cards on one NUMA node.
        most: u8,
    },
    /// The cards that fit are not linked as well as the best cards of the node.
    Links {
        /// The number of cards that must be linked.
        requested: u8,
        /// The best sum of link scores on the node; 0 if its links are not known.
        best: u64,
    },
    /// There are cards that fit each container, but not for all containers together.
    Together,
    /// The pod would not fit the node without other pods and with all cards in order, for this reason.
    Never(Box<Self>),
    /// The search ended before it found cards for all containers.
    TooMany,
    /// The node was not searched, because the search of other nodes took too long.
    NotReached,
    /// The node was not searched, because earlier searches for the namespace took too long.
    Exhausted,
    /// A quota of the namespace does not allow it.
    Quota(Box<QuotaReason>),
    /// The pod is bound to another node.
    Elsewhere(Arc<str>),
}

/// A quota that does not allow a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QuotaReason {
    /// The namespace of the quota.
    pub namespace: String,
    /// The name of the quota.
    pub quota: String,
    /// The unit of the amounts: `cards`, `MiB` or `% of cores`.
    pub unit: &'static str,
    /// The allowed, allocated and requested amount.
    pub figures: (u64, u64, u64),
}

impl NodeReason {
    /// Whether no eviction would help: the reason is the node itself, a quota, or that the pod is
    /// bound elsewhere.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::NoCards
            | Self::Mode(_)
            | Self::WholeOnly
            | Self::FewCards { .. }
            | Self::Never(_)
            | Self::Quota(_)
            | Self::Elsewhere(_) => true,
            Self::Cards { tally, .. } => tally.never_fits(),
            _ => false,
        }
    }

    /// A short text without amounts. kube-scheduler groups nodes by text and shows all texts on the
    /// pod.
    pub fn brief(&self) -> String {
        match self {
            Self::Cards { tally, .. } => card_reason::brief(tally.nearest()).to_owned(),
            Self::FewCards { .. } => card_reason::brief(None).to_owned(),
            Self::Never(reason) => format!("never fits: {}", reason.brief()),
            Self::Numa { requested, .. } => format!("no NUMA node has {requested} fitting cards"),
            Self::Links { requested, best: 1.. } => {
                format!("no {requested} free cards are linked as well as the node's best")
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
                write!(f, "it has another mode ({mode}) than the pod requests")
            }
            Self::WholeOnly => f.write_str("it allocates whole cards only (mode exclusive)"),
            Self::FewCards { requested, cards } => {
                write!(f, "never fits: {requested} cards are requested, and the node has {cards}")
            }
            Self::Never(reason) => write!(f, "never fits: {reason}"),
            Self::Cards { container: (container, of), tally } => {
                f.write_str(card_reason::never(tally.nearest()))?;
                if *of == 1 {
                    return tally.fmt(f);
                }
                write!(f, "container {} of {of} that request cards: {tally}", container + 1)
            }
            Self::Numa { requested, most } => {
                write!(f, "no NUMA node has {requested} fitting cards (the best has {most})")
            }
            Self::Links { requested, best: 0 } => {
                write!(
                    f,
                    "it is not known how its cards are linked, and {requested} linked cards are requested"
                )
            }
            Self::Links { requested, best } => {
                write!(
                    f,
                    "no {requested} free cards are linked as well as the node's best ({best})"
                )
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
        let (allowed, allocated, requested) = self.figures;
        let Self { namespace, quota, unit, .. } = self;
        if requested > allowed {
            f.write_str("never fits: ")?;
        }
        write!(f, "quota {quota} of namespace {namespace} allows {allowed} {unit}: ")?;
        write!(f, "{allocated} in use, {requested} requested")
    }
}
