//! The cluster allocator decides which pod gets which cards of which node.
//!
//! The state is nodes with their cards, and pods with the cards that are allocated to them. From it
//! the allocator answers which nodes fit another pod and why the others do not, how good each node
//! would be, and which cards the pod gets there. The scheduler extender, `hami explain pod`, `hami
//! what-if` and `hami replay` all use it.
//!
//! It does no I/O and reads no clock: `now_ns` is an argument. The same state gives the same
//! answers, except for nodes that are not searched because a namespace has used its search steps
//! (`state::spending`). Names and indexes break ties.
//!
//! **Invariant:** no answer of [`Allocator::reserve`] takes what is allocated on a card beyond the
//! card, in memory, cores and slots, in any phase of the pods, whatever the kubelet picks where it
//! has a choice. A pod that the API server reports as bound is recorded as it is. If a card then
//! has too much, it is reported, and gets no other pod.
//!
//! | folder | content |
//! |---|---|
//! | [`wire`] | the JSON types, and the checks of their values |
//! | `rules` | what a request takes of a card, whether the card has room, and why not; fullness; quotas |
//! | `search` | which cards of a node, for all containers together, and the score of the node |
//! | `state` | nodes, their names, and the allocations of pods |
//! | `speed` | caches and the fast path: what is equal for many pods and nodes is computed once |
//! | `engine` | the [`Allocator`] and the events that change it |
//! | `questions` | filter, prioritize, reserve, victims, explain, usage, snapshot |
//!
//! Each folder may import from the folders above it in this table.
//!
//! # One request
//!
//! 1. `questions::filter` receives a [`wire::PodRequest`] and the names of nodes. `wire::check`
//!    rejects invalid values, and `state::names` looks up the numbers of the nodes.
//! 2. `speed::cache` finds the class of the request (`rules::class`), or creates it: how the
//!    kubelet will distribute the device IDs (`rules::shape`), and what each ID takes of a card
//!    (`rules::demand`).
//! 3. `questions::judge` goes through the nodes. A node that has not changed since the last request
//!    of the class has a cached verdict (`speed::verdict`). Otherwise `speed::fast_path` judges the
//!    common case, and `search::find` the rest. Both ask `rules::fit` whether a card has room,
//!    `search::order` which card comes first, and `search::score` for the score of the node.
//! 4. `questions::prioritize` turns the scores into priorities for kube-scheduler, and holds the
//!    cards of the best node.
//! 5. `questions::reserve` allocates the cards when the pod is bound. Later `Allocator::place`
//!    records what the API server reports. Each of these goes through `engine::update`, which sums
//!    up the node and starts a new generation of it.
//!
//! # Where to change
//!
//! | change | file |
//! |---|---|
//! | the score of a node | `search/score.rs` |
//! | which card of a node comes first | `search/order.rs` |
//! | a rule for a card (a new reason why it does not fit) | `rules/fit.rs`, `rules/card_reason.rs` |
//! | a reason why a node does not fit | `rules/node_reason.rs`, `rules/class.rs` (`suits`) |
//! | how much of a card a request takes | `rules/demand.rs` |
//! | a new key of a pod's request | `wire/request.rs`, `rules/class.rs`, and `hami_py/model/pods/wire.py` |
//! | how long a search may take | `search/effort.rs`, `state/spending.rs` |

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
pub use questions::usage::{CardUsage, NamespaceUsage, NodeUsage, PodUsage};
pub use rules::card_reason::{CardReason, Tally};
pub use rules::node_reason::{NodeReason, QuotaReason};
pub use rules::shape;
pub use state::list::{List, Span, Texts};
pub use state::names::Numbers;
pub use wire::parse::parse;

/// The cards of each container.
type ContainerCards = Box<[Box<[wire::CardAllocation]>]>;
