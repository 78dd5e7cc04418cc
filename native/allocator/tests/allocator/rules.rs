//! The rules, one by one, as HAMi's users know them.

use crate::build::{
    app, ask, card, given, init, node, plain, pod, quota, reserve, sidecar, wishing, with,
};
use hami_allocator::wire::{Kind, Memory, Mode, Node, Order, Placement, Weights, Wish};
use hami_allocator::{Allocator, Refusal};

fn names(cards: &[&str]) -> Vec<String> {
    cards.iter().map(|card| (*card).to_owned()).collect()
}

#[test]
fn cards_of_a_container_are_different() {
    let mut allocator = with(vec![plain("n", 2)]);
    assert_eq!(
        reserve(&mut allocator, &pod("a", &[app(2, 100, 0)])),
        Ok(vec![names(&["g0", "g1"])])
    );
    let said = reserve(&mut allocator, &pod("b", &[app(3, 100, 0)])).unwrap_err();
    assert_eq!(said, "2 cards: 2 fit (3 asked)");
}

#[test]
fn a_hundred_cores_are_a_card_of_ones_own() {
    let mut allocator = with(vec![plain("n", 2)]);
    reserve(&mut allocator, &pod("a", &[app(1, 100, 0)])).expect("room");
    assert_eq!(reserve(&mut allocator, &pod("b", &[app(1, 100, 100)])), Ok(vec![names(&["g1"])]));
    let said = reserve(&mut allocator, &pod("c", &[app(1, 100, 100)])).unwrap_err();
    assert_eq!(said, "2 cards: 2 are in use and a card of one's own is asked for");
    assert_eq!(reserve(&mut allocator, &pod("d", &[app(1, 100, 0)])), Ok(vec![names(&["g0"])]));
    // Not beside one, either, and not where all is given in parts.
    reserve(&mut allocator, &pod("e", &[app(1, 100, 60)])).expect("room");
    reserve(&mut allocator, &pod("f", &[app(1, 100, 40)])).expect("room");
    let said = reserve(&mut allocator, &pod("g", &[app(1, 100, 0)])).unwrap_err();
    assert_eq!(said, "2 cards: 2 have all cores given");
}

#[test]
fn shares_of_memory_hold_the_overhead_and_mib_do_not() {
    let mut big = card("g0", 1000);
    big.overhead_mib = 30;
    let mut allocator = with(vec![node("n", vec![big])]);
    let half = pod("a", &[ask(Kind::App, 1, Memory::Percent(50), 0)]);
    reserve(&mut allocator, &half).expect("room");
    assert_eq!(given(&allocator), [500]);
    let grant = &allocator.reserve(&half, "n", 0).expect("again").containers["c0"][0];
    assert_eq!((grant.memory_mib, grant.cores), (470, 0));
    reserve(&mut allocator, &pod("b", &[app(1, 470, 0)])).expect("room");
    assert_eq!(given(&allocator), [1000]);
    let said = reserve(&mut allocator, &pod("c", &[app(1, 1, 0)])).unwrap_err();
    assert_eq!(said, "1 card: 1 has too little memory (31 MiB asked, free 0)");
    let said = reserve(&mut allocator, &pod("d", &[ask(Kind::App, 1, Memory::Percent(3), 0)]))
        .unwrap_err();
    assert_eq!(said, "1 card: 1 has overhead beyond the share asked for (30 MiB of 30)");
}

#[test]
fn what_other_programs_use_is_not_given() {
    let mut used = card("g0", 1000);
    used.foreign_mib = 400;
    let mut allocator = with(vec![node("n", vec![used])]);
    let said = reserve(&mut allocator, &pod("a", &[app(1, 601, 0)])).unwrap_err();
    assert_eq!(said, "1 card: 1 has too little memory (601 MiB asked, free 600)");
    assert!(reserve(&mut allocator, &pod("a", &[app(1, 600, 0)])).is_ok());
}

#[test]
fn slots_are_for_the_life_of_the_pod() {
    let mut narrow = card("g0", 1000);
    narrow.slots = 2;
    let mut allocator = with(vec![node("n", vec![narrow])]);
    // The app's ID is the init container's.
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
    assert_eq!(given(&allocator), [900]);
    allocator.place(&request, assignment.clone(), false).expect("our own answer");
    assert_eq!(given(&allocator), [900]);
    allocator.place(&request, assignment, true).expect("our own answer");
    assert_eq!(given(&allocator), [600]);
    // The sidecar is there while the next init container runs.
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
    assert_eq!(given(&allocator), [700, 700]);
    allocator.place(&request, assignment, true).expect("our own answer");
    assert_eq!(given(&allocator), [700, 200]);
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
    assert_eq!(said, "it gives whole cards only (mode exclusive)");
    let whole = pod("a", &[ask(Kind::App, 1, Memory::Whole, 0)]);
    let mut exclusive = of(Mode::Exclusive);
    assert!(reserve(&mut exclusive, &whole).is_ok());
    assert_eq!(exclusive.usage()[0].cards[0].cores_given, 100);
    let wish = |mode: &str| Wish { mode: Some(mode.into()), ..Wish::default() };
    let said = reserve(&mut of(Mode::Mps), &wishing(pod("a", &[app(1, 1, 0)]), wish("hami-core")))
        .unwrap_err();
    assert_eq!(said, "its mode is mps, another is asked for");
    assert!(reserve(&mut of(Mode::Mps), &wishing(pod("a", &[app(1, 1, 0)]), wish("mps"))).is_ok());
    let said =
        reserve(&mut of(Mode::Full), &wishing(pod("a", &[app(1, 1, 0)]), wish("MIG"))).unwrap_err();
    assert!(said.starts_with("request.wish.mode: \"MIG\" is refused: write hami-core"), "{said}");
}

#[test]
fn types_uuids_health_and_cordons() {
    let mut cards: Vec<_> = (0..5).map(|at| card(&format!("g{at}"), 1000)).collect();
    cards[0].model = "Tesla T4".into();
    cards[1].healthy = false;
    cards[2].cordoned = true;
    let mut allocator = with(vec![node("n", cards)]);
    let wish = Wish { types: vec!["a100".into()], avoid: vec!["g3".into()], ..Wish::default() };
    let request = wishing(pod("a", &[app(2, 1, 0)]), wish);
    let said = "5 cards: 1 fits (2 asked), 1 is of another type, 1 is excluded by UUID, 1 is cordoned, 1 is unhealthy";
    assert_eq!(reserve(&mut allocator, &request).unwrap_err(), said);
    let wish = Wish { avoid_types: vec!["A100".into()], ..Wish::default() };
    assert_eq!(
        reserve(&mut allocator, &wishing(pod("b", &[app(1, 1, 0)]), wish)),
        Ok(vec![names(&["g0"])])
    );
    let wish = Wish { uuids: names(&["g4", "g2"]), ..Wish::default() };
    assert_eq!(
        reserve(&mut allocator, &wishing(pod("c", &[app(1, 1, 0)]), wish)),
        Ok(vec![names(&["g4"])])
    );
}

#[test]
fn orders_of_cards() {
    let start = || {
        let mut allocator = with(vec![plain("n", 3)]);
        let on = |uuid: &str| Wish { uuids: names(&[uuid]), ..Wish::default() };
        reserve(&mut allocator, &wishing(pod("x", &[app(1, 600, 10)]), on("g1"))).expect("room");
        reserve(&mut allocator, &wishing(pod("y", &[app(1, 100, 50)]), on("g2"))).expect("room");
        allocator
    };
    let taken = |wish: Wish| {
        reserve(&mut start(), &wishing(pod("a", &[app(1, 100, 10)]), wish)).expect("room")[0][0]
            .clone()
    };
    let order = |order: &[Order]| Wish { order: order.to_vec(), ..Wish::default() };
    assert_eq!(taken(Wish::default()), "g0", "spread is HAMi's default");
    assert_eq!(taken(order(&[Order::Spread])), "g0");
    assert_eq!(taken(order(&[Order::Binpack])), "g1");
    let weights = |slot, core, memory| Some(Weights { slot, core, memory });
    assert_eq!(taken(Wish { weights: weights(1, 3, 1), ..order(&[Order::Binpack]) }), "g2");
    assert_eq!(taken(order(&[Order::Mutex, Order::Binpack])), "g0");
    let mut allocator = start();
    let wish = Wish { mutex: true, ..Wish::default() };
    let said = reserve(&mut allocator, &wishing(pod("a", &[app(2, 1, 0)]), wish)).unwrap_err();
    assert_eq!(said, "3 cards: 1 fits (2 asked), 2 are not idle");
    let mut published = plain("n", 3);
    published.placement = Some(Placement::Binpack);
    allocator.set_node(published).expect("a good node");
    assert_eq!(reserve(&mut allocator, &pod("a", &[app(1, 100, 10)])), Ok(vec![names(&["g1"])]));
}

#[test]
fn all_quotas_of_a_namespace_hold() {
    let mut allocator = with(vec![plain("n", 4)]);
    allocator.set_quota(quota("cards", Some(3), None, None)).expect("good");
    allocator.set_quota(quota("memory", None, Some(1500), Some(100))).expect("good");
    reserve(&mut allocator, &pod("a", &[app(2, 500, 20)])).expect("room");
    let said = reserve(&mut allocator, &pod("b", &[app(2, 100, 0)])).unwrap_err();
    assert_eq!(said, "quota cards of namespace team allows 3 cards: 2 in use, 2 asked");
    let said = reserve(&mut allocator, &pod("b", &[app(1, 501, 0)])).unwrap_err();
    assert_eq!(said, "quota memory of namespace team allows 1500 MiB: 1000 in use, 501 asked");
    let said = reserve(&mut allocator, &pod("b", &[ask(Kind::App, 1, Memory::Percent(51), 0)]))
        .unwrap_err();
    assert_eq!(said, "quota memory of namespace team allows 1500 MiB: 1000 in use, 510 asked");
    let said = reserve(&mut allocator, &pod("b", &[app(1, 100, 70)])).unwrap_err();
    assert_eq!(said, "quota memory of namespace team allows 100 % of cores: 40 in use, 70 asked");
    allocator.remove_quota("team", "memory");
    assert!(reserve(&mut allocator, &pod("b", &[app(1, 501, 70)])).is_ok());
    allocator.remove("a");
    assert!(reserve(&mut allocator, &pod("c", &[app(2, 501, 0)])).is_ok());
}

#[test]
fn a_share_that_a_quota_forbids_on_one_card_may_do_on_another() {
    let mut allocator = with(vec![node("n", vec![card("g0", 1000), card("g1", 500)])]);
    allocator.set_quota(quota("memory", None, Some(300), None)).expect("good");
    let half = pod("a", &[ask(Kind::App, 1, Memory::Percent(50), 0)]);
    assert_eq!(reserve(&mut allocator, &half), Ok(vec![names(&["g1"])]));
}

#[test]
fn a_quota_says_of_each_node_whether_its_cards_would_do() {
    let mut allocator = with(vec![
        node("alike", vec![card("g0", 1000), card("g1", 1000)]),
        node("mixed", vec![card("g2", 1000), card("g3", 500)]),
        node("small", vec![card("g4", 500), card("g5", 500)]),
    ]);
    let whole = pod("a", &[ask(Kind::App, 1, Memory::Whole, 0)]);
    let all = ["alike", "mixed", "small"];
    for (allowed, fits) in [(499, 0..0), (500, 1..3), (999, 1..3), (1000, 0..3)] {
        allocator.set_quota(quota("memory", None, Some(allowed), None)).expect("good");
        let found = allocator.filter(&whole, &all, 0).expect("good");
        assert_eq!(found.feasible, fits.collect::<Vec<u32>>(), "{allowed}");
        assert!(found.failed.is_empty(), "no pod's going would help");
        for (node, name) in all.iter().enumerate() {
            let reserved = allocator.reserve(&whole, name, 0).is_ok();
            assert_eq!(reserved, found.feasible.contains(&(node as u32)), "{allowed} {name}");
            allocator.release("a");
        }
    }
}

#[test]
fn a_hold_keeps_the_best_node_for_a_while_and_not_from_its_own_pod() {
    let mut allocator = with(vec![plain("n", 1)]);
    let (one, other) = (pod("a", &[app(1, 600, 0)]), pod("b", &[app(1, 600, 0)]));
    let does = |allocator: &mut Allocator, request, now| {
        allocator.filter(request, &["n"], now).expect("good").feasible == [0]
    };
    assert!(allocator.score(&one, &["n"], 0, 100).expect("good")[0] > 0);
    assert!(!does(&mut allocator, &other, 50));
    assert!(does(&mut allocator, &one, 50));
    assert!(does(&mut allocator, &other, 100), "its time is over");
    allocator.score(&one, &["n"], 100, 100).expect("good");
    allocator.reserve(&one, "n", 150).expect("held");
    assert!(!does(&mut allocator, &other, 1_000), "a promise has no end");
    allocator.release("a");
    assert!(does(&mut allocator, &other, 1_000));
}

#[test]
fn a_hold_that_is_ended_ends_and_nothing_firmer_does() {
    let mut allocator = with(vec![plain("n", 1)]);
    let request = pod("a", &[app(1, 600, 0)]);
    allocator.unhold("a");
    allocator.score(&request, &["n"], 0, 100).expect("good");
    assert_eq!(given(&allocator), [600]);
    allocator.unhold("a");
    assert_eq!(given(&allocator), [0]);
    let assignment = allocator.reserve(&request, "n", 0).expect("room");
    allocator.unhold("a");
    assert_eq!(given(&allocator), [600], "a promise is no hold");
    allocator.place(&request, assignment, false).expect("the API decides");
    allocator.unhold("a");
    assert_eq!(given(&allocator), [600], "nor is what is bound");
}

#[test]
fn one_pod_is_one_entry() {
    let mut allocator = with(vec![plain("n", 1), plain("m", 1)]);
    let request = pod("a", &[app(1, 600, 0)]);
    let assignment = allocator.reserve(&request, "n", 0).expect("room");
    assert_eq!(allocator.reserve(&request, "n", 0), Ok(assignment.clone()));
    allocator.reserve(&request, "m", 0).expect("it moves");
    assert_eq!(given(&allocator), [0]);
    allocator.place(&request, assignment.clone(), false).expect("the API decides");
    allocator.place(&request, assignment, false).expect("twice");
    assert_eq!(given(&allocator), [600]);
    allocator.release("a");
    assert_eq!(given(&allocator), [600], "what is bound is not released");
    let refusal = allocator.reserve(&request, "m", 0).unwrap_err();
    let Refusal::Unfit(reason) = refusal else { panic!("{refusal:?}") };
    assert_eq!(reason.to_string(), "the pod is bound to node n");
    allocator.remove("a");
    allocator.remove("a");
    assert_eq!(given(&allocator), [0]);
}

#[test]
fn what_goes_away_and_returns_keeps_what_is_placed_there() {
    let mut allocator = with(vec![plain("n", 2)]);
    let request = pod("a", &[app(2, 600, 0)]);
    let assignment = allocator.reserve(&request, "n", 0).expect("room");
    allocator.place(&request, assignment, false).expect("our own answer");
    allocator.remove_node("n");
    let unknown = allocator.filter(&pod("b", &[app(1, 1, 0)]), &["n", "m"], 0).expect("good");
    assert_eq!(unknown.unresolvable.len(), 2);
    assert_eq!(&*unknown.unresolvable[0].1, "no cards are registered");
    assert_eq!(given(&allocator), [600, 600]);
    // One card has not come back.
    allocator.set_node(plain("n", 1)).expect("a good node");
    assert_eq!(given(&allocator), [600, 600]);
    let cards = &allocator.usage()[0].cards;
    assert_eq!((cards[1].standing, cards[1].over, cards[1].index), ("gone", true, None));
    let said = reserve(&mut allocator, &pod("b", &[app(1, 600, 0)])).unwrap_err();
    assert_eq!(said, "2 cards: 1 has too little memory (600 MiB asked, free 400), 1 is gone");
    allocator.remove("a");
    assert_eq!(given(&allocator), [0]);
}

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
fn a_promise_of_a_card_that_failed_is_made_anew() {
    let mut allocator = with(vec![plain("n", 2)]);
    let request = pod("a", &[app(1, 600, 0)]);
    let cards = |allocator: &mut Allocator| reserve(allocator, &request);
    assert_eq!(cards(&mut allocator), Ok(vec![names(&["g0"])]));
    let mut failed = plain("n", 2);
    failed.cards[0].healthy = false;
    allocator.set_node(failed.clone()).expect("a good node");
    assert_eq!(cards(&mut allocator), Ok(vec![names(&["g1"])]));
    assert_eq!(given(&allocator), [0, 600]);
    failed.cards[1].cordoned = true;
    allocator.set_node(failed).expect("a good node");
    assert!(cards(&mut allocator).is_err());
}

#[test]
fn what_is_promised_is_told_from_what_is_bound() {
    let mut allocator = with(vec![plain("n", 1), plain("m", 1)]);
    let (held, reserved, waits) =
        (pod("h", &[app(1, 600, 0)]), pod("r", &[app(1, 600, 0)]), pod("w", &[app(1, 600, 0)]));
    assert_eq!(allocator.only_promised(&waits, &["n", "m"]), Ok(false));
    allocator.score(&held, &["n"], 0, 10).expect("good");
    assert_eq!(allocator.only_promised(&waits, &["n", "m"]), Ok(true));
    assert_eq!(allocator.only_promised(&waits, &["m"]), Ok(false));
    assert_eq!(allocator.only_promised(&pod("x", &[app(2, 1, 0)]), &["n"]), Ok(false));
    // Its own hold is in nobody's way.
    assert_eq!(allocator.only_promised(&held, &["n"]), Ok(false));
    allocator.expire(10);
    assert_eq!(allocator.only_promised(&waits, &["n"]), Ok(false));
    let assignment = allocator.reserve(&reserved, "n", 10).expect("room");
    assert_eq!(allocator.only_promised(&waits, &["n"]), Ok(true));
    allocator.place(&reserved, assignment, false).expect("our own answer");
    assert_eq!(allocator.only_promised(&waits, &["n"]), Ok(false));
    // A quota is in the way on all nodes, wherever what it counts is promised.
    allocator.set_quota(quota("q", Some(2), None, None)).expect("a good quota");
    allocator.score(&held, &["m"], 10, 10).expect("good");
    assert_eq!(allocator.only_promised(&waits, &["n"]), Ok(true));
}

#[test]
fn scores_are_of_the_node_with_the_pod() {
    let mut allocator = with(vec![plain("n", 2), plain("m", 2)]);
    reserve(&mut allocator, &pod("a", &[app(1, 500, 50)])).expect("room");
    let score = |allocator: &mut Allocator, node_order, mib| {
        let wish = Wish { node_order, ..Wish::default() };
        allocator
            .score(&wishing(pod("b", &[app(1, mib, 10)]), wish), &["n", "m"], 0, 0)
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
    // 400 MiB leave nothing on the one card, and 200 that no such pod can use on the other.
    let mut allocator =
        with(vec![node("n", vec![card("g0", 800)]), node("m", vec![card("h0", 1000)])]);
    let wish = Wish { weights: Some(Weights { slot: 1, core: 0, memory: 0 }), ..Wish::default() };
    let scores = allocator
        .score(&wishing(pod("a", &[app(1, 400, 0)]), wish), &["n", "m"], 0, 0)
        .expect("good");
    assert!(scores[0] > scores[1], "{scores:?}");
}

#[test]
fn why_card_by_card() {
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
        Some("has too little memory (500 MiB asked, free 400)")
    );
    let why = allocator.explain(&pod("b", &[app(1, 5000, 0)]), "n").expect("good");
    assert!(!why.fits && why.unresolvable && why.score.is_none());
}

#[test]
fn a_snapshot_is_the_whole_state() {
    let mut allocator = with(vec![plain("n", 2)]);
    allocator.set_quota(quota("cards", Some(3), None, None)).expect("good");
    let request = pod("a", &[init(1, 300, 0), app(1, 600, 0)]);
    let assignment = allocator.reserve(&request, "n", 0).expect("room");
    allocator.place(&request, assignment, true).expect("our own answer");
    allocator.score(&pod("b", &[app(1, 1, 0)]), &["n"], 0, 77).expect("good");
    allocator.reserve(&pod("c", &[app(1, 1, 0)]), "n", 0).expect("room");
    let mut other = Allocator::restore(&allocator.snapshot()).expect("our own snapshot");
    assert_eq!(allocator.digest(), other.digest());
    other.expire(77);
    assert_ne!(allocator.digest(), other.digest());
    allocator.expire(77);
    assert_eq!(allocator.digest(), other.digest());
    let error =
        Allocator::restore(br#"{"version": 2, "nodes": [], "quotas": [], "pods": []}"#).map(drop);
    assert_eq!(error.unwrap_err().field, "snapshot.version");
}

#[test]
fn a_pod_that_is_small_beside_a_node_makes_a_difference() {
    let names: Vec<String> = (0..6).map(|at| format!("n{at}")).collect();
    let cards = |name: &str| (0..8).map(|at| card(&format!("{name}-{at}"), 81_920)).collect();
    let mut allocator = with(names.iter().map(|name| node(name, cards(name))).collect());
    // No pod on the first, one on the second, and so on.
    for (pods, name) in names.iter().enumerate() {
        for at in 0..pods {
            let request = pod(&format!("{name}-p{at}"), &[app(1, 100, 0)]);
            let assignment = allocator.reserve(&request, name, 0).expect("room");
            allocator.place(&request, assignment, true).expect("our own answer");
        }
    }
    let mut scores = |node_order| {
        let wish = Wish { node_order, ..Wish::default() };
        let asked = wishing(pod("next", &[app(1, 100, 0)]), wish);
        allocator.score(&asked, &names, 0, 0).expect("good")
    };
    let (packed, spread) = (scores(Some(Placement::Binpack)), scores(Some(Placement::Spread)));
    assert!(packed.windows(2).all(|two| two[0] < two[1]), "{packed:?}");
    assert!(spread.windows(2).all(|two| two[0] > two[1]), "{spread:?}");
}
