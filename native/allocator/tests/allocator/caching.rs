//! Verdicts are cached until a node changes, also under a quota.

use crate::build::{app, container, plain, pod, quota, with};
use hami_allocator::Allocator;
use hami_allocator::wire::{Kind, Memory, PodRequest};

const NODES: usize = 20;
const ALL: u64 = NODES as u64;

/// The number of evaluated nodes. All nodes are full.
fn evaluated(allocator: &mut Allocator, request: &PodRequest) -> u64 {
    let before = allocator.evaluations();
    let names: Vec<String> = (0..NODES).map(|at| format!("n{at}")).collect();
    let filtered = allocator.filter(request, &names, 0).expect("a good request");
    assert_eq!(filtered.failed.len(), NODES);
    allocator.evaluations() - before
}

#[test]
fn a_quota_does_not_cause_a_new_evaluation_of_all_nodes() {
    let mut nodes = Vec::new();
    for at in 0..NODES {
        let mut node = plain(&format!("n{at}"), 2);
        for card in &mut node.cards {
            card.uuid = format!("{at}-{}", card.uuid);
        }
        nodes.push(node);
    }
    let mut allocator = with(nodes);
    allocator.set_quota(quota("q", Some(1000), Some(1_000_000), Some(10_000))).expect("good");
    let place = |allocator: &mut Allocator, uid: &str, node: usize| {
        let request = pod(uid, &[app(2, 300, 0)]);
        let assignment = allocator.reserve(&request, &format!("n{node}"), 0).expect("room");
        allocator.place(&request, assignment, true).expect("our own answer");
    };
    for at in 0..NODES {
        place(&mut allocator, &format!("first{at}"), at);
    }
    for (name, memory) in [("mib", Memory::Mib(800)), ("share", Memory::Percent(80))] {
        let wanted = |uid: String| pod(&uid, &[container(Kind::App, 1, memory, 0)]);
        assert_eq!(evaluated(&mut allocator, &wanted(format!("{name}-0"))), ALL);
        // A pod of the same namespace, so that its quota leaves less for all nodes.
        place(&mut allocator, name, 7);
        assert_eq!(evaluated(&mut allocator, &wanted(format!("{name}-1"))), 1, "{name}");
    }
}

#[test]
fn a_namespace_cannot_evict_the_classes_of_another() {
    let mut nodes = Vec::new();
    for at in 0..NODES {
        let mut node = plain(&format!("n{at}"), 1);
        node.cards[0].uuid = format!("g{at}");
        nodes.push(node);
    }
    let mut allocator = with(nodes);
    let large = |namespace: &str, mib: u64| {
        let mut request = pod(&format!("{namespace}-{mib}"), &[app(1, mib, 0)]);
        request.pod.namespace = namespace.into();
        request
    };
    for at in 0..NODES {
        let placed = pod(&format!("placed{at}"), &[app(1, 900, 0)]);
        let assignment = allocator.reserve(&placed, &format!("n{at}"), 0).expect("room");
        allocator.place(&placed, assignment, true).expect("our own answer");
    }
    assert_eq!(evaluated(&mut allocator, &large("good", 500)), ALL);
    for mib in 600..800 {
        assert_eq!(evaluated(&mut allocator, &large("many", mib)), ALL);
    }
    assert_eq!(evaluated(&mut allocator, &large("good", 500)), 0);
    assert_eq!(evaluated(&mut allocator, &large("many", 799)), 0);
    assert_eq!(evaluated(&mut allocator, &large("many", 600)), ALL);
}
