//! What was found out about a node is not found out again until the node changes, also under a quota.

use crate::build::{app, ask, plain, pod, quota, with};
use hami_allocator::Allocator;
use hami_allocator::wire::{Kind, Memory, Request};
use std::sync::Arc;

const NODES: usize = 20;

/// Why each node does not do. A reason that was found out anew is another string.
fn reasons(allocator: &mut Allocator, request: &Request) -> Vec<Arc<str>> {
    let names: Vec<String> = (0..NODES).map(|at| format!("n{at}")).collect();
    let filtered = allocator.filter(request, &names, 0).expect("a good request");
    assert_eq!(filtered.failed.len(), NODES);
    filtered.failed.into_iter().map(|(_, why)| why).collect()
}

#[test]
fn a_quota_does_not_let_all_nodes_be_looked_at_again() {
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
    let give = |allocator: &mut Allocator, uid: &str, node: usize| {
        let request = pod(uid, &[app(2, 300, 0)]);
        let assignment = allocator.reserve(&request, &format!("n{node}"), 0).expect("room");
        allocator.place(&request, assignment, true).expect("our own answer");
    };
    for at in 0..NODES {
        give(&mut allocator, &format!("first{at}"), at);
    }
    for (name, memory) in [("mib", Memory::Mib(800)), ("share", Memory::Percent(80))] {
        let wanted = |uid: String| pod(&uid, &[ask(Kind::App, 1, memory, 0)]);
        let before = reasons(&mut allocator, &wanted(format!("{name}-0")));
        // Of the same namespace: its quota has less left for all nodes.
        give(&mut allocator, name, 7);
        let after = reasons(&mut allocator, &wanted(format!("{name}-1")));
        for (at, (before, after)) in before.iter().zip(&after).enumerate() {
            assert_eq!(Arc::ptr_eq(before, after), at != 7, "{name}: node {at}");
        }
    }
}

#[test]
fn nobody_pushes_out_what_another_namespace_has_brought() {
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
    let before = reasons(&mut allocator, &large("good", 500));
    let first = reasons(&mut allocator, &large("many", 600));
    for mib in 601..800 {
        reasons(&mut allocator, &large("many", mib));
    }
    let same = |before: &[Arc<str>], after: &[Arc<str>]| {
        before.iter().zip(after).all(|(before, after)| Arc::ptr_eq(before, after))
    };
    assert!(same(&before, &reasons(&mut allocator, &large("good", 500))));
    assert!(!same(&first, &reasons(&mut allocator, &large("many", 600))));
}
