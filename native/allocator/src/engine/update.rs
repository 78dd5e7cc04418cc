//! Adds and removes allocations, and updates the nodes.
//!
//! A node is summed up after each change. The charges of its pods are only derived again if its
//! cards have changed.

use crate::ContainerCards;
use crate::engine::Allocator;
use crate::rules::card::Charge;
use crate::rules::quota::QuotaUse;
use crate::speed::cache::Cache;
use crate::state::allocations::{PodAllocation, State};
use crate::state::charge;
use crate::state::node::Node;
use crate::wire::{Assignment, CardAllocation, ContainerRequest, PodRequest};

impl Allocator {
    /// Adds an allocation from a snapshot.
    pub(crate) fn add_assignment(
        &mut self,
        request: &PodRequest,
        assignment: Assignment,
        state: State,
        started: bool,
    ) {
        let (node, container_cards) = self.resolve(request, assignment);
        self.add(request, container_cards, node, state, started);
    }

    /// The number of the node, and the allocated cards by container.
    pub(super) fn resolve(
        &mut self,
        request: &PodRequest,
        assignment: Assignment,
    ) -> (u32, ContainerCards) {
        let Assignment { node, mut containers, .. } = assignment;
        let container_cards = request
            .containers
            .iter()
            .map(|container| containers.remove(&container.name).unwrap_or_default().into());
        (self.number_or_new(&node), container_cards.collect())
    }

    /// Adds the allocation of a pod, and replaces an earlier one.
    pub(crate) fn add(
        &mut self,
        request: &PodRequest,
        container_cards: ContainerCards,
        node: u32,
        state: State,
        started: bool,
    ) -> u32 {
        let containers: Box<[ContainerRequest]> = request.containers.as_slice().into();
        let quota_use = QuotaUse::of(&containers, |at| &container_cards[at], started);
        // Add first, then remove: otherwise the node might be forgotten in between.
        let before = self.allocations.number(&request.pod.uid).map(|number| self.take(number));
        self.quotas.charge(&request.pod.namespace, &quota_use);
        let number = self.allocations.insert(PodAllocation {
            pod: request.pod.clone(),
            priority: request.priority,
            containers,
            container_cards,
            node,
            state,
            started,
            charges: Box::default(),
            quota_use,
        });
        self.node_mut(node).pods.push(number);
        self.charge(node, number);
        if let Some(before) = before.filter(|before| *before != node) {
            self.after_removal(before);
        }
        number
    }

    pub(super) fn drop_allocation(&mut self, number: u32) {
        let node = self.take(number);
        self.after_removal(node);
    }

    /// Removes an allocation, and returns the number of its node.
    fn take(&mut self, number: u32) -> u32 {
        let allocation = self.allocations.remove(number);
        self.quotas.uncharge(&allocation.pod.namespace, &allocation.quota_use);
        self.node_mut(allocation.node).pods.retain(|other| *other != number);
        allocation.node
    }

    fn after_removal(&mut self, node: u32) {
        if self.node(node).has_ghosts() {
            self.rebuild(node);
        } else {
            self.sum(node);
        }
        self.forget_if_empty(node);
    }

    /// Derives the charges of a new allocation.
    fn charge(&mut self, node: u32, number: u32) {
        let there = self.node(node);
        let allocation = self.allocations.get(number);
        let known = |card: &CardAllocation| there.card_index(&card.card).is_some();
        if there.has_ghosts() || !allocation.container_cards.iter().flatten().all(known) {
            return self.rebuild(node);
        }
        self.allocations.get_mut(number).charges = charges(there, self.allocations.get(number));
        self.sum(node);
    }

    /// Derives a node from what is published and from its pods.
    pub(super) fn rebuild(&mut self, number: u32) {
        let Self { nodes, allocations, models, .. } = self;
        let node = nodes[number as usize].as_mut().expect("numbers in use have nodes");
        let pods = node.pods.clone();
        let held =
            pods.iter().flat_map(|pod| allocations.get(*pod).container_cards.iter().flatten());
        node.derive(held.map(|card| card.card.as_str()), |name| model(models, name));
        for pod in pods {
            let charges = charges(node, allocations.get(pod));
            allocations.get_mut(pod).charges = charges;
        }
        self.sum(number);
    }

    fn sum(&mut self, number: u32) {
        self.begin_generation();
        let Self { nodes, allocations, table, .. } = self;
        let node = nodes[number as usize].as_mut().expect("numbers in use have nodes");
        let pods = std::mem::take(&mut node.pods);
        node.sum(pods.iter().flat_map(|pod| &allocations.get(*pod).charges));
        node.pods = pods;
        table.put(number, node);
        self.generations[number as usize] = self.generation;
    }

    /// Starts the next generation. When the numbers wrap around, no cached verdict of an earlier
    /// generation may match.
    fn begin_generation(&mut self) {
        self.generation = self.generation.checked_add(1).unwrap_or_else(|| {
            self.cache = Cache::default();
            // Existing nodes get 1; 0 means that a node does not exist.
            self.generations.iter_mut().for_each(|generation| *generation = (*generation).min(1));
            2
        });
    }
}

fn charges(node: &Node, allocation: &PodAllocation) -> Box<[Charge]> {
    let PodAllocation { containers, container_cards, started, .. } = allocation;
    charge::charges(
        containers,
        container_cards,
        *started,
        |uuid| node.card_index(uuid),
        &node.facts,
        node.mode,
    )
}

fn model(models: &mut Vec<Box<str>>, name: &str) -> u16 {
    let name = name.to_lowercase();
    let number = models.iter().position(|known| **known == *name).unwrap_or_else(|| {
        models.push(name.into());
        models.len() - 1
    });
    // There are a few dozen models. A model beyond the range never matches a requested type.
    number.try_into().unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use crate::engine::Allocator;
    use crate::wire::parse::parse;

    const NODES: usize = 3;

    fn node(at: usize, memory_mib: u64) -> crate::wire::Node {
        let card =
            format!(r#"{{"uuid": "g{at}", "index": 0, "model": "A", "memory_mib": {memory_mib}}}"#);
        let text = format!(r#"{{"name": "n{at}", "cards": [{card}]}}"#);
        parse("node", text.as_bytes()).expect("a good node")
    }

    /// Generations wrap around once in 4,294,967,294 changes, so the test sets the generation
    /// shortly before that.
    #[test]
    fn cached_verdicts_do_not_match_after_generations_wrap_around() {
        let names: Vec<String> = (0..NODES).map(|at| format!("n{at}")).collect();
        let container = r#"{"pod": {"uid": "u", "namespace": "team", "name": "p"}, "containers":
            [{"container": "c", "kind": "app", "cards": 1, "memory": {"mib": 1000}}]}"#;
        let container = parse("request", container.as_bytes()).expect("a good request");
        for left in 0..8 {
            let mut allocator = Allocator::new();
            for at in 0..NODES {
                allocator.set_node(node(at, 500)).expect("a good node");
            }
            let feasible = |allocator: &mut Allocator| {
                allocator.filter(&container, &names, 0).expect("good").feasible
            };
            assert!(feasible(&mut allocator).is_empty());
            allocator.generation = u32::MAX - left;
            allocator.set_node(node(0, 600)).expect("a good node");
            let mut mib = [600, 500, 500];
            for (at, now) in [(0, 2000), (1, 2000), (0, 700), (1, 700), (2, 2000), (1, 3000)] {
                allocator.set_node(node(at, now)).expect("a good node");
                mib[at] = now;
                let fits = (0..NODES as u32).filter(|at| mib[*at as usize] >= 1000);
                assert_eq!(feasible(&mut allocator), fits.collect::<Vec<_>>(), "{left} left");
            }
        }
    }
}
