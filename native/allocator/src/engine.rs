//! The state of the allocator, and the events that change it.
//!
//! Nodes, quotas and bound pods come from watches of the API server: whole objects, possibly
//! repeated, late, or about things that are not known yet. Each event states what exists, not what
//! changed. So repeating an event changes nothing, and the order of events about different objects
//! does not matter.

use crate::rules::quota::Quotas;
use crate::search::chosen::ChosenCard;
use crate::speed::cache::Cache;
use crate::speed::table::CardTable;
use crate::state::allocations::{Allocations, PodAllocation, State};
use crate::state::names::Names;
use crate::state::node::Node;
use crate::state::spending::Spending;
use crate::wire::check;
use crate::wire::{self, Assignment, PodRequest, Quota};
use hami_limits::InvalidValue;
use std::sync::Arc;

mod update;

/// The cluster allocator.
#[derive(Default)]
pub struct Allocator {
    pub(crate) nodes: Vec<Option<Node>>,
    /// A copy of what the fast path reads of the nodes.
    pub(crate) table: CardTable,
    free_nodes: Vec<u32>,
    pub(crate) names: Names,
    /// The generation of each node, which changes with the node; 0 if it does not exist.
    pub(crate) generations: Vec<u32>,
    pub(crate) allocations: Allocations,
    pub(crate) quotas: Quotas,
    /// The models in lower case, in the order in which they appeared.
    pub(crate) models: Vec<Box<str>>,
    pub(crate) generation: u32,
    expired: u64,
    pub(crate) evaluations: u64,
    pub(crate) cache: Cache,
    pub(crate) spending: Spending,
    /// The buffer of a search.
    pub(crate) chosen: Vec<ChosenCard>,
    /// The numbers of the published nodes by name, if they are known.
    by_name: Option<Arc<[u32]>>,
}

impl Allocator {
    /// An empty allocator.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces a published node. Pods that are bound to it stay, even if their cards are
    /// missing.
    pub fn set_node(&mut self, node: wire::Node) -> Result<(), InvalidValue> {
        check::node(&node)?;
        let number = self.number_or_new(&node.name);
        let mut fresh = Node::unknown(&node.name);
        fresh.publish(node);
        let there = self.node(number);
        if there.present && there.as_published() == fresh.as_published() {
            return Ok(());
        }
        let pods = std::mem::take(&mut self.node_mut(number).pods);
        let name = self.node(number).name.clone();
        (fresh.name, fresh.pods) = (name, pods);
        *self.node_mut(number) = fresh;
        self.by_name = None;
        self.rebuild(number);
        Ok(())
    }

    /// Removes a published node. Its pods are kept and count again when it returns.
    pub fn remove_node(&mut self, name: &str) {
        let Some(number) = self.number(name) else { return };
        self.node_mut(number).withdraw();
        self.by_name = None;
        self.rebuild(number);
        self.forget_if_empty(number);
    }

    /// Adds or replaces a quota.
    pub fn set_quota(&mut self, quota: Quota) -> Result<(), InvalidValue> {
        check::quota(&quota)?;
        self.quotas.set(quota);
        Ok(())
    }

    /// Removes a quota.
    pub fn remove_quota(&mut self, namespace: &str, name: &str) {
        self.quotas.remove(namespace, name);
    }

    /// Records a bound pod. Its assignment is taken as it is, even if it is more than a card has,
    /// and replaces what was held or reserved for the pod. `started` means that its ordinary init
    /// containers are done.
    pub fn place(
        &mut self,
        request: &PodRequest,
        assignment: Assignment,
        started: bool,
    ) -> Result<(), InvalidValue> {
        check::request(request)?;
        check::assignment(&assignment, request)?;
        let (node, container_cards) = self.resolve(request, assignment);
        let same = |old: &PodAllocation| {
            let PodAllocation { pod, priority, containers, .. } = old;
            old.state == State::Placed
                && old.node == node
                && old.started == started
                && old.container_cards == container_cards
                && (pod, *priority, containers.as_ref())
                    == (&request.pod, request.priority, request.containers.as_slice())
        };
        let old = self.allocations.find(&request.pod.uid);
        if !old.is_some_and(same) {
            self.add(request, container_cards, node, State::Placed, started);
        }
        Ok(())
    }

    /// Removes a pod that was deleted or has ended.
    pub fn remove(&mut self, uid: &str) {
        if let Some(number) = self.allocations.number(uid) {
            self.drop_allocation(number);
        }
    }

    /// Releases the cards that are held or reserved for a pod. A bound pod keeps its cards.
    pub fn release(&mut self, uid: &str) {
        if self.allocations.find(uid).is_some_and(|allocation| allocation.state != State::Placed) {
            self.remove(uid);
        }
    }

    /// Ends the hold for a pod. A reservation or a bound pod keeps its cards.
    pub fn end_hold(&mut self, uid: &str) {
        if self
            .allocations
            .find(uid)
            .is_some_and(|allocation| matches!(allocation.state, State::Held { .. }))
        {
            self.remove(uid);
        }
    }

    /// Ends expired holds, and returns how many have expired in the lifetime of this allocator.
    pub fn expire(&mut self, now_ns: u64) -> u64 {
        while let Some(number) = self.allocations.ended(now_ns) {
            self.expired += 1;
            self.drop_allocation(number);
        }
        self.expired
    }

    /// How often a node was evaluated for a filter or a score, because there was no cached verdict.
    pub fn evaluations(&self) -> u64 {
        self.evaluations
    }

    pub(crate) fn node(&self, number: u32) -> &Node {
        self.nodes[number as usize].as_ref().expect("numbers in use have nodes")
    }

    fn node_mut(&mut self, number: u32) -> &mut Node {
        self.nodes[number as usize].as_mut().expect("numbers in use have nodes")
    }

    pub(crate) fn number(&self, name: &str) -> Option<u32> {
        self.names.get(name)
    }

    fn number_or_new(&mut self, name: &str) -> u32 {
        if let Some(number) = self.number(name) {
            return number;
        }
        let node = Node::unknown(name);
        let number = self.free_nodes.pop().unwrap_or_else(|| {
            self.nodes.push(None);
            self.generations.push(0);
            self.nodes.len() as u32 - 1
        });
        self.names.insert(name, number);
        self.nodes[number as usize] = Some(node);
        number
    }

    fn forget_if_empty(&mut self, number: u32) {
        let node = self.node(number);
        if !node.present && node.pods.is_empty() {
            self.names.remove(number);
            self.table.remove(number);
            self.generations[number as usize] = 0;
            self.nodes[number as usize] = None;
            self.free_nodes.push(number);
        }
    }

    /// The numbers of the published nodes by name.
    pub(crate) fn present(&mut self) -> Arc<[u32]> {
        let nodes = &self.nodes;
        let listed = || {
            let there =
                nodes.iter().enumerate().filter_map(|(at, node)| Some((at as u32, node.as_ref()?)));
            let mut there: Vec<(u32, &Node)> = there.filter(|(_, node)| node.present).collect();
            there.sort_unstable_by(|(_, one), (_, other)| one.name.cmp(&other.name));
            there.into_iter().map(|(number, _)| number).collect()
        };
        self.by_name.get_or_insert_with(listed).clone()
    }
}
