//! A request that a node can never meet has another reason than one that it cannot meet now.

use crate::build::{app, card, node, plain, pod, quota, reserve, with, with_card_request};
use hami_allocator::Allocator;
use hami_allocator::wire::{
    Card, CardRequest, ContainerRequest, Level, PodRequest, Sharing, Topology,
};

/// A node whose only cards are full.
fn full(cards: Vec<Card>) -> Allocator {
    let count = cards.len() as u32;
    let mut allocator = with(vec![node("n", cards)]);
    reserve(&mut allocator, &pod("first", &[app(count, 990, 90)])).expect("room");
    allocator
}

/// The reason for node `n`, and whether no eviction would help.
fn reason(allocator: &mut Allocator, request: &PodRequest) -> (String, bool) {
    let filtered = allocator.filter(request, &["n"], 0).expect("a good request");
    let explained = allocator.explain(request, "n").expect("a good request");
    let of = |all: &[(u32, std::sync::Arc<str>)]| all.first().map(|(_, why)| why.to_string());
    let (full, unresolvable) = (of(&filtered.failed), of(&filtered.unresolvable));
    let lasts = unresolvable.is_some();
    assert_eq!(explained.unresolvable, lasts);
    let why = unresolvable.or(full).expect("a reason");
    let explained = explained.reason.expect("a reason");
    assert_eq!(
        explained.starts_with("never fits: "),
        why.starts_with("never fits: "),
        "{explained}"
    );
    (why, lasts)
}

fn asks(containers: &[ContainerRequest]) -> PodRequest {
    pod("asks", containers)
}

/// The code of the reason of each card.
fn codes(allocator: &mut Allocator, request: &PodRequest) -> Vec<&'static str> {
    let explained = allocator.explain(request, "n").expect("a good request");
    explained.cards.iter().filter_map(|card| card.containers[0].code).collect()
}

fn two_cards() -> Vec<Card> {
    vec![card("g0", 1000), card("g1", 1000)]
}

#[test]
fn more_memory_than_a_card_has_differs_from_more_than_is_free() {
    let mut allocator = full(two_cards());
    let (now, never) = (asks(&[app(1, 1000, 0)]), asks(&[app(1, 1001, 0)]));
    let brief = "too little memory free on its cards";
    assert_eq!(reason(&mut allocator, &now), (brief.into(), false));
    assert_eq!(codes(&mut allocator, &now), ["memory", "memory"]);
    let brief = "never fits: its cards have less memory than requested";
    assert_eq!(reason(&mut allocator, &never), (brief.into(), true));
    assert_eq!(codes(&mut allocator, &never), ["never-memory", "never-memory"]);
    let why = allocator.explain(&never, "n").expect("good");
    let whole = "never fits: 2 cards: 2 are too small (1001 MiB requested, most total 1000)";
    assert_eq!(why.reason.as_deref(), Some(whole));
    let of_card = "never fits: is too small (1001 MiB requested, total 1000)";
    assert_eq!(why.cards[0].containers[0].reason.as_deref(), Some(of_card));
}

#[test]
fn more_cores_than_a_card_has_differ_from_more_than_are_free() {
    let mut small = two_cards();
    for card in &mut small {
        card.cores = 50;
    }
    let mut allocator = with(vec![node("n", small)]);
    reserve(&mut allocator, &pod("first", &[app(2, 10, 40)])).expect("room");
    let (now, never) = (asks(&[app(1, 10, 50)]), asks(&[app(1, 10, 51)]));
    assert_eq!(reason(&mut allocator, &now), ("too few cores free on its cards".into(), false));
    let brief = "never fits: its cards have fewer cores than requested";
    assert_eq!(reason(&mut allocator, &never), (brief.into(), true));
    assert_eq!(codes(&mut allocator, &never), ["never-cores", "never-cores"]);
}

#[test]
fn cards_of_any_state_count_as_cards_of_the_node() {
    let mut cards = two_cards();
    cards[0].healthy = false;
    cards[1].cordoned = true;
    let mut allocator = with(vec![node("n", cards)]);
    let brief = "never fits: more cards are requested than it has";
    assert_eq!(reason(&mut allocator, &asks(&[app(3, 10, 0)])), (brief.into(), true));
    // No eviction helps, but the operator may end both.
    let of = |mib| asks(&[app(2, mib, 0)]);
    assert_eq!(reason(&mut allocator, &of(10)), ("its cards are cordoned".into(), true));
    let brief = "never fits: its cards have less memory than requested";
    assert_eq!(reason(&mut allocator, &of(1001)), (brief.into(), true));
    assert_eq!(codes(&mut allocator, &of(1001)), ["never-memory", "never-memory"]);
}

#[test]
fn a_type_or_uuid_that_no_card_has_never_fits() {
    let mut allocator = full(two_cards());
    let mut of = |card_request| {
        reason(&mut allocator, &with_card_request(asks(&[app(1, 500, 0)]), card_request))
    };
    let types = CardRequest { types: vec!["T4".into()], ..CardRequest::default() };
    assert_eq!(of(types), ("never fits: its cards are of another type".into(), true));
    let uuids = CardRequest { uuids: vec!["g7".into()], ..CardRequest::default() };
    assert_eq!(of(uuids), ("never fits: its cards are excluded by UUID".into(), true));
    let there = CardRequest { uuids: vec!["g1".into()], ..CardRequest::default() };
    assert_eq!(of(there), ("too little memory free on its cards".into(), false));
}

#[test]
fn one_card_that_may_fit_is_enough_for_one_and_not_for_two() {
    let mut allocator = full(vec![card("g0", 1000), card("g1", 2000)]);
    let of = |cards| asks(&[app(cards, 1500, 0)]);
    assert_eq!(
        reason(&mut allocator, &of(1)),
        ("too little memory free on its cards".into(), false)
    );
    let brief = "never fits: its cards have less memory than requested";
    assert_eq!(reason(&mut allocator, &of(2)), (brief.into(), true));
}

#[test]
fn containers_that_never_fit_together_never_fit() {
    let mut allocator = full(two_cards());
    let three = asks(&[app(1, 600, 0), app(1, 600, 0), app(1, 600, 0)]);
    let brief = "never fits: cards fit each container, but not all containers together";
    assert_eq!(reason(&mut allocator, &three), (brief.into(), true));
    let two = asks(&[app(1, 600, 0), app(1, 600, 0)]);
    assert_eq!(reason(&mut allocator, &two), ("too little memory free on its cards".into(), false));
    // The first container has to wait, and the second one would wait for ever.
    let brief = "never fits: its cards have less memory than requested";
    let second = asks(&[app(1, 600, 0), app(1, 1001, 0)]);
    assert_eq!(reason(&mut allocator, &second), (brief.into(), true));
}

#[test]
fn memory_of_other_programs_may_become_free() {
    let mut cards = two_cards();
    for card in &mut cards {
        card.foreign_mib = 400;
    }
    let mut allocator = with(vec![node("n", cards)]);
    let brief = "too little memory free on its cards";
    assert_eq!(reason(&mut allocator, &asks(&[app(1, 601, 0)])), (brief.into(), true));
}

#[test]
fn what_the_operator_can_change_is_not_never() {
    let sharing = |sharing| {
        let card_request = CardRequest { mode: Some(sharing), ..CardRequest::default() };
        with_card_request(asks(&[app(1, 10, 0)]), card_request)
    };
    let brief = "its cards are not in MIG mode";
    let mut allocator = with(vec![plain("n", 1)]);
    assert_eq!(reason(&mut allocator, &sharing(Sharing::Mig)), (brief.into(), true));
    assert_eq!(codes(&mut allocator, &sharing(Sharing::Mig)), ["no-mig"]);
    let brief = "its cards are in MIG mode, and hami-core is requested";
    let mut allocator = with(vec![node("n", vec![Card { level: Level::Mig, ..card("g0", 1000) }])]);
    assert_eq!(reason(&mut allocator, &sharing(Sharing::HamiCore)), (brief.into(), true));
    assert_eq!(codes(&mut allocator, &sharing(Sharing::HamiCore)), ["mig"]);
    let strict = CardRequest { topology: Topology::Strict, ..CardRequest::default() };
    let mut allocator = full(two_cards());
    let brief = "it is not known how its cards are linked, and 2 linked cards are requested";
    let linked = with_card_request(asks(&[app(2, 10, 0)]), strict);
    assert_eq!(reason(&mut allocator, &linked), (brief.into(), true));
}

#[test]
fn a_card_below_the_requested_level_is_refused() {
    let mut cards = two_cards();
    cards[0].level = Level::None;
    let mut allocator = with(vec![node("n", cards)]);
    let of = |isolation| {
        let card_request = CardRequest { isolation, ..CardRequest::default() };
        with_card_request(asks(&[app(1, 10, 0)]), card_request)
    };
    assert_eq!(
        reserve(&mut allocator, &of(Level::Preload)),
        Ok(vec![vec!["g1".to_owned()]]),
        "the other card offers it"
    );
    allocator.remove("asks");
    let brief = "its cards have weaker isolation than requested";
    assert_eq!(reason(&mut allocator, &of(Level::Kernel)), (brief.into(), true));
    assert_eq!(codes(&mut allocator, &of(Level::Kernel)), ["isolation", "isolation"]);
    let why = allocator.explain(&of(Level::Kernel), "n").expect("good");
    let whole = "2 cards: 2 have too weak isolation (kernel requested, most offered preload)";
    assert_eq!(why.reason.as_deref(), Some(whole));
    let of_card = "has too weak isolation (kernel requested, offered none)";
    assert_eq!(why.cards[0].containers[0].reason.as_deref(), Some(of_card));
}

#[test]
fn a_mig_instance_serves_one_pod_with_all_of_its_memory() {
    let mut cards = two_cards();
    cards[0].level = Level::Mig;
    cards[0].slots = 1;
    let (whole, instance) = (cards[0].memory_mib, cards[0].uuid.clone());
    let mut allocator = with(vec![node("n", cards)]);
    let of = |uid| {
        let isolation = CardRequest { isolation: Level::Mig, ..CardRequest::default() };
        with_card_request(pod(uid, &[app(1, 10, 0)]), isolation)
    };
    let assignment = allocator.reserve(&of("first"), "n", 0).expect("the instance is free");
    let card = &assignment.containers["c0"][0];
    assert_eq!((&card.card, card.memory_mib), (&instance, whole), "the instance is the limit");
    assert_eq!(
        allocator.explain(&of("second"), "n").expect("good").reason.as_deref(),
        Some(
            "2 cards: 1 has no slot left (of 1), \
             1 has too weak isolation (mig requested, offered preload)"
        )
    );
}

#[test]
fn a_quota_below_the_request_never_allows_it() {
    let mut allocator = with(vec![plain("n", 2)]);
    allocator.set_quota(quota("q", None, Some(900), None)).expect("a good quota");
    reserve(&mut allocator, &pod("first", &[app(1, 500, 0)])).expect("room");
    let (now, _) = reason(&mut allocator, &asks(&[app(1, 500, 0)]));
    assert_eq!(now, "quota q of namespace team allows 900 MiB: 500 in use, 500 requested");
    let (never, _) = reason(&mut allocator, &asks(&[app(1, 901, 0)]));
    assert_eq!(
        never,
        "never fits: quota q of namespace team allows 900 MiB: 500 in use, 901 requested"
    );
}
