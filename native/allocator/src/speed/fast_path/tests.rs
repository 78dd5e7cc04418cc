//! The fast path compared with the search, node by node.

use super::{FastPath, Unfit};
use crate::engine::Allocator;
use crate::rules::card_reason;
use crate::rules::class::Class;
use crate::search::effort::Effort;
use crate::search::score;
use crate::search::{chosen, find};
use crate::wire::Node;
use crate::wire::parse::parse;

const MODES: [&str; 7] = ["full", "memory", "exclusive", "share", "topology", "mps", "mig"];
const PLACEMENTS: [&str; 3] = ["null", "\"binpack\"", "\"spread\""];
const WISHES: [&str; 10] = [
    "",
    r#""order": ["binpack"]"#,
    r#""order": ["spread", "binpack"], "node_order": "spread""#,
    r#""order": ["mutex"]"#,
    r#""mutex": true, "types": ["a100"]"#,
    r#""avoid_types": ["T4"], "mode": "hami-core""#,
    r#""weights": {"slot": 0, "core": 3, "memory": 7}"#,
    r#""mode": "mps", "node_order": "binpack""#,
    r#""isolation": "kernel""#,
    r#""mode": "mig""#,
];
const INSTANCES: &str = r#"{"profiles": [
    {"name": "1g", "memory_mib": 200, "slices": 1, "placements": [0, 1, 2, 3], "size": 1},
    {"name": "4g", "memory_mib": 780, "slices": 4, "placements": [0], "size": 4}]}"#;
const ASKS: [&str; 7] = [
    r#""memory": {"mib": 70}"#,
    r#""memory": {"mib": 430}, "cores": 35"#,
    r#""memory": {"mib": 10}, "cores": 100"#,
    r#""memory": {"percent": 2}"#,
    r#""memory": {"percent": 45}, "cores": 20"#,
    r#""memory": "whole""#,
    r#""memory": "whole", "cores": 100"#,
];

fn node(mode: &str, placement: &str, step: usize) -> Node {
    let kinds = if step.is_multiple_of(2) { 1 } else { 3 };
    let card = |at: usize| {
        let kind = at % kinds;
        let model = ["Tesla T4", "A100", "A100"][(at + step) % 3];
        let (memory, foreign) = (800 + 100 * kind, 150 * usize::from(at == 3));
        let (cores, slots) = ([100, 100, 150][step % 3], 3 + kind % 2);
        let level = ["preload", "kernel", "mig"][(at * kind + step) % 3];
        let (healthy, cordoned) = ((at + step) % 9 != 4, (at + step) % 11 == 5);
        let mig = if step % 5 == 1 && at == 2 { INSTANCES } else { "null" };
        format!(
            r#"{{"uuid": "g{at}", "index": {at}, "model": "{model}", "memory_mib": {memory},
            "cores": {cores}, "slots": {slots}, "healthy": {healthy}, "cordoned": {cordoned},
            "foreign_mib": {foreign}, "level": "{level}", "mig": {mig}}}"#
        )
    };
    let cards: Vec<String> = (0..step % 7).map(card).collect();
    let json = format!(
        r#"{{"name": "n", "mode": "{mode}", "placement": {placement}, "cards": [{}]}}"#,
        cards.join(",")
    );
    parse("node", json.as_bytes()).expect("a good node")
}

fn request(
    uid: usize,
    cards: usize,
    container: &str,
    card_request: &str,
) -> crate::wire::PodRequest {
    let json = format!(
        r#"{{"pod": {{"uid": "{uid}", "namespace": "a", "name": "b"}}, "card_request": {{{card_request}}},
        "containers": [{{"container": "c", "kind": "app", "cards": {cards}, {container}}}]}}"#
    );
    parse("request", json.as_bytes()).expect("a good request")
}

/// The result of the search: the score, or the brief reason and whether the empty node does not fit
/// either.
fn searched(allocator: &Allocator, class: &Class, number: u32) -> Result<u16, (String, bool)> {
    let (view, mut chosen) = (allocator.node(number).view(), Vec::new());
    let mut effort = Effort::for_node();
    match find::find(class, &view, None, &mut effort, &mut chosen) {
        Ok(()) => {
            let mut loads = Vec::new();
            chosen::loads(class, &view, &chosen, &mut loads);
            Ok(score::score(class, &mut class.scale(), &view, &chosen, &loads))
        }
        Err(reason) => {
            let (reason, never) = find::lasting(class, &view, reason, &mut effort, &mut chosen);
            Err((reason.brief(), never))
        }
    }
}

#[test]
fn the_fast_path_finds_what_the_search_finds() {
    let mut allocator = Allocator::new();
    let (mut fit, mut full, mut never, mut unseen) = (0, 0, 0, 0);
    for step in 0..252 {
        let (mode, placement) = (MODES[step / 7 % 7], PLACEMENTS[step % 3]);
        allocator.set_node(node(mode, placement, 3 + step)).expect("a good node");
        let number = allocator.number("n").expect("it is there");
        for (card_request, container, cards) in WISHES
            .iter()
            .flat_map(|card_request| ASKS.iter().map(move |container| (card_request, container)))
            .flat_map(|(card_request, container)| {
                [1, 2, 4].map(|cards| (card_request, container, cards))
            })
        {
            let mut class = Class::of(&request(1000, cards, container, card_request));
            class.meet_models(&allocator.models);
            let mut fast = FastPath::of(&class);
            let Some(seen) = fast.judge(&allocator.table.get(number)) else {
                unseen += 1;
                continue;
            };
            let seen = seen.map_err(|Unfit { nearest, when_empty }| {
                (card_reason::brief(nearest).to_owned(), when_empty)
            });
            match &seen {
                Ok(_) => fit += 1,
                Err((_, false)) => full += 1,
                Err(_) => never += 1,
            }
            let found = searched(&allocator, &class, number);
            assert_eq!(seen, found, "{card_request} {container} {cards}, step {step}");
        }
        let taken = request(step, 1 + step % 2, ASKS[step % 5], "");
        let _full = allocator.reserve(&taken, "n", 0);
        if step % 7 == 6 {
            (step - 6..step).for_each(|at| allocator.remove(&at.to_string()));
        }
    }
    assert!(
        fit > 1500 && full > 1500 && never > 1500 && unseen > 1500,
        "{fit} {full} {never} {unseen}"
    );
}
