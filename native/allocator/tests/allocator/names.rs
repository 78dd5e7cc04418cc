//! Node names in lists of every order and notation, compared with a plain map of the nodes.

use crate::build::{app, card, node, pod, with};
use crate::prng::Prng;
use hami_allocator::Allocator;
use std::collections::{BTreeMap, BTreeSet};

/// The MiB that the card of a node may have.
const SIZES: [u64; 5] = [400, 500, 650, 900, 1_700];

fn name(at: usize) -> String {
    match at % 6 {
        0 => format!("n\"{at}\\"),
        1 => format!("n\u{f6}d\u{e9}-\u{1f600}-{at}"),
        2 => format!("node-{at}{}", ".a-rather-long-domain".repeat(at % 5)),
        3 => format!("\u{7f}tab\t{at}"),
        _ => format!("node-{at}"),
    }
}

/// The list as Go writes it, or with blanks, or with escapes.
fn written(random: &mut Prng, list: &[String]) -> String {
    let escaped = |name: &String| {
        let units = name.encode_utf16().map(|unit| format!("\\u{unit:04x}"));
        format!("\"{}\"", units.collect::<String>())
    };
    match random.below(4) {
        0 => serde_json::to_string_pretty(list).expect("a list"),
        1 => format!("[{}]", list.iter().map(escaped).collect::<Vec<String>>().join(",")),
        _ => serde_json::to_string(list).expect("a list"),
    }
}

/// The score of a pod by the MiB of a node; 0 if there is too little.
fn scores(mib: u64) -> BTreeMap<u64, u16> {
    let score = |size| {
        let mut alone = with(vec![node("n", vec![card("g0", size)])]);
        alone.score(&pod("a", &[app(1, mib, 0)]), &["n"], 0, 0).expect("good")[0]
    };
    SIZES.iter().map(|size| (*size, score(*size))).collect()
}

#[test]
fn lists_in_any_order_and_writing_are_answered_as_a_plain_map_has_it() {
    let containers: Vec<(u64, BTreeMap<u64, u16>)> =
        [10, 450, 600, 1_000].map(|mib| (mib, scores(mib))).into();
    for (count, rounds) in [(0, 3), (1, 10), (2, 20), (60, 120), (1_500, 5)] {
        let random = &mut Prng::new(count as u64);
        let (mut allocator, mut known) = (Allocator::new(), BTreeMap::new());
        let mut order: Vec<usize> = (0..count).collect();
        let come = |allocator: &mut Allocator, random: &mut Prng, at: usize| {
            let size = random.pick(&SIZES);
            let cards = vec![card(&format!("g{at}"), size)];
            allocator.set_node(node(&name(at), cards)).expect("a good node");
            size
        };
        for at in 0..count {
            known.insert(name(at), come(&mut allocator, random, at));
        }
        for round in 0..rounds {
            if random.chance(30) {
                random.shuffle(&mut order);
            }
            order.rotate_left(count / 3);
            let mut list: Vec<String> = order.iter().map(|at| name(*at)).collect();
            for _ in 0..random.below(4) {
                list.insert(random.below(list.len() + 1), name(random.below(count + 3)));
            }
            if random.chance(20) {
                list.insert(random.below(list.len() + 1), String::new());
            }
            let (mib, scores) = &containers[round % containers.len()];
            let expected: Vec<u16> =
                list.iter().map(|name| known.get(name).map_or(0, |size| scores[size])).collect();
            let request = pod("a", &[app(1, *mib, 0)]);
            let json = written(random, &list);
            let (read, filtered) =
                allocator.filter_list(&request, json.as_bytes(), 0).expect("a good list");
            let fits = |at: &u32| expected[*at as usize] > 0;
            let feasible: Vec<u32> = (0..list.len() as u32).filter(fits).collect();
            assert_eq!(filtered.feasible, feasible);
            let by_name = allocator.filter(&request, &list, 0).expect("a good request");
            assert_eq!(by_name.feasible, feasible);
            // Nodes may be added and removed between the two questions.
            let most = random.below(3);
            let changed: BTreeSet<usize> = (0..most).map(|_| random.below(count + 1)).collect();
            for at in changed {
                if known.remove(&name(at)).is_some() {
                    allocator.remove_node(&name(at));
                } else {
                    known.insert(name(at), come(&mut allocator, random, at));
                }
            }
            let expected: Vec<u16> =
                list.iter().map(|name| known.get(name).map_or(0, |size| scores[size])).collect();
            let (_, rated) = allocator
                .score_list(&request, json.as_bytes(), Some(read), 0, 0)
                .expect("a good list");
            assert_eq!(rated.scores, expected);
            let most = expected.iter().max().filter(|most| **most > 0);
            let first = most.and_then(|most| {
                let best = (0..list.len()).filter(|at| expected[*at] == *most);
                best.min_by_key(|at| (&list[*at], *at))
            });
            assert_eq!(rated.best, first);
        }
    }
}
