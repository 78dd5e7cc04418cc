//! How much of a card a pod takes, and which card it gets.

use crate::build::{
    allocated_mib, app, card, container, init, names, node, plain, pod, reserve, sidecar, with,
    with_card_request,
};
use hami_allocator::Allocator;
use hami_allocator::wire::{
    CardRequest, Kind, Memory, Mode, Node, Order, Placement, Sharing, Weights,
};

#[test]
fn cards_of_a_container_are_different() {
    let mut allocator = with(vec![plain("n", 2)]);
    assert_eq!(
        reserve(&mut allocator, &pod("a", &[app(2, 100, 0)])),
        Ok(vec![names(&["g0", "g1"])])
    );
    let said = reserve(&mut allocator, &pod("b", &[app(3, 100, 0)])).unwrap_err();
    assert_eq!(said, "never fits: 3 cards are requested, and the node has 2");
}

#[test]
fn a_hundred_cores_are_a_card_for_itself() {
    let mut allocator = with(vec![plain("n", 2)]);
    reserve(&mut allocator, &pod("a", &[app(1, 100, 0)])).expect("room");
    assert_eq!(reserve(&mut allocator, &pod("b", &[app(1, 100, 100)])), Ok(vec![names(&["g1"])]));
    let said = reserve(&mut allocator, &pod("c", &[app(1, 100, 100)])).unwrap_err();
    assert_eq!(said, "2 cards: 2 are in use, and a card for itself is requested");
    assert_eq!(reserve(&mut allocator, &pod("d", &[app(1, 100, 0)])), Ok(vec![names(&["g0"])]));
    // Not beside one with a card of its own, and not if all cores are allocated in parts.
    reserve(&mut allocator, &pod("e", &[app(1, 100, 60)])).expect("room");
    reserve(&mut allocator, &pod("f", &[app(1, 100, 40)])).expect("room");
    let said = reserve(&mut allocator, &pod("g", &[app(1, 100, 0)])).unwrap_err();
    assert_eq!(said, "2 cards: 2 have all cores allocated");
}

#[test]
fn a_container_takes_its_limit() {
    let mut allocator = with(vec![plain("n", 1)]);
    let half = pod("a", &[container(Kind::App, 1, Memory::Percent(50), 0)]);
    reserve(&mut allocator, &half).expect("room");
    assert_eq!(allocated_mib(&allocator), [500]);
    let grant = &allocator.reserve(&half, "n", 0).expect("again").containers["c0"][0];
    assert_eq!((grant.memory_mib, grant.cores), (500, 0));
    reserve(&mut allocator, &pod("b", &[app(1, 500, 0)])).expect("room");
    assert_eq!(allocated_mib(&allocator), [1000]);
    let said = reserve(&mut allocator, &pod("c", &[app(1, 1, 0)])).unwrap_err();
    assert_eq!(said, "1 card: 1 has too little memory (1 MiB requested, free 0)");
}

#[test]
fn one_percent_of_the_smallest_card_is_not_zero() {
    let mut allocator = with(vec![node("n", vec![card("g0", 100)])]);
    let request = pod("a", &[container(Kind::App, 1, Memory::Percent(1), 0)]);
    let assignment = allocator.reserve(&request, "n", 0).expect("room");
    assert_eq!(assignment.containers["c0"][0].memory_mib, 1);
    let refusal = allocator.set_node(node("n", vec![card("g0", 99)])).unwrap_err();
    assert_eq!(refusal.field, "node.cards[0].memory_mib");
}

#[test]
fn memory_of_other_programs_is_not_allocated() {
    let mut allocated = card("g0", 1000);
    allocated.foreign_mib = 400;
    let mut allocator = with(vec![node("n", vec![allocated])]);
    let said = reserve(&mut allocator, &pod("a", &[app(1, 601, 0)])).unwrap_err();
    assert_eq!(said, "1 card: 1 has too little memory (601 MiB requested, free 600)");
    assert!(reserve(&mut allocator, &pod("a", &[app(1, 600, 0)])).is_ok());
}

#[test]
fn slots_are_for_the_life_of_the_pod() {
    let mut narrow = card("g0", 1000);
    narrow.slots = 2;
    let mut allocator = with(vec![node("n", vec![narrow])]);
    // The app reuses the ID of the init container.
    let request = pod("a", &[init(1, 100, 0), app(1, 100, 0)]);
    let assignment = allocator.reserve(&request, "n", 0).expect("room");
    allocator.place(&request, assignment, true).expect("our own answer");
    reserve(&mut allocator, &pod("b", &[app(1, 1, 0)])).expect("room");
    let said = reserve(&mut allocator, &pod("c", &[app(1, 1, 0)])).unwrap_err();
    assert_eq!(said, "1 card: 1 has no slot left (of 2)");
}

#[test]
fn phases_count_one_by_one() {
    let mut allocator = with(vec![plain("n", 1)]);
    let request = pod("a", &[init(1, 900, 50), sidecar(1, 100, 10), app(1, 500, 20)]);
    let assignment = allocator.reserve(&request, "n", 0).expect("one phase after the other");
    assert_eq!(allocated_mib(&allocator), [900]);
    allocator.place(&request, assignment.clone(), false).expect("our own answer");
    assert_eq!(allocated_mib(&allocator), [900]);
    allocator.place(&request, assignment, true).expect("our own answer");
    assert_eq!(allocated_mib(&allocator), [600]);
    // The sidecar runs while the next init container does.
    let said =
        reserve(&mut allocator, &pod("b", &[sidecar(1, 300, 0), init(1, 200, 0), app(1, 1, 0)]))
            .unwrap_err();
    assert_eq!(said, "cards fit each container, but not all containers together");
}

#[test]
fn the_worst_choice_of_the_kubelet_is_charged_until_it_has_chosen() {
    let mut allocator = with(vec![plain("n", 2)]);
    let request = pod("a", &[init(2, 100, 0), app(1, 700, 0), app(1, 200, 0)]);
    let assignment = allocator.reserve(&request, "n", 0).expect("room");
    assert_eq!(allocated_mib(&allocator), [700, 700]);
    allocator.place(&request, assignment, true).expect("our own answer");
    assert_eq!(allocated_mib(&allocator), [700, 200]);
}

#[test]
fn modes() {
    let of = |mode| with(vec![Node { mode, ..plain("n", 1) }]);
    let both = |allocator: &mut Allocator| {
        reserve(allocator, &pod("a", &[app(1, 100, 70)]))?;
        reserve(allocator, &pod("b", &[app(1, 100, 70)]))
    };
    assert!(both(&mut of(Mode::Memory)).is_ok());
    assert!(both(&mut of(Mode::Share)).is_err());
    assert!(both(&mut of(Mode::Mps)).is_err());
    let said = both(&mut of(Mode::Exclusive)).unwrap_err();
    assert_eq!(said, "it allocates whole cards only (mode exclusive)");
    let whole = pod("a", &[container(Kind::App, 1, Memory::Whole, 0)]);
    let mut exclusive = of(Mode::Exclusive);
    assert!(reserve(&mut exclusive, &whole).is_ok());
    assert_eq!(exclusive.usage()[0].cards[0].cores_allocated, 100);
    let requests = |sharing| {
        let card_request = CardRequest { mode: Some(sharing), ..CardRequest::default() };
        with_card_request(pod("a", &[app(1, 1, 0)]), card_request)
    };
    let said = reserve(&mut of(Mode::Mps), &requests(Sharing::HamiCore)).unwrap_err();
    assert_eq!(said, "it has another mode (mps) than the pod requests");
    let said = reserve(&mut of(Mode::Mps), &requests(Sharing::Mig)).unwrap_err();
    assert_eq!(said, "1 card: 1 is not in MIG mode");
    assert!(reserve(&mut of(Mode::Mps), &requests(Sharing::Mps)).is_ok());
    for mode in [Mode::Full, Mode::Memory, Mode::Share, Mode::Topology, Mode::Mig] {
        assert!(reserve(&mut of(mode), &requests(Sharing::HamiCore)).is_ok(), "{mode}");
        let said = reserve(&mut of(mode), &requests(Sharing::Mps)).unwrap_err();
        assert_eq!(said, format!("it has another mode ({mode}) than the pod requests"));
    }
}

#[test]
fn types_uuids_health_and_cordons() {
    let mut cards: Vec<_> = (0..5).map(|at| card(&format!("g{at}"), 1000)).collect();
    cards[0].model = "Tesla T4".into();
    cards[1].healthy = false;
    cards[2].cordoned = true;
    let mut allocator = with(vec![node("n", cards)]);
    let card_request = CardRequest {
        types: vec!["a100".into()],
        avoid: vec!["g3".into()],
        ..CardRequest::default()
    };
    let request = with_card_request(pod("a", &[app(2, 1, 0)]), card_request);
    let said = "5 cards: 1 fits (2 requested), 1 is cordoned, 1 is unhealthy, 1 is of another type, 1 is excluded by UUID";
    assert_eq!(reserve(&mut allocator, &request).unwrap_err(), said);
    let card_request = CardRequest { avoid_types: vec!["A100".into()], ..CardRequest::default() };
    assert_eq!(
        reserve(&mut allocator, &with_card_request(pod("b", &[app(1, 1, 0)]), card_request)),
        Ok(vec![names(&["g0"])])
    );
    let card_request = CardRequest { uuids: names(&["g4", "g2"]), ..CardRequest::default() };
    assert_eq!(
        reserve(&mut allocator, &with_card_request(pod("c", &[app(1, 1, 0)]), card_request)),
        Ok(vec![names(&["g4"])])
    );
}

#[test]
fn orders_of_cards() {
    let start = || {
        let mut allocator = with(vec![plain("n", 3)]);
        let on = |uuid: &str| CardRequest { uuids: names(&[uuid]), ..CardRequest::default() };
        reserve(&mut allocator, &with_card_request(pod("x", &[app(1, 600, 10)]), on("g1")))
            .expect("room");
        reserve(&mut allocator, &with_card_request(pod("y", &[app(1, 100, 50)]), on("g2")))
            .expect("room");
        allocator
    };
    let taken = |card_request: CardRequest| {
        reserve(&mut start(), &with_card_request(pod("a", &[app(1, 100, 10)]), card_request))
            .expect("room")[0][0]
            .clone()
    };
    let order = |order: &[Order]| CardRequest { order: order.to_vec(), ..CardRequest::default() };
    assert_eq!(taken(CardRequest::default()), "g0", "spread is HAMi's default");
    assert_eq!(taken(order(&[Order::Spread])), "g0");
    assert_eq!(taken(order(&[Order::Binpack])), "g1");
    let weights = |slot, core, memory| Some(Weights { slot, core, memory });
    assert_eq!(taken(CardRequest { weights: weights(1, 3, 1), ..order(&[Order::Binpack]) }), "g2");
    assert_eq!(taken(order(&[Order::Mutex, Order::Binpack])), "g0");
    let mut allocator = start();
    let card_request = CardRequest { mutex: true, ..CardRequest::default() };
    let said = reserve(&mut allocator, &with_card_request(pod("a", &[app(2, 1, 0)]), card_request))
        .unwrap_err();
    assert_eq!(said, "3 cards: 1 fits (2 requested), 2 are not idle");
    let mut published = plain("n", 3);
    published.placement = Some(Placement::Binpack);
    allocator.set_node(published).expect("a good node");
    assert_eq!(reserve(&mut allocator, &pod("a", &[app(1, 100, 10)])), Ok(vec![names(&["g1"])]));
}
