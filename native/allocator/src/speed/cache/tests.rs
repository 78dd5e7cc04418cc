//! More classes than the cache holds, each of which needs many questions: all of them finish.

use super::{CLASSES, WAITING_NS};
use crate::engine::Allocator;
use crate::search::effort::Effort;
use crate::speed::verdict::Verdict;
use crate::wire::parse::parse;
use crate::wire::{Node, PodRequest};

const NODES: u32 = 24;
const SECOND: u64 = 1_000_000_000;

/// A question with this many steps evaluates a few nodes.
const STEPS: u64 = 200;

fn cluster() -> Allocator {
    let mut allocator = Allocator::new();
    for at in 0..NODES {
        let card = format!(r#"{{"uuid": "g{at}", "index": 0, "model": "A", "memory_mib": 1000}}"#);
        let node = format!(r#"{{"name": "n{at:02}", "cards": [{card}]}}"#);
        let node: Node = parse("node", node.as_bytes()).expect("a good node");
        allocator.set_node(node).expect("a good node");
    }
    allocator
}

/// It fits nowhere, and finding that out needs a search. Each number is a class of its own.
fn hard(namespace: &str, at: usize) -> PodRequest {
    let container = |name| {
        let mib = 501 + at;
        format!(
            r#"{{"container": "{name}", "kind": "app", "cards": 1, "memory": {{"mib": {mib}}}}}"#
        )
    };
    let text = format!(
        r#"{{"pod": {{"uid": "{namespace}-{at}", "namespace": "{namespace}", "name": "p"}},
        "priority": 0, "containers": [{}, {}]}}"#,
        container("a"),
        container("b")
    );
    parse("request", text.as_bytes()).expect("a good request")
}

/// The number of nodes that are not searched yet.
fn left(allocator: &mut Allocator, request: &PodRequest, now_ns: u64) -> usize {
    let numbers: Vec<Option<u32>> = (0..NODES).map(Some).collect();
    let (mut left, effort) = (0, &mut Effort::within(STEPS));
    allocator.judge(request, &numbers, effort, now_ns, |_, told| {
        let (Verdict::Full(why) | Verdict::Unresolvable(why)) = told else {
            panic!("it fits nowhere")
        };
        left += usize::from(why.starts_with("not looked at"));
    });
    left
}

/// Asks about all pods once in each round until all nodes are searched; returns the number of
/// rounds.
fn rounds(allocator: &mut Allocator, pods: &mut Vec<PodRequest>, from_ns: u64) -> usize {
    for round in 0..100 {
        let now_ns = from_ns + round as u64 * 10 * SECOND;
        pods.retain(|pod| left(allocator, pod, now_ns) > 0);
        if pods.is_empty() {
            return round + 1;
        }
        // Not always in the same order.
        let first = round * 7 % pods.len();
        pods.rotate_left(first);
    }
    panic!("{} are never answered", pods.len());
}

fn many(namespace: &str, count: usize) -> Vec<PodRequest> {
    (0..count).map(|at| hard(namespace, at)).collect()
}

#[test]
fn many_classes_in_turn_all_finish() {
    let alone = rounds(&mut cluster(), &mut many("team", 1), 0);
    assert!(alone > 3, "it takes several questions: {alone}");
    assert_eq!(rounds(&mut cluster(), &mut many("team", 60), 0), alone);
    for count in [65, 66, 100, 300] {
        let most = alone * (1 + count / (CLASSES / 2));
        let rounds = rounds(&mut cluster(), &mut many("team", count), 0);
        assert!(rounds <= most, "{count}: {rounds}, and {alone} for one");
    }
}

#[test]
fn an_unfinished_class_of_a_deleted_pod_is_evicted_after_a_while() {
    let mut allocator = cluster();
    for pod in many("team", CLASSES) {
        assert!(left(&mut allocator, &pod, 0) > 0);
    }
    let mut others: Vec<PodRequest> = (100..170).map(|at| hard("team", at)).collect();
    rounds(&mut allocator, &mut others, 2 * WAITING_NS);
}

#[test]
fn another_namespace_and_easy_classes_keep_their_place() {
    let alone = rounds(&mut cluster(), &mut many("good", 1), 0);
    let mut allocator = cluster();
    let evil = many("evil", 3 * CLASSES);
    let container = |allocator: &mut Allocator, request: &PodRequest, now_ns: u64| {
        let numbers: Vec<Option<u32>> = (0..NODES).map(Some).collect();
        allocator.judge(request, &numbers, &mut Effort::within(STEPS), now_ns, |_, _| ())
    };
    let mut easy = hard("evil", 0);
    easy.containers.pop();
    for round in 1..=alone {
        let now_ns = round as u64 * 10 * SECOND;
        assert_eq!(left(&mut allocator, &hard("good", 300), now_ns) == 0, round == alone);
        for (at, pod) in evil.iter().enumerate() {
            container(&mut allocator, pod, now_ns);
            let before = allocator.evaluations();
            container(&mut allocator, &easy, now_ns);
            assert!((round, at) == (1, 0) || allocator.evaluations() == before);
        }
    }
}
