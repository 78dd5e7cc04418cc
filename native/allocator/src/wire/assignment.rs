//! What is given: the cards of a pod's containers.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One card of one container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// The card's UUID.
    pub card: String,
    /// The limit inside the container; the card's overhead comes on top.
    pub memory_mib: u64,
    /// Percent that count against the card; 0 is no limit.
    pub cores: u32,
    /// The instance, where the card is cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<Instance>,
}

/// A MIG instance's exact place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instance {
    /// The profile's name.
    pub profile: String,
    /// Its first memory slice.
    pub start: u32,
    /// Its memory slices.
    pub size: u32,
}

/// A pod's cards: the annotation `hami.io/assignment`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assignment {
    /// [`Assignment::VERSION`].
    pub version: u32,
    /// The pod's UID.
    pub pod: String,
    /// The node's name.
    pub node: String,
    /// By container name.
    pub containers: BTreeMap<String, Vec<Grant>>,
}

impl Assignment {
    /// The one that is spoken here.
    pub const VERSION: u32 = 1;
}
