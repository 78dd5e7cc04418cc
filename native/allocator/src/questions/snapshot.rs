//! Snapshots: the state as JSON, and a digest to compare states.
//!
//! Everything is sorted by name, so the order of events leaves no trace. A snapshot is for replays
//! (`hami replay`) and for questions on a copy. The extender never starts from a snapshot: it reads
//! the API server.

use crate::engine::Allocator;
use crate::state::allocations::{PodAllocation, State};
use crate::wire::check;
use crate::wire::parse::parse;
use crate::wire::{Assignment, CardRequest, ContainerRequest, Node, Pod, PodRequest, Quota};
use hami_limits::InvalidValue;
use serde::{Deserialize, Serialize};

const VERSION: u32 = 2;

/// The version of a snapshot of any format.
#[derive(Deserialize)]
struct AnyVersion {
    version: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Snapshot {
    version: u32,
    nodes: Vec<Node>,
    quotas: Vec<Quota>,
    pods: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    pod: Pod,
    priority: i32,
    containers: Vec<ContainerRequest>,
    assignment: Assignment,
    state: Firmness,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until_ns: Option<u64>,
    #[serde(default)]
    started: bool,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Firmness {
    Held,
    Reserved,
    Placed,
}

impl Allocator {
    /// The state as JSON. Times are those of the caller's clock.
    #[allow(clippy::missing_panics_doc, reason = "JSON can say all that is in it")]
    pub fn snapshot(&mut self) -> Vec<u8> {
        let nodes = self.present();
        let nodes = nodes.iter().filter_map(|number| self.node(*number).as_published()).collect();
        let quotas = self.quotas.all().cloned().collect();
        let pods = self
            .allocations
            .sorted()
            .into_iter()
            .map(|allocation| self.entry(allocation))
            .collect();
        let all = Snapshot { version: VERSION, nodes, quotas, pods };
        serde_json::to_vec(&all).expect("there is nothing in it that JSON cannot say")
    }

    /// An allocator in the state of a snapshot.
    pub fn restore(json: &[u8]) -> Result<Self, InvalidValue> {
        // Read the version first, because another version may have other fields.
        let AnyVersion { version } = parse("snapshot", json)?;
        if version != VERSION {
            let fix = format!("take a snapshot with this version; it writes {VERSION}");
            return Err(InvalidValue::new("snapshot.version", &version.to_string(), fix));
        }
        let all: Snapshot = parse("snapshot", json)?;
        let mut allocator = Self::new();
        all.nodes.into_iter().try_for_each(|node| allocator.set_node(node))?;
        all.quotas.into_iter().try_for_each(|quota| allocator.set_quota(quota))?;
        all.pods.into_iter().try_for_each(|entry| allocator.restore_entry(entry))?;
        Ok(allocator)
    }

    /// A digest that is equal for equal states, however they came about: 128 bits of FNV-1a over
    /// the snapshot.
    pub fn digest(&mut self) -> String {
        const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013B;
        const BASIS: u128 = 0x6C62_272E_07BB_0142_62B8_2175_6295_C58D;
        let mix = |hash: u128, byte: &u8| (hash ^ u128::from(*byte)).wrapping_mul(PRIME);
        format!("{:032x}", self.snapshot().iter().fold(BASIS, mix))
    }

    fn entry(&self, allocation: &PodAllocation) -> Entry {
        let (state, until_ns) = match allocation.state {
            State::Held { until_ns } => (Firmness::Held, Some(until_ns)),
            State::Reserved => (Firmness::Reserved, None),
            State::Placed => (Firmness::Placed, None),
        };
        Entry {
            pod: allocation.pod.clone(),
            priority: allocation.priority,
            containers: allocation.containers.to_vec(),
            assignment: allocation.assignment(&self.node(allocation.node).name),
            state,
            until_ns,
            started: allocation.started,
        }
    }

    fn restore_entry(&mut self, entry: Entry) -> Result<(), InvalidValue> {
        let Entry { pod, priority, containers, assignment, .. } = entry;
        let request =
            PodRequest { pod, priority, containers, card_request: CardRequest::default() };
        check::request(&request)?;
        check::assignment(&assignment, &request)?;
        let state = match entry.state {
            Firmness::Held => State::Held { until_ns: entry.until_ns.unwrap_or(0) },
            Firmness::Reserved => State::Reserved,
            Firmness::Placed => State::Placed,
        };
        self.add_assignment(&request, assignment, state, entry.started);
        Ok(())
    }
}
