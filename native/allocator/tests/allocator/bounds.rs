//! The limits of searches: every question ends after a number of steps, and so do all questions of
//! a namespace together, until time has passed.

use crate::build::{app, card, node, pod, with};
use hami_allocator::wire::{Candidate, ContainerRequest, PodRequest, Topology};
use hami_allocator::{Allocator, Filtered};

const NODES: usize = 40;
const SECOND: u64 = 1_000_000_000;

/// Nodes with sixteen cards.
fn cluster() -> (Allocator, Vec<String>) {
    let names: Vec<String> = (0..NODES).map(|at| format!("n{at:02}")).collect();
    let cards = |name: &str| (0..16).map(|at| card(&format!("{name}-g{at:02}"), 16_000)).collect();
    (with(names.iter().map(|name| node(name, cards(name))).collect()), names)
}

/// It fits nowhere, and every node needs all its steps to find that out. Each number is a class of
/// its own.
fn hard(number: usize, namespace: &str) -> PodRequest {
    // Each of the small containers takes a card of its own, and then the large one has one card too
    // few.
    let mut containers: Vec<ContainerRequest> =
        (0..3).map(|_| app(1, 8_100 + number as u64, 0)).collect();
    containers.push(app(14, 15_000, 0));
    let mut request = pod(&format!("hard-{namespace}-{number}"), &containers);
    request.card_request.topology = Topology::BestEffort;
    request.pod.namespace = namespace.into();
    request
}

/// The number of nodes that were not searched in time, and that were not searched because of
/// earlier questions.
fn left(filtered: &Filtered) -> (usize, usize) {
    assert!(filtered.feasible.is_empty());
    let of = |list: &[(u32, std::sync::Arc<str>)], text: &str| {
        list.iter().filter(|(_, why)| why.starts_with(text)).count()
    };
    (of(&filtered.failed, "not looked at yet,"), of(&filtered.unresolvable, "not looked at, pods"))
}

#[test]
fn a_hopeless_choice_of_linked_cards_is_given_up() {
    let (mut allocator, names) = cluster();
    let mut container =
        |at: u64| allocator.filter(&hard(0, "team"), &names, at * SECOND).expect("good");
    let mut before = NODES;
    for question in 0_u64.. {
        // As kube-scheduler retries it.
        let filtered = container(question * 10);
        let (later, never) = left(&filtered);
        assert!(later < before && never == 0, "it goes on: {later} of {before}, {never}");
        assert_eq!(filtered.is_partial, later > 0);
        if later == 0 {
            assert!(question > 0, "it was too much for one question");
            return;
        }
        before = later;
    }
}

#[test]
fn a_question_on_a_copy_searches_every_node() {
    let (mut allocator, names) = cluster();
    let asked = hard(0, "team");
    assert!(allocator.filter(&asked, &names, 0).expect("good").is_partial);
    let (all, filtered) = Allocator::restore(&allocator.snapshot())
        .expect("it was written so")
        .filter_all(&asked, 0)
        .expect("good");
    assert_eq!((all.len(), left(&filtered)), (NODES, (0, 0)));
    assert!(!filtered.is_partial);
}

#[test]
fn many_hopeless_choices_of_one_namespace_cost_no_more_than_a_few() {
    let (mut allocator, names) = cluster();
    let mut judge = [0; 30];
    let mut rounds = Vec::new();
    for _ in 0..3 {
        let mut tried_again = 0;
        for (number, before) in judge.iter_mut().enumerate() {
            let filtered = allocator.filter(&hard(number, "evil"), &names, 0).expect("good");
            let (later, never) = left(&filtered);
            assert!(later == 0 || never == 0);
            assert_eq!(filtered.is_partial, later > 0);
            tried_again += usize::from(later > 0);
            let now = NODES - later - never;
            // A question with all its steps reaches twenty nodes; one with only the free steps
            // reaches fewer.
            let most = if rounds.is_empty() { 20 } else { 8 };
            assert!(now - *before <= most, "{before} {now}");
            *before = now;
        }
        rounds.push(tried_again);
    }
    assert!((1..20).contains(&rounds[0]), "{rounds:?}");
    assert_eq!(rounds[1..], [0, 0], "no time has passed");
    // Requests that need no search are not affected, and neither is another namespace.
    let mut easy = pod("easy", &[app(1, 8_000, 0)]);
    easy.pod.namespace = "evil".into();
    assert_eq!(allocator.filter(&easy, &names, 0).expect("good").feasible.len(), NODES);
    let other = allocator.filter(&hard(200, "good"), &names, 0).expect("good");
    let (later, never) = left(&other);
    assert!((1..NODES).contains(&later) && never == 0 && other.is_partial, "{later} {never}");
    // The debt is paid with time.
    let again = allocator.filter(&hard(29, "evil"), &names, 10 * SECOND).expect("good");
    let (later, never) = left(&again);
    assert!((1..NODES).contains(&later) && never == 0 && again.is_partial, "{later} {never}");
}

#[test]
fn a_pod_is_retried_if_not_all_reservations_can_be_searched() {
    let (mut allocator, mut names) = cluster();
    // The pod would fit here without what is reserved for others.
    let cards = (0..17).map(|at| card(&format!("z-g{at:02}"), 16_000)).collect();
    allocator.set_node(node("z", cards)).expect("a good node");
    names.push("z".into());
    for name in &names {
        let reserved = pod(&format!("reserved-{name}"), &[app(1, 16_000, 0)]);
        allocator.reserve(&reserved, name, 0).expect("room");
    }
    let mut number = 0;
    while allocator.filter(&hard(number, "evil"), &names[..NODES], 0).expect("good").is_partial {
        number += 1;
    }
    let mut only = |number, names: &[String]| {
        allocator.fits_without_unbound(&hard(number, "evil"), names, 0, SECOND).expect("good")
    };
    assert!(only(number, &names));
    // With few nodes the answer is exact.
    assert!(only(number, &names[NODES..]));
    assert!(!only(number, &names[..3]));
}

/// Full nodes. There are 10^11 sets of pods whose eviction would free four whole cards.
fn full(names: &[String]) -> (Allocator, Vec<Vec<Candidate>>) {
    let cards = |name: &str| (0..8).map(|at| card(&format!("{name}-g{at}"), 1_000)).collect();
    let mut allocator = with(names.iter().map(|name| node(name, cards(name))).collect());
    let mut placed = |uid: String, name: &str| {
        let small = pod(&uid, &[app(1, 200, 0)]);
        let assignment = allocator.reserve(&small, name, 0).expect("room");
        allocator.place(&small, assignment, true).expect("our own answer");
        Candidate { uid, priority: 0, pdb_violating: false, chosen: false }
    };
    let on = |name: &String| (0..40).map(|at| placed(format!("{name}-{at:02}"), name)).collect();
    let candidates = names.iter().map(on).collect();
    (allocator, candidates)
}

#[test]
fn many_hard_preemptions_of_one_namespace_cost_no_more_than_a_few() {
    let names: Vec<String> = (0..12).map(|at| format!("n{at:02}")).collect();
    let (mut allocator, candidates) = full(&names);
    let mut container = |number: usize, namespace: &str, now| {
        let mut urgent = pod(&format!("urgent-{namespace}-{number}"), &[app(4, 1_000, 0)]);
        (urgent.priority, urgent.pod.namespace) = (10, namespace.into());
        let all = names.iter().zip(&candidates);
        all.map(|(name, candidates)| {
            allocator.victims(&urgent, name, candidates, now).expect("a good request")
        })
        .collect::<Vec<Option<Vec<String>>>>()
    };
    let first = container(0, "evil", 0);
    assert!(
        first.iter().all(|victims| victims.as_ref().is_some_and(|removed| removed.len() == 20))
    );
    // The first few get the same answer as the first one.
    let next =
        (1..30).find(|number| container(*number, "evil", 0) != first).expect("there is an end");
    // Then some nodes are searched, and none of them evicts a pod needlessly; the others evict
    // none.
    let judge = |answer: &[Option<Vec<String>>]| {
        let judge = answer.iter().take_while(|victims| victims.is_some()).count();
        assert_eq!(answer[..judge], first[..judge]);
        assert!(answer[judge..].iter().all(Option::is_none));
        judge
    };
    for number in next + 1..next + 4 {
        let judge = judge(&container(number, "evil", 0));
        assert!((1..=3).contains(&judge), "{judge} nodes");
    }
    // Another namespace is not affected, and the debt is paid with time.
    assert_eq!(judge(&container(0, "good", 0)), names.len());
    assert_eq!(judge(&container(next, "evil", 60 * SECOND)), names.len());
}

#[test]
fn a_first_preemption_has_an_end_too() {
    let names: Vec<String> = (0..2).map(|at| format!("n{at:02}")).collect();
    let (mut allocator, candidates) = full(&names);
    let mut urgent = pod("urgent", &[app(4, 1_000, 0)]);
    urgent.priority = 10;
    // The nodes that are asked about at one time are one question, as if there were hundreds of
    // them.
    let all = names.iter().zip(&candidates).cycle().take(200);
    let victims: Vec<Option<Vec<String>>> = all
        .map(|(name, candidates)| {
            allocator.victims(&urgent, name, candidates, 0).expect("a good request")
        })
        .collect();
    let judge = victims.iter().take_while(|victims| victims.is_some()).count();
    assert!((12..150).contains(&judge), "{judge} nodes");
    assert!(victims[..judge].iter().flatten().all(|removed| removed.len() == 20));
    assert!(victims[judge..].iter().all(Option::is_none), "no pod is evicted from the others");
}
