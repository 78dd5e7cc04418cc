//! Which nodes fit, which one is the best, and why the others do not fit.

use crate::build::{app, card, init, node, plain, pod, reserve, with, with_card_request};
use hami_allocator::Allocator;
use hami_allocator::wire::{CardRequest, Placement, Weights};

#[test]
fn empty_nodes_that_would_not_do_are_told_apart() {
    let mut allocator = with(vec![plain("n", 1), plain("small", 1)]);
    reserve(&mut allocator, &pod("a", &[app(1, 600, 0)])).expect("room");
    let filtered =
        allocator.filter(&pod("b", &[app(1, 600, 0)]), &["n", "small"], 0).expect("good");
    assert_eq!((filtered.feasible, filtered.failed[0].0), (vec![1], 0));
    let filtered = allocator.filter(&pod("c", &[app(1, 1001, 0)]), &["n"], 0).expect("good");
    assert_eq!(filtered.unresolvable.len(), 1);
    let filtered =
        allocator.filter(&pod("d", &[init(1, 1, 0), app(2, 1, 0)]), &["n"], 0).expect("good");
    assert_eq!(filtered.unresolvable.len(), 1);
}

#[test]
fn scores_are_of_the_node_with_the_pod() {
    let mut allocator = with(vec![plain("n", 2), plain("m", 2)]);
    reserve(&mut allocator, &pod("a", &[app(1, 500, 50)])).expect("room");
    let score = |allocator: &mut Allocator, node_order, mib| {
        let card_request = CardRequest { node_order, ..CardRequest::default() };
        allocator
            .score(
                &with_card_request(pod("b", &[app(1, mib, 10)]), card_request),
                &["n", "m"],
                0,
                0,
            )
            .expect("good")
    };
    let scores = score(&mut allocator, None, 100);
    assert!(scores[0] > scores[1], "{scores:?}");
    let scores = score(&mut allocator, Some(Placement::Spread), 100);
    assert!(scores[0] < scores[1], "{scores:?}");
    assert!(score(&mut allocator, None, 900)[1] > score(&mut allocator, None, 100)[1]);
}

#[test]
fn waste_is_avoided() {
    // The pod leaves 400 MiB of one card unused, and 200 MiB that no such pod can use of the other.
    let mut allocator =
        with(vec![node("n", vec![card("g0", 800)]), node("m", vec![card("h0", 1000)])]);
    let card_request = CardRequest {
        weights: Some(Weights { slot: 1, core: 0, memory: 0 }),
        ..CardRequest::default()
    };
    let scores = allocator
        .score(&with_card_request(pod("a", &[app(1, 400, 0)]), card_request), &["n", "m"], 0, 0)
        .expect("good");
    assert!(scores[0] > scores[1], "{scores:?}");
}

#[test]
fn a_pod_that_is_small_beside_a_node_makes_a_difference() {
    let names: Vec<String> = (0..6).map(|at| format!("n{at}")).collect();
    let cards = |name: &str| (0..8).map(|at| card(&format!("{name}-{at}"), 81_920)).collect();
    let mut allocator = with(names.iter().map(|name| node(name, cards(name))).collect());
    // No pod is on the first node, one on the second, and so on.
    for (pods, name) in names.iter().enumerate() {
        for at in 0..pods {
            let request = pod(&format!("{name}-p{at}"), &[app(1, 100, 0)]);
            let assignment = allocator.reserve(&request, name, 0).expect("room");
            allocator.place(&request, assignment, true).expect("our own answer");
        }
    }
    let mut scores = |node_order| {
        let card_request = CardRequest { node_order, ..CardRequest::default() };
        let asked = with_card_request(pod("next", &[app(1, 100, 0)]), card_request);
        allocator.score(&asked, &names, 0, 0).expect("good")
    };
    let (packed, spread) = (scores(Some(Placement::Binpack)), scores(Some(Placement::Spread)));
    assert!(packed.windows(2).all(|two| two[0] < two[1]), "{packed:?}");
    assert!(spread.windows(2).all(|two| two[0] > two[1]), "{spread:?}");
}

#[test]
fn explain_has_a_reason_for_each_card() {
    let mut allocator = with(vec![plain("n", 2)]);
    reserve(&mut allocator, &pod("a", &[app(1, 600, 0)])).expect("room");
    let why = allocator.explain(&pod("b", &[app(1, 500, 0)]), "n").expect("good");
    assert!(why.fits);
    let codes: Vec<_> =
        why.cards.iter().map(|card| (card.free_mib, card.containers[0].code)).collect();
    assert_eq!(codes, [(400, Some("memory")), (1000, None)]);
    assert_eq!(why.assignment.expect("a plan").containers["c0"][0].card, "g1");
    assert_eq!(
        why.cards[0].containers[0].reason.as_deref(),
        Some("has too little memory (500 MiB requested, free 400)")
    );
    let why = allocator.explain(&pod("b", &[app(1, 5000, 0)]), "n").expect("good");
    assert!(!why.fits && why.unresolvable && why.score.is_none());
}
