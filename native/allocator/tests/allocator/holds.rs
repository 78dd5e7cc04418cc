//! Held, reserved and bound cards: how long they stay so, and what they block.

use crate::build::{allocated_mib, app, init, names, plain, pod, quota, reserve, with};
use hami_allocator::wire::PodRequest;
use hami_allocator::{Allocator, Refusal};

#[test]
fn a_hold_keeps_the_best_node_from_other_pods_until_it_expires() {
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
    assert!(!does(&mut allocator, &other, 1_000), "a reservation does not expire");
    allocator.release("a");
    assert!(does(&mut allocator, &other, 1_000));
}

#[test]
fn ending_a_hold_leaves_reservations_and_bound_pods() {
    let mut allocator = with(vec![plain("n", 1)]);
    let request = pod("a", &[app(1, 600, 0)]);
    allocator.end_hold("a");
    allocator.score(&request, &["n"], 0, 100).expect("good");
    assert_eq!(allocated_mib(&allocator), [600]);
    allocator.end_hold("a");
    assert_eq!(allocated_mib(&allocator), [0]);
    let assignment = allocator.reserve(&request, "n", 0).expect("room");
    allocator.end_hold("a");
    assert_eq!(allocated_mib(&allocator), [600], "a reservation is not a hold");
    allocator.place(&request, assignment, false).expect("the API decides");
    allocator.end_hold("a");
    assert_eq!(allocated_mib(&allocator), [600], "nor is what is bound");
}

#[test]
fn one_pod_is_one_entry() {
    let mut allocator = with(vec![plain("n", 1), plain("m", 1)]);
    let request = pod("a", &[app(1, 600, 0)]);
    let assignment = allocator.reserve(&request, "n", 0).expect("room");
    assert_eq!(allocator.reserve(&request, "n", 0), Ok(assignment.clone()));
    allocator.reserve(&request, "m", 0).expect("it moves");
    assert_eq!(allocated_mib(&allocator), [0]);
    allocator.place(&request, assignment.clone(), false).expect("the API decides");
    allocator.place(&request, assignment, false).expect("twice");
    assert_eq!(allocated_mib(&allocator), [600]);
    allocator.release("a");
    assert_eq!(allocated_mib(&allocator), [600], "what is bound is not released");
    let refusal = allocator.reserve(&request, "m", 0).unwrap_err();
    let Refusal::Unfit(reason) = refusal else { panic!("{refusal:?}") };
    assert_eq!(reason.to_string(), "the pod is bound to node n");
    allocator.remove("a");
    allocator.remove("a");
    assert_eq!(allocated_mib(&allocator), [0]);
}

#[test]
fn a_removed_node_keeps_the_allocations_of_its_bound_pods() {
    let mut allocator = with(vec![plain("n", 2)]);
    let request = pod("a", &[app(2, 600, 0)]);
    let assignment = allocator.reserve(&request, "n", 0).expect("room");
    allocator.place(&request, assignment, false).expect("our own answer");
    allocator.remove_node("n");
    let unknown = allocator.filter(&pod("b", &[app(1, 1, 0)]), &["n", "m"], 0).expect("good");
    assert_eq!(unknown.unresolvable.len(), 2);
    assert_eq!(&*unknown.unresolvable[0].1, "no cards are registered");
    assert_eq!(allocated_mib(&allocator), [600, 600]);
    // One card has not come back.
    allocator.set_node(plain("n", 1)).expect("a good node");
    assert_eq!(allocated_mib(&allocator), [600, 600]);
    let cards = &allocator.usage()[0].cards;
    assert_eq!((cards[1].state, cards[1].over, cards[1].index), ("missing", true, None));
    let said = reserve(&mut allocator, &pod("b", &[app(1, 600, 0)])).unwrap_err();
    assert_eq!(
        said,
        "2 cards: 1 has too little memory (600 MiB requested, free 400), 1 is missing"
    );
    allocator.remove("a");
    assert_eq!(allocated_mib(&allocator), [0]);
}

#[test]
fn a_reservation_of_a_failed_card_is_replaced() {
    let mut allocator = with(vec![plain("n", 2)]);
    let request = pod("a", &[app(1, 600, 0)]);
    let cards = |allocator: &mut Allocator| reserve(allocator, &request);
    assert_eq!(cards(&mut allocator), Ok(vec![names(&["g0"])]));
    let mut failed = plain("n", 2);
    failed.cards[0].healthy = false;
    allocator.set_node(failed.clone()).expect("a good node");
    assert_eq!(cards(&mut allocator), Ok(vec![names(&["g1"])]));
    assert_eq!(allocated_mib(&allocator), [0, 600]);
    failed.cards[1].cordoned = true;
    allocator.set_node(failed).expect("a good node");
    assert!(cards(&mut allocator).is_err());
}

#[test]
fn unbound_allocations_are_told_from_bound_ones() {
    let mut allocator = with(vec![plain("n", 1), plain("m", 1)]);
    let (held, reserved, waits) =
        (pod("h", &[app(1, 600, 0)]), pod("r", &[app(1, 600, 0)]), pod("w", &[app(1, 600, 0)]));
    let only = |allocator: &mut Allocator, request: &PodRequest, names: &[&str]| {
        allocator.fits_without_unbound(request, names, 0, 10).expect("a good request")
    };
    assert!(!only(&mut allocator, &waits, &["n", "m"]));
    allocator.score(&held, &["n"], 0, 10).expect("good");
    assert!(only(&mut allocator, &waits, &["n", "m"]));
    assert!(!only(&mut allocator, &waits, &["m"]));
    assert!(!only(&mut allocator, &pod("x", &[app(2, 1, 0)]), &["n"]));
    // Its own hold does not block it.
    assert!(!only(&mut allocator, &held, &["n"]));
    allocator.expire(10);
    assert!(!only(&mut allocator, &waits, &["n"]));
    let assignment = allocator.reserve(&reserved, "n", 10).expect("room");
    assert!(only(&mut allocator, &waits, &["n"]));
    allocator.place(&reserved, assignment, false).expect("our own answer");
    assert!(!only(&mut allocator, &waits, &["n"]));
    // A quota counts on all nodes, wherever its pods are.
    allocator.set_quota(quota("q", Some(2), None, None)).expect("a good quota");
    allocator.score(&held, &["m"], 0, 10).expect("good");
    assert!(only(&mut allocator, &waits, &["n"]));
}

#[test]
fn long_holds_count_as_allocated() {
    let mut allocator = with(vec![plain("n", 1), plain("m", 1)]);
    let waits = pod("w", &[app(1, 600, 0)]);
    let mut hold = |uid: &str, node, now, length| {
        allocator.score(&pod(uid, &[app(1, 500, 0)]), &[node], now, length).expect("good");
        let mut only = |soon| allocator.fits_without_unbound(&waits, &["n", "m"], now, soon);
        (only(now + 5), only(now + 600))
    };
    assert_eq!(hold("long", "n", 0, 600), (Ok(false), Ok(true)));
    assert_eq!(hold("longer", "n", 0, 900), (Ok(false), Ok(false)), "one of the two ends");
    // If only a hold that ends soon is in the way, the pod is retried.
    assert_eq!(hold("one", "m", 0, 5), (Ok(true), Ok(true)));
    assert_eq!(hold("other", "m", 1, 5), (Ok(true), Ok(true)));
    assert_eq!(hold("one", "m", 2, 900), (Ok(false), Ok(false)));
}

#[test]
fn the_room_of_victims_is_held_before_it_is_free() {
    let mut allocator = with(vec![plain("n", 2)]);
    let cards: Vec<_> = ["v", "stays"].map(|uid| pod(uid, &[app(1, 1000, 0)])).into();
    for request in &cards {
        let assignment = allocator.reserve(request, "n", 0).expect("room");
        allocator.place(request, assignment, false).expect("our own answer");
    }
    let (high, other) = (pod("high", &[app(1, 600, 0)]), pod("other", &[app(1, 600, 0)]));
    let fits = |allocator: &mut Allocator, request| {
        allocator.filter(request, &["n"], 1_000).expect("good").feasible == [0]
    };
    allocator.hold_freed(&high, "n", &["v"], 0).expect("good");
    allocator.hold_freed(&high, "n", &["v", "stays"], 0).expect("it has a hold");
    assert_eq!(allocated_mib(&allocator), [1600, 1000]);
    assert!(!fits(&mut allocator, &high), "the victim is still there");
    allocator.remove("v");
    assert!(!fits(&mut allocator, &other));
    assert!(fits(&mut allocator, &high));
    allocator.end_hold("high");
    assert!(fits(&mut allocator, &other));
    // Nothing is held where there is no room even then, and a reservation stays.
    allocator.hold_freed(&pod("large", &[app(2, 600, 0)]), "n", &[""; 0], 0).expect("good");
    allocator.hold_freed(&high, "none", &["stays"], 0).expect("good");
    assert_eq!(allocated_mib(&allocator), [0, 1000]);
    allocator.reserve(&high, "n", 0).expect("room");
    allocator.hold_freed(&high, "n", &["stays"], 0).expect("good");
    allocator.end_hold("high");
    assert_eq!(allocated_mib(&allocator), [600, 1000]);
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
    // Another version may have other fields.
    for later in [
        r#"{"version": 3, "nodes": [], "quotas": [], "pods": []}"#,
        r#"{"cards": {}, "version": 3}"#,
    ] {
        let error = Allocator::restore(later.as_bytes()).map(drop).unwrap_err();
        assert_eq!(error.field, "snapshot.version");
    }
}
