//! Links and NUMA nodes.

use crate::build::{app, card, node, pod, reserve, with, with_card_request};
use crate::kubelet::subsets;
use crate::prng::Prng;
use hami_allocator::Allocator;
use hami_allocator::wire::{Card, CardRequest, Node, Order, Topology};

fn linked(scores: &[(usize, usize, u32)], count: usize) -> Node {
    let mut cards: Vec<Card> = (0..count).map(|at| card(&format!("g{at}"), 1000)).collect();
    for (one, other, score) in scores {
        cards[*one].links.insert(format!("g{other}"), *score);
    }
    node("n", cards)
}

fn topology(topology: Topology) -> CardRequest {
    CardRequest { topology, ..CardRequest::default() }
}

#[test]
fn the_best_linked_cards_are_taken_and_strict_takes_no_others() {
    let node = linked(&[(0, 1, 10), (0, 2, 40), (1, 3, 40), (2, 3, 10)], 4);
    let mut allocator = with(vec![node]);
    let pair = |uid: &str, card_request| {
        with_card_request(pod(uid, &[app(2, 900, 0)]), topology(card_request))
    };
    assert_eq!(
        reserve(&mut allocator, &pair("a", Topology::Strict)),
        Ok(vec![vec!["g0".into(), "g2".into()]])
    );
    let one = with_card_request(
        pod("b", &[app(1, 900, 0)]),
        CardRequest { uuids: vec!["g1".into()], ..CardRequest::default() },
    );
    reserve(&mut allocator, &one).expect("room");
    reserve(&mut allocator, &pair("c", Topology::Strict)).unwrap_err();
    allocator.remove("b");
    assert_eq!(
        reserve(&mut allocator, &pair("c", Topology::Strict)),
        Ok(vec![vec!["g1".into(), "g3".into()]])
    );
    allocator.remove("a");
    allocator.remove("c");
    for uid in ["g0", "g3"] {
        let one = with_card_request(
            pod(uid, &[app(1, 900, 0)]),
            CardRequest { uuids: vec![uid.into()], ..CardRequest::default() },
        );
        reserve(&mut allocator, &one).expect("room");
    }
    let said = reserve(&mut allocator, &pair("d", Topology::Strict)).unwrap_err();
    assert_eq!(said, "no 2 free cards are linked as well as the node's best (40)");
    assert_eq!(
        reserve(&mut allocator, &pair("d", Topology::BestEffort)),
        Ok(vec![vec!["g1".into(), "g2".into()]])
    );
    let mut unknown = with(vec![linked(&[], 2)]);
    let said = reserve(&mut unknown, &pair("e", Topology::Strict)).unwrap_err();
    assert_eq!(said, "it is not known how its cards are linked, and 2 linked cards are requested");
}

#[test]
fn one_card_is_the_worst_linked_one() {
    let node = linked(&[(0, 1, 10), (1, 2, 40), (0, 2, 10)], 3);
    let card_request =
        CardRequest { order: vec![Order::Topology, Order::Binpack], ..CardRequest::default() };
    let request = with_card_request(pod("a", &[app(1, 10, 0)]), card_request);
    assert_eq!(reserve(&mut with(vec![node]), &request), Ok(vec![vec!["g0".into()]]));
}

#[test]
fn the_best_of_all_subsets_is_found() {
    for seed in 0..200 {
        let random = &mut Prng::new(seed);
        let count = 3 + random.below(6);
        let mut links = Vec::new();
        for one in 0..count {
            (0..one)
                .for_each(|other| links.push((one, other, random.pick(&[0, 10, 50, 100, 300]))));
        }
        let wanted = 2 + random.below(count - 1);
        let request = with_card_request(
            pod("a", &[app(wanted as u32, 10, 0)]),
            topology(Topology::BestEffort),
        );
        let hand = &reserve(&mut with(vec![linked(&links, count)]), &request).expect("room")[0];
        let score = |one: usize, other: usize| {
            let pair = (one.max(other), one.min(other));
            links.iter().find(|(a, b, _)| (*a, *b) == pair).map_or(0, |(.., score)| *score)
        };
        let sum = |cards: &[usize]| -> u32 {
            cards
                .iter()
                .enumerate()
                .flat_map(|(at, one)| cards[..at].iter().map(|other| score(*one, *other)))
                .sum()
        };
        let hand: Vec<usize> =
            hand.iter().map(|uuid| uuid[1..].parse().expect("a number")).collect();
        let best = subsets(count, wanted).iter().map(|cards| sum(cards)).max().expect("some");
        assert_eq!(sum(&hand), best, "seed {seed}");
    }
}

#[test]
fn a_container_stays_on_one_numa_node() {
    let mut cards: Vec<Card> = (0..5).map(|at| card(&format!("g{at}"), 1000)).collect();
    for (card, numa) in cards.iter_mut().zip([Some(0), Some(1), None, Some(1), Some(0)]) {
        card.numa = numa;
    }
    let mut allocator = with(vec![node("n", cards)]);
    let bound = |uid: &str, count| {
        with_card_request(
            pod(uid, &[app(count, 900, 0)]),
            CardRequest { numa: true, ..CardRequest::default() },
        )
    };
    assert_eq!(reserve(&mut allocator, &bound("a", 2)), Ok(vec![vec!["g0".into(), "g4".into()]]));
    let said = reserve(&mut allocator, &bound("b", 3)).unwrap_err();
    assert_eq!(said, "no NUMA node has 3 fitting cards (the best has 2)");
    assert_eq!(reserve(&mut allocator, &bound("c", 2)), Ok(vec![vec!["g1".into(), "g3".into()]]));
    assert_eq!(reserve(&mut allocator, &bound("d", 1)), Ok(vec![vec!["g2".into()]]));
}

#[test]
fn numa_as_an_order_prefers_company_but_takes_what_there_is() {
    let mut cards: Vec<Card> = (0..4).map(|at| card(&format!("g{at}"), 1000)).collect();
    for (card, numa) in cards.iter_mut().zip([Some(0), Some(1), Some(1), None]) {
        card.numa = numa;
    }
    let request = |count| {
        let card_request =
            CardRequest { order: vec![Order::Numa, Order::Spread], ..CardRequest::default() };
        with_card_request(pod("a", &[app(count, 10, 0)]), card_request)
    };
    let taken = |count| {
        reserve(&mut with(vec![node("n", cards.clone())]), &request(count)).expect("room").remove(0)
    };
    assert_eq!(taken(2), ["g1", "g2"]);
    assert_eq!(taken(3), ["g1", "g2", "g0"]);
}

#[test]
fn sixteen_cards_take_no_forever() {
    let mut links = Vec::new();
    let random = &mut Prng::new(7);
    for one in 0..16 {
        (0..one).for_each(|other| links.push((one, other, random.below(1000) as u32)));
    }
    let request = with_card_request(pod("a", &[app(8, 10, 0)]), topology(Topology::BestEffort));
    let mut allocator: Allocator = with(vec![linked(&links, 16)]);
    assert_eq!(reserve(&mut allocator, &request).expect("room")[0].len(), 8);
}

/// Link scores of real machines: NVIDIA's hybrid cube mesh, pairs, and islands.
fn pictures() -> Vec<Vec<Vec<u32>>> {
    let (two, one) = (
        [(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)],
        [(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)],
    );
    let mesh = |a: usize, b: usize| {
        let pair = (a.min(b), a.max(b));
        if two.contains(&pair) {
            100
        } else if one.contains(&pair) {
            50
        } else {
            10
        }
    };
    let by = |island: fn(usize) -> usize| {
        move |a: usize, b: usize| if island(a) == island(b) { 100 } else { 10 }
    };
    let all: [&dyn Fn(usize, usize) -> u32; 6] = [
        &mesh,
        &|a, b| [100, 20, 10][usize::from(a / 2 != b / 2) + usize::from(a / 4 != b / 4)],
        &by(|at| at / 4),
        &by(|at| usize::from(at < 3)),
        &by(|at| usize::from(at == 0 || at == 5)),
        &by(|at| at / 3),
    ];
    let row = |score: &dyn Fn(usize, usize) -> u32, a: usize| {
        (0..8).map(|b| if a == b { 0 } else { score(a, b) }).collect()
    };
    all.iter().map(|score| (0..8).map(|a| row(score, a)).collect()).collect()
}

/// All ways to write a number as a sum.
fn sums(whole: usize) -> Vec<Vec<usize>> {
    if whole == 0 {
        return vec![Vec::new()];
    }
    let from = |first: usize| {
        sums(whole - first).into_iter().map(move |rest| [vec![first], rest].concat())
    };
    (1..=whole).flat_map(from).collect()
}

/// Whether each container can have one of the best subsets, without the taken cards.
fn is_possible(best: &[Vec<Vec<usize>>], counts: &[usize], taken: &[usize]) -> bool {
    let Some((first, rest)) = counts.split_first() else { return true };
    let free = |cards: &&Vec<usize>| cards.iter().all(|card| !taken.contains(card));
    let mut hands = best[*first].iter().filter(free);
    hands.any(|hand| is_possible(best, rest, &[taken, hand].concat()))
}

#[test]
fn strict_is_placed_exactly_where_there_is_a_way() {
    let (mut found, mut none) = (0, 0);
    for (picture, scores) in pictures().iter().enumerate() {
        let sum = |cards: &[usize]| -> u32 {
            let pairs = |at: usize| cards[..at].iter().map(move |other| scores[cards[at]][*other]);
            (0..cards.len()).flat_map(pairs).sum()
        };
        // The best sum and the subsets that have it, by the number of cards.
        let best: Vec<Vec<Vec<usize>>> = (0..=8)
            .map(|count| {
                let all = subsets(8, count);
                let most = all.iter().map(|cards| sum(cards)).max().expect("one at least");
                all.into_iter().filter(|cards| sum(cards) == most).collect()
            })
            .collect();
        let links: Vec<(usize, usize, u32)> =
            (0..8).flat_map(|a| (0..a).map(move |b| (a, b, scores[a][b]))).collect();
        for busy in [vec![], vec![2], vec![0, 7], vec![1, 4, 6]] {
            let mut allocator = with(vec![linked(&links, 8)]);
            for at in &busy {
                let card_request =
                    CardRequest { uuids: vec![format!("g{at}")], ..CardRequest::default() };
                let one =
                    with_card_request(pod(&format!("busy-{at}"), &[app(1, 900, 0)]), card_request);
                reserve(&mut allocator, &one).expect("room");
            }
            for counts in (2..=8 - busy.len()).flat_map(sums) {
                let containers: Vec<_> =
                    counts.iter().map(|count| app(*count as u32, 900, 0)).collect();
                let asked =
                    with_card_request(pod("asked", &containers), topology(Topology::Strict));
                let answer = reserve(&mut allocator, &asked);
                allocator.remove("asked");
                let possible = is_possible(&best, &counts, &busy);
                let hands = answer.clone().unwrap_or_default();
                for hand in &hands {
                    let hand: Vec<usize> =
                        hand.iter().map(|uuid| uuid[1..].parse().expect("a number")).collect();
                    assert!(best[hand.len()].iter().any(|one| sum(one) == sum(&hand)));
                }
                let case = (picture, &busy, &counts);
                assert_eq!(answer.is_ok(), possible, "{case:?}: {answer:?}");
                found += u32::from(possible);
                none += u32::from(!possible);
            }
        }
    }
    assert!(found > 1000 && none > 100, "{found} {none}");
}
