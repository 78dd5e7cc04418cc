//! Links and NUMA nodes.

use crate::build::{app, card, node, pod, reserve, wishing, with};
use crate::kubelet::subsets;
use crate::prng::Prng;
use hami_allocator::Allocator;
use hami_allocator::wire::{Card, Node, Order, Topology, Wish};

fn linked(scores: &[(usize, usize, u32)], count: usize) -> Node {
    let mut cards: Vec<Card> = (0..count).map(|at| card(&format!("g{at}"), 1000)).collect();
    for (one, other, score) in scores {
        cards[*one].links.insert(format!("g{other}"), *score);
    }
    node("n", cards)
}

fn topology(topology: Topology) -> Wish {
    Wish { topology, ..Wish::default() }
}

#[test]
fn the_best_linked_cards_are_taken_and_strict_takes_no_others() {
    let node = linked(&[(0, 1, 10), (0, 2, 40), (1, 3, 40), (2, 3, 10)], 4);
    let mut allocator = with(vec![node]);
    let pair = |uid: &str, wish| wishing(pod(uid, &[app(2, 900, 0)]), topology(wish));
    assert_eq!(
        reserve(&mut allocator, &pair("a", Topology::Strict)),
        Ok(vec![vec!["g0".into(), "g2".into()]])
    );
    let one =
        wishing(pod("b", &[app(1, 900, 0)]), Wish { uuids: vec!["g1".into()], ..Wish::default() });
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
        let one = wishing(
            pod(uid, &[app(1, 900, 0)]),
            Wish { uuids: vec![uid.into()], ..Wish::default() },
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
    assert_eq!(said, "it is not known how its cards are linked, and 2 linked are asked for");
}

#[test]
fn one_card_is_the_worst_linked_one() {
    let node = linked(&[(0, 1, 10), (1, 2, 40), (0, 2, 10)], 3);
    let wish = Wish { order: vec![Order::Topology, Order::Binpack], ..Wish::default() };
    let request = wishing(pod("a", &[app(1, 10, 0)]), wish);
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
        let request =
            wishing(pod("a", &[app(wanted as u32, 10, 0)]), topology(Topology::BestEffort));
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
        wishing(pod(uid, &[app(count, 900, 0)]), Wish { numa: true, ..Wish::default() })
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
        let wish = Wish { order: vec![Order::Numa, Order::Spread], ..Wish::default() };
        wishing(pod("a", &[app(count, 10, 0)]), wish)
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
    let request = wishing(pod("a", &[app(8, 10, 0)]), topology(Topology::BestEffort));
    let mut allocator: Allocator = with(vec![linked(&links, 16)]);
    assert_eq!(reserve(&mut allocator, &request).expect("room")[0].len(), 8);
}
