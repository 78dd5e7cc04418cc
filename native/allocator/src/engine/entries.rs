//! Pods into the book and out of it, and what a node's cards then have to bear.
//!
//! A node's use is summed up after each change. What its pods weigh is worked out anew only where its
//! cards have changed.

use crate::Grants;
use crate::engine::Allocator;
use crate::rules::card::Charge;
use crate::rules::quota::Spent;
use crate::speed::cache::Cache;
use crate::state::book::{Holding, State};
use crate::state::charge;
use crate::state::node::Node;
use crate::wire::{Ask, Assignment, Grant, Request};

impl Allocator {
    /// An entry of whatever firmness, as a snapshot has it.
    pub(crate) fn enter_assignment(
        &mut self,
        request: &Request,
        assignment: Assignment,
        state: State,
        started: bool,
    ) {
        let (node, grants) = self.read(request, assignment);
        self.enter(request, grants, node, state, started);
    }

    /// The node's number, and grants by ask.
    pub(super) fn read(&mut self, request: &Request, assignment: Assignment) -> (u32, Grants) {
        let Assignment { node, mut containers, .. } = assignment;
        let grants = request
            .asks
            .iter()
            .map(|ask| containers.remove(&ask.container).unwrap_or_default().into());
        (self.number_or_new(&node), grants.collect())
    }

    /// The pod's only entry.
    pub(crate) fn enter(
        &mut self,
        request: &Request,
        grants: Grants,
        node: u32,
        state: State,
        started: bool,
    ) -> u32 {
        let asks: Box<[Ask]> = request.asks.as_slice().into();
        let spent = Spent::of(&asks, |at| &grants[at], started);
        // First in, then out: the node must not be forgotten between.
        let before = self.book.number(&request.pod.uid).map(|number| self.take_out(number));
        self.quotas.spend(&request.pod.namespace, &spent);
        let number = self.book.insert(Holding {
            pod: request.pod.clone(),
            priority: request.priority,
            asks,
            grants,
            node,
            state,
            started,
            charges: Box::default(),
            spent,
        });
        self.node_mut(node).pods.push(number);
        self.charge(node, number);
        if let Some(before) = before.filter(|before| *before != node) {
            self.after_leaving(before);
        }
        number
    }

    pub(super) fn leave(&mut self, number: u32) {
        let node = self.take_out(number);
        self.after_leaving(node);
    }

    /// Out of the book and the node's list; says which node that was.
    fn take_out(&mut self, number: u32) -> u32 {
        let holding = self.book.remove(number);
        self.quotas.refund(&holding.pod.namespace, &holding.spent);
        self.node_mut(holding.node).pods.retain(|other| *other != number);
        holding.node
    }

    fn after_leaving(&mut self, node: u32) {
        if self.node(node).has_ghosts() {
            self.settle(node);
        } else {
            self.sum(node);
        }
        self.forget_if_empty(node);
    }

    /// Works out what one new entry weighs.
    fn charge(&mut self, node: u32, number: u32) {
        let there = self.node(node);
        let holding = self.book.get(number);
        let known = |grant: &Grant| there.place(&grant.card).is_some();
        if there.has_ghosts() || !holding.grants.iter().flatten().all(known) {
            return self.settle(node);
        }
        self.book.get_mut(number).charges = charges(there, self.book.get(number));
        self.sum(node);
    }

    /// Works a node out anew from what was published and from who is there.
    pub(super) fn settle(&mut self, number: u32) {
        let Self { nodes, book, models, .. } = self;
        let node = nodes[number as usize].as_mut().expect("numbers in use have nodes");
        let pods = node.pods.clone();
        let held = pods.iter().flat_map(|pod| book.get(*pod).grants.iter().flatten());
        node.settle(held.map(|grant| grant.card.as_str()), |name| model(models, name));
        for pod in pods {
            let charges = charges(node, book.get(pod));
            book.get_mut(pod).charges = charges;
        }
        self.sum(number);
    }

    fn sum(&mut self, number: u32) {
        self.begin_generation();
        let Self { nodes, book, table, .. } = self;
        let node = nodes[number as usize].as_mut().expect("numbers in use have nodes");
        let pods = std::mem::take(&mut node.pods);
        node.sum(pods.iter().flat_map(|pod| &book.get(*pod).charges));
        node.pods = pods;
        table.put(number, node);
        self.generations[number as usize] = self.generation;
    }

    /// The next one. Where they begin anew, nothing that is remembered of an earlier one is taken for it.
    fn begin_generation(&mut self) {
        self.generation = self.generation.checked_add(1).unwrap_or_else(|| {
            self.cache = Cache::default();
            // Those of nodes that are there; 0 is for none.
            self.generations.iter_mut().for_each(|generation| *generation = (*generation).min(1));
            2
        });
    }
}

fn charges(node: &Node, holding: &Holding) -> Box<[Charge]> {
    let Holding { asks, grants, started, .. } = holding;
    charge::charges(asks, grants, *started, |uuid| node.place(uuid), &node.facts, node.mode)
}

fn model(models: &mut Vec<Box<str>>, name: &str) -> u16 {
    let name = name.to_lowercase();
    let number = models.iter().position(|known| **known == *name).unwrap_or_else(|| {
        models.push(name.into());
        models.len() - 1
    });
    // There are a few dozen in the world; a type that is not known is never the one that is wished for.
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

    /// Once in 4,294,967,294 changes, that is: each is set to be the last one before.
    #[test]
    fn what_is_remembered_is_not_taken_for_later_where_generations_begin_anew() {
        let names: Vec<String> = (0..NODES).map(|at| format!("n{at}")).collect();
        let ask = r#"{"pod": {"uid": "u", "namespace": "team", "name": "p"}, "asks":
            [{"container": "c", "kind": "app", "cards": 1, "memory": {"mib": 1000}}]}"#;
        let ask = parse("request", ask.as_bytes()).expect("a good request");
        for left in 0..8 {
            let mut allocator = Allocator::new();
            for at in 0..NODES {
                allocator.set_node(node(at, 500)).expect("a good node");
            }
            let feasible = |allocator: &mut Allocator| {
                allocator.filter(&ask, &names, 0).expect("good").feasible
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
