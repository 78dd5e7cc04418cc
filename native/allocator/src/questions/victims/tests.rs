//! The search ends if there are too many sets. The test counts tries.

use super::TRIES;
use crate::engine::Allocator;
use crate::search::effort::Effort;
use crate::wire::parse::parse;
use crate::wire::{Candidate, Node, PodRequest};

const CARDS: usize = 8;
const PODS: usize = 40;

fn request(uid: &str, priority: i32, container: &str) -> PodRequest {
    let text = format!(
        r#"{{"pod": {{"uid": "{uid}", "namespace": "team", "name": "{uid}"}},
        "priority": {priority}, "containers": [{{"container": "c", {container}}}]}}"#
    );
    parse("request", text.as_bytes()).expect("a good request")
}

/// Five pods are on each of eight cards. The smallest sets that empty four cards have twenty pods,
/// and there are about 10^11 sets that are not larger.
#[test]
fn a_search_with_too_many_sets_ends_with_an_answer() {
    for pdb_violating in [false, true] {
        let mut allocator = Allocator::new();
        let card =
            |at| format!(r#"{{"uuid": "g{at}", "index": {at}, "model": "A", "memory_mib": 1000}}"#);
        let cards: Vec<String> = (0..CARDS).map(card).collect();
        let node = format!(r#"{{"name": "n", "cards": [{}]}}"#, cards.join(","));
        let node: Node = parse("node", node.as_bytes()).expect("a good node");
        allocator.set_node(node).expect("a good node");
        let mut candidates = Vec::new();
        let mut on = Vec::new();
        for at in 0..PODS {
            let uid = format!("p{at:02}");
            let small = request(&uid, 0, r#""kind": "app", "cards": 1, "memory": {"mib": 200}"#);
            let assignment = allocator.reserve(&small, "n", 0).expect("room");
            on.push((uid.clone(), assignment.containers["c"][0].card.clone()));
            allocator.place(&small, assignment, true).expect("our own answer");
            candidates.push(Candidate { uid, priority: 0, pdb_violating, chosen: false });
        }
        let urgent = request("urgent", 10, r#""kind": "app", "cards": 4, "memory": {"mib": 1000}"#);
        let effort = &mut Effort::for_victims();
        let found = allocator.find_victims(&urgent, "n", &candidates, effort);
        let (victims, tries) = (found.0.expect("there is a way"), found.1);
        assert!(tries > TRIES, "it was too large: {tries}");
        let linear = u32::try_from(3 * PODS).expect("few");
        assert!(tries <= TRIES + linear, "{tries}");
        // No pod is evicted needlessly: all of four cards.
        let mut freed: Vec<&str> = on
            .iter()
            .filter(|(uid, _)| victims.contains(uid))
            .map(|(_, card)| card.as_str())
            .collect();
        freed.sort_unstable();
        assert_eq!(freed.len(), PODS / 2);
        freed.dedup();
        assert_eq!(freed.len(), CARDS / 2);
    }
}
