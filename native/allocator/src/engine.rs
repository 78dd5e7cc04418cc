//! The allocator's state, and the events that change it.
//!
//! Nodes, quotas and placed pods come from watches of the API: whole objects, possibly twice, late, or
//! for things that are not known yet. Each event states what is, not what changed, so the same one twice is
//! nothing, and the order of events about different things leaves no trace.

use crate::rules::quota::Quotas;
use crate::search::chosen::Entry;
use crate::speed::cache::Cache;
use crate::speed::table::CardTable;
use crate::state::book::{Book, Holding, State};
use crate::state::names::Names;
use crate::state::node::Node;
use crate::state::spending::Spending;
use crate::wire::check;
use crate::wire::{self, Assignment, Quota, Request};
use hami_limits::InvalidValue;
use std::sync::Arc;

mod entries;

/// Which pod may have which card.
#[derive(Default)]
pub struct Allocator {
    pub(crate) nodes: Vec<Option<Node>>,
    /// What filters read of them.
    pub(crate) table: CardTable,
    free_nodes: Vec<u32>,
    pub(crate) names: Names,
    /// By number: changes with whatever concerns the node; 0 = there is none.
    pub(crate) generations: Vec<u32>,
    pub(crate) book: Book,
    pub(crate) quotas: Quotas,
    /// Models in lower case, in the order in which they were met.
    pub(crate) models: Vec<Box<str>>,
    pub(crate) generation: u32,
    expired: u64,
    pub(crate) looks: u64,
    pub(crate) cache: Cache,
    pub(crate) spending: Spending,
    /// For one search.
    pub(crate) entries: Vec<Entry>,
    /// Numbers of present nodes by name, if that is known.
    by_name: Option<Arc<[u32]>>,
}

impl Allocator {
    /// One that knows nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// A node as its node agent publishes it. Pods that are placed there stay, whatever has become of their cards.
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
        self.settle(number);
        Ok(())
    }

    /// A node is gone. What is placed there counts again when it returns.
    pub fn remove_node(&mut self, name: &str) {
        let Some(number) = self.number(name) else { return };
        self.node_mut(number).withdraw();
        self.by_name = None;
        self.settle(number);
        self.forget_if_empty(number);
    }

    /// A quota object.
    pub fn set_quota(&mut self, quota: Quota) -> Result<(), InvalidValue> {
        check::quota(&quota)?;
        self.quotas.set(quota);
        Ok(())
    }

    /// A quota object is gone.
    pub fn remove_quota(&mut self, namespace: &str, name: &str) {
        self.quotas.remove(namespace, name);
    }

    /// What the API says is bound. It is taken as it is, also where it is more than a card has; it
    /// replaces whatever was held or reserved for the pod. `started`: its ordinary init containers are done.
    pub fn place(
        &mut self,
        request: &Request,
        assignment: Assignment,
        started: bool,
    ) -> Result<(), InvalidValue> {
        check::request(request)?;
        check::assignment(&assignment, request)?;
        let (node, grants) = self.read(request, assignment);
        let same = |old: &Holding| {
            let Holding { pod, priority, asks, .. } = old;
            old.state == State::Placed
                && old.node == node
                && old.started == started
                && old.grants == grants
                && (pod, *priority, asks.as_ref())
                    == (&request.pod, request.priority, request.asks.as_slice())
        };
        let old = self.book.find(&request.pod.uid);
        if !old.is_some_and(same) {
            self.enter(request, grants, node, State::Placed, started);
        }
        Ok(())
    }

    /// A pod is deleted or has ended.
    pub fn remove(&mut self, uid: &str) {
        if let Some(number) = self.book.number(uid) {
            self.leave(number);
        }
    }

    /// Gives up what is held or reserved for a pod; what the API has bound stays.
    pub fn release(&mut self, uid: &str) {
        if self.book.find(uid).is_some_and(|holding| holding.state != State::Placed) {
            self.remove(uid);
        }
    }

    /// Ends the hold for a pod; what is reserved or bound stays.
    pub fn unhold(&mut self, uid: &str) {
        if self.book.find(uid).is_some_and(|holding| matches!(holding.state, State::Held { .. })) {
            self.remove(uid);
        }
    }

    /// Ends holds whose time is over; says how many have ended so since there is this allocator.
    pub fn expire(&mut self, now_ns: u64) -> u64 {
        while let Some(number) = self.book.ended(now_ns) {
            self.expired += 1;
            self.leave(number);
        }
        self.expired
    }

    /// How often a node was looked at for a filter or a score: where nothing is known of it as it is.
    pub fn looks(&self) -> u64 {
        self.looks
    }

    /// How often so far pods that were refused because their namespace had used up its time might as well be tried again.
    pub fn returned(&mut self, now_ns: u64) -> u64 {
        self.spending.returned(now_ns)
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

    /// Numbers of the present nodes, by name.
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
