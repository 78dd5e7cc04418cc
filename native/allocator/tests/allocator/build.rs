//! Nodes, pods and questions in few words.

use hami_allocator::wire::{
    Ask, Assignment, Card, Kind, Memory, Mode, Node, Pod, Quota, Request, Wish,
};
use hami_allocator::{Allocator, Refusal};
use std::collections::BTreeMap;

pub fn card(uuid: &str, memory_mib: u64) -> Card {
    let index = uuid
        .bytes()
        .filter(u8::is_ascii_digit)
        .fold(0, |all, digit| all * 10 + u32::from(digit - b'0'));
    Card {
        uuid: uuid.into(),
        index,
        model: "NVIDIA A100-SXM4-80GB".into(),
        memory_mib,
        cores: 100,
        slots: 32,
        numa: None,
        healthy: true,
        cordoned: false,
        foreign_mib: 0,
        overhead_mib: 0,
        links: BTreeMap::new(),
        mig: None,
    }
}

pub fn node(name: &str, cards: Vec<Card>) -> Node {
    Node { name: name.into(), mode: Mode::Full, placement: None, cards }
}

/// A node with so many cards of 1000 MiB, `g0`, `g1`, …
pub fn plain(name: &str, cards: usize) -> Node {
    node(name, (0..cards).map(|at| card(&format!("g{at}"), 1000)).collect())
}

pub fn ask(kind: Kind, cards: u32, memory: Memory, cores: u32) -> Ask {
    Ask { container: String::new(), kind, cards, memory, cores }
}

pub fn app(cards: u32, mib: u64, cores: u32) -> Ask {
    ask(Kind::App, cards, Memory::Mib(mib), cores)
}

pub fn init(cards: u32, mib: u64, cores: u32) -> Ask {
    ask(Kind::Init, cards, Memory::Mib(mib), cores)
}

pub fn sidecar(cards: u32, mib: u64, cores: u32) -> Ask {
    ask(Kind::Sidecar, cards, Memory::Mib(mib), cores)
}

/// Containers are called `c0`, `c1`, …
pub fn pod(uid: &str, asks: &[Ask]) -> Request {
    let name = |(at, ask): (usize, &Ask)| Ask { container: format!("c{at}"), ..ask.clone() };
    Request {
        pod: Pod { uid: uid.into(), namespace: "team".into(), name: uid.into() },
        priority: 0,
        asks: asks.iter().enumerate().map(name).collect(),
        wish: Wish::default(),
    }
}

pub fn wishing(mut request: Request, wish: Wish) -> Request {
    request.wish = wish;
    request
}

pub fn quota(name: &str, gpu: Option<u64>, memory_mib: Option<u64>, cores: Option<u64>) -> Quota {
    Quota { namespace: "team".into(), name: name.into(), gpu, memory_mib, cores }
}

pub fn with(nodes: Vec<Node>) -> Allocator {
    let mut allocator = Allocator::new();
    for node in nodes {
        allocator.set_node(node).expect("a good node");
    }
    allocator
}

/// Reserves on node `n`; the cards of each container, or the reason in words.
pub fn reserve(allocator: &mut Allocator, request: &Request) -> Result<Vec<Vec<String>>, String> {
    match allocator.reserve(request, "n", 0) {
        Ok(assignment) => Ok(cards(request, &assignment)),
        Err(Refusal::Unfit(reason)) => Err(reason.to_string()),
        Err(Refusal::Invalid(error)) => Err(error.to_string()),
    }
}

pub fn cards(request: &Request, assignment: &Assignment) -> Vec<Vec<String>> {
    let of = |ask: &Ask| assignment.containers.get(&ask.container).map_or(&[][..], Vec::as_slice);
    let cards = |ask: &Ask| of(ask).iter().map(|grant| grant.card.clone()).collect();
    request.asks.iter().map(cards).collect()
}

/// MiB given on each card of node `n`.
pub fn given(allocator: &Allocator) -> Vec<u64> {
    let usage = allocator.usage();
    let node = usage.iter().find(|node| node.name == "n").expect("there is a node");
    node.cards.iter().map(|card| card.memory_given_mib).collect()
}

pub fn names(cards: &[&str]) -> Vec<String> {
    cards.iter().map(|card| (*card).to_owned()).collect()
}
