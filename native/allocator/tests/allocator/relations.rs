//! Filters respect relations between the cards of a node, also for requests of one container.

use crate::build::{app, card, node, pod, reserve, with, with_card_request};
use hami_allocator::Allocator;
use hami_allocator::wire::{CardRequest, PodRequest};

/// Two cards on different NUMA nodes.
fn two_sided() -> Allocator {
    let mut cards = vec![card("g0", 1000), card("g1", 1000)];
    (cards[0].numa, cards[1].numa) = (Some(0), Some(1));
    with(vec![node("n", cards)])
}

/// Whether the filter finds the node. It must agree with reserve.
fn fits(request: &PodRequest) -> bool {
    let mut allocator = two_sided();
    let found = allocator.filter(request, &["n".to_owned()], 0).expect("a good request");
    let fits = !found.feasible.is_empty();
    assert_eq!(fits, reserve(&mut allocator, request).is_ok(), "{request:?}");
    fits
}

#[test]
fn cards_of_one_numa_node_are_not_found_on_two() {
    let card_request = CardRequest { numa: true, ..CardRequest::default() };
    assert!(fits(&with_card_request(pod("one", &[app(1, 100, 0)]), card_request.clone())));
    assert!(!fits(&with_card_request(pod("two", &[app(2, 100, 0)]), card_request)));
    assert!(fits(&pod("any", &[app(2, 100, 0)])));
}

#[test]
fn cards_are_chosen_and_avoided_by_uuid() {
    let choosing = |uuids: &[&str], avoid: &[&str]| {
        let names = |all: &[&str]| all.iter().map(|&one| one.to_owned()).collect();
        let card_request =
            CardRequest { uuids: names(uuids), avoid: names(avoid), ..CardRequest::default() };
        [1, 2].map(|cards| {
            fits(&with_card_request(pod("p", &[app(cards, 100, 0)]), card_request.clone()))
        })
    };
    assert_eq!(choosing(&[], &["g0"]), [true, false]);
    assert_eq!(choosing(&[], &["g0", "g1"]), [false, false]);
    assert_eq!(choosing(&["g1"], &[]), [true, false]);
    assert_eq!(choosing(&["g1", "g0"], &[]), [true, true]);
}
