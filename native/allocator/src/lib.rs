//! The cluster allocator: which pod may have which card.
//!
//! It knows nodes with their cards, and pods with what they were given; it says which nodes could take
//! another pod and why the others could not, which of them is best, and which cards it gets there. One engine answers
//! the scheduler, `hami explain pod`, `hami what-if` and a replay at a desk. It does no I/O and reads no clock:
//! `now_ns` is an argument. The same state gives the same answer, but for nodes that are not looked at because a
//! namespace has used up its time (`spending`); ties are broken by name and index.
//!
//! | question | module |
//! |---|---|
//! | what goes in and out, and what is refused | [`wire`], `parse`, `check` |
//! | how will the kubelet hand cards out | [`shape`] |
//! | what does an ask weigh on a card | `demand`, `card` |
//! | has a card room, and why not | `fit`, `mig`, `candidates`, [`reason`], `tally` |
//! | which cards, all containers together | `search`, `order`, `topology`, `plan` |
//! | how long is looked for them | `effort`, `spending` |
//! | how good would the node be | `score`, `rated` |
//! | what of the above is the same for many pods and nodes | `class`, `cache`, `verdict`, `lens`, `slim` |
//! | which node has which name | `names`, `list`, `sequence`, `hash` |
//! | who holds what | `book`, `charge`, `node`, `quota` |
//! | what does a quota say before cards are chosen, and after | `bound`, `allowance` |
//! | the events and the questions | [`Allocator`] (`engine` with its `settle`, `filter`, `judge` with its `looker`, `promised`, `victims`, `explain`, `usage`, `snapshot`) |
//!
//! What always holds: no answer of [`Allocator::reserve`] takes the sum of what was given on a card beyond the card, in
//! memory, cores and slots, in any phase of the pods' lives, whatever the kubelet picks where it may choose. What the
//! API says is bound is taken as it is; where that is too much it is shown, and nothing is added.

mod allowance;
mod book;
mod bound;
mod cache;
mod candidates;
mod card;
mod charge;
mod check;
mod class;
mod demand;
mod divisor;
mod effort;
mod engine;
mod explain;
mod filter;
mod fit;
mod hash;
mod judge;
mod lens;
mod list;
mod looker;
mod mig;
mod names;
mod node;
mod order;
mod parse;
mod plan;
mod promised;
mod quota;
mod rated;
pub mod reason;
mod score;
mod search;
mod sequence;
pub mod shape;
mod slim;
mod snapshot;
mod spending;
mod tally;
mod topology;
mod usage;
mod verdict;
mod victims;
pub mod wire;

pub use engine::Allocator;
pub use explain::{CardExplanation, ContainerExplanation, Explanation};
pub use filter::{Filtered, Refusal};
pub use hami_limits::InvalidValue;
pub use list::{List, Span, Texts};
pub use names::Numbers;
pub use parse::parse;
pub use rated::{MOST_PRIORITY, Rated};
pub use tally::Tally;
pub use usage::{CardUsage, NodeUsage, PodUsage};

/// What each ask is given.
type Grants = Box<[Box<[wire::Grant]>]>;
