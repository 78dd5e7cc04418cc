//! The cluster allocator: which pod may have which card.
//!
//! It knows nodes with their cards, and pods with what they were given; it says which nodes could take
//! another pod and why the others could not, which of them is best, and which cards it gets there. One engine answers
//! the scheduler, `hami explain pod`, `hami what-if` and a replay at a desk. It does no I/O and reads no clock:
//! `now_ns` is an argument. The same state gives the same answer, but for nodes that are not looked at because a
//! namespace has used up its time (`spending`); ties are broken by name and index.
//!
//! | folder | what is in it |
//! |---|---|
//! | [`wire`] | what goes in and out as JSON, and what is refused |
//! | `rules` | what a request takes of a card, whether the card has room, and why not; quotas |
//! | `search` | which cards of a node, for all containers together, and how good the node would be |
//! | `state` | nodes, their names, pods and what they hold |
//! | `speed` | what is the same for many pods and nodes, and is worked out once |
//! | `engine` | the [`Allocator`] and the events that change it |
//! | `questions` | filter, prioritize, reserve, explain, victims, usage, snapshot |
//!
//! Each folder imports those above it in this table, and `questions` all of them.
//!
//! What always holds: no answer of [`Allocator::reserve`] takes the sum of what was given on a card beyond the card, in
//! memory, cores and slots, in any phase of the pods' lives, whatever the kubelet picks where it may choose. What the
//! API says is bound is taken as it is; where that is too much it is shown, and nothing is added.

mod engine;
mod questions;
mod rules;
mod search;
mod speed;
mod state;
pub mod wire;

pub use engine::Allocator;
pub use hami_limits::InvalidValue;
pub use questions::explain::{CardExplanation, ContainerExplanation, Explanation};
pub use questions::filter::Filtered;
pub use questions::prioritize::{MOST_PRIORITY, Rated};
pub use questions::reserve::Refusal;
pub use questions::usage::{CardUsage, NodeUsage, PodUsage};
pub use rules::card_reason::{CardReason, Tally};
pub use rules::node_reason::{NodeReason, QuotaReason};
pub use rules::shape;
pub use state::list::{List, Span, Texts};
pub use state::names::Numbers;
pub use wire::parse::parse;

/// What each ask is given.
type Grants = Box<[Box<[wire::Grant]>]>;
