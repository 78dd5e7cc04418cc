//! Short constructors of nodes, pods and questions.

use hami_allocator::wire::{
    Assignment, Card, CardRequest, ContainerRequest, Kind, Level, Memory, Mode, Node, Pod,
    PodRequest, Quota,
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
        links: BTreeMap::new(),
        mig: None,
        level: Level::Preload,
    }
}

pub fn node(name: &str, cards: Vec<Card>) -> Node {
    Node { name: name.into(), mode: Mode::Full, placement: None, cards }
}

/// A node with this many cards of 1000 MiB, `g0`, `g1`, …
pub fn plain(name: &str, cards: usize) -> Node {
    node(name, (0..cards).map(|at| card(&format!("g{at}"), 1000)).collect())
}

pub fn container(kind: Kind, cards: u32, memory: Memory, cores: u32) -> ContainerRequest {
    ContainerRequest { name: String::new(), kind, cards, memory, cores }
}

pub fn app(cards: u32, mib: u64, cores: u32) -> ContainerRequest {
    container(Kind::App, cards, Memory::Mib(mib), cores)
}

pub fn init(cards: u32, mib: u64, cores: u32) -> ContainerRequest {
    container(Kind::Init, cards, Memory::Mib(mib), cores)
}

pub fn sidecar(cards: u32, mib: u64, cores: u32) -> ContainerRequest {
    container(Kind::Sidecar, cards, Memory::Mib(mib), cores)
}

/// The containers are named `c0`, `c1`, …
pub fn pod(uid: &str, containers: &[ContainerRequest]) -> PodRequest {
    let name = |(at, container): (usize, &ContainerRequest)| ContainerRequest {
        name: format!("c{at}"),
        ..container.clone()
    };
    PodRequest {
        pod: Pod { uid: uid.into(), namespace: "team".into(), name: uid.into() },
        priority: 0,
        containers: containers.iter().enumerate().map(name).collect(),
        card_request: CardRequest::default(),
    }
}

pub fn with_card_request(mut request: PodRequest, card_request: CardRequest) -> PodRequest {
    request.card_request = card_request;
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

/// Reserves on node `n`, and returns the cards of each container or the text of the reason.
pub fn reserve(
    allocator: &mut Allocator,
    request: &PodRequest,
) -> Result<Vec<Vec<String>>, String> {
    match allocator.reserve(request, "n", 0) {
        Ok(assignment) => Ok(cards(request, &assignment)),
        Err(Refusal::Unfit(reason)) => Err(reason.to_string()),
        Err(Refusal::Invalid(error)) => Err(error.to_string()),
    }
}

pub fn cards(request: &PodRequest, assignment: &Assignment) -> Vec<Vec<String>> {
    let of = |container: &ContainerRequest| {
        assignment.containers.get(&container.name).map_or(&[][..], Vec::as_slice)
    };
    let cards = |container: &ContainerRequest| {
        of(container).iter().map(|grant| grant.card.clone()).collect()
    };
    request.containers.iter().map(cards).collect()
}

/// The allocated MiB of each card of node `n`.
pub fn allocated_mib(allocator: &Allocator) -> Vec<u64> {
    let usage = allocator.usage();
    let node = usage.iter().find(|node| node.name == "n").expect("there is a node");
    node.cards.iter().map(|card| card.memory_allocated_mib).collect()
}

pub fn names(cards: &[&str]) -> Vec<String> {
    cards.iter().map(|card| (*card).to_owned()).collect()
}
