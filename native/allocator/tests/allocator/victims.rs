//! Victims, compared with every set of pods.

use crate::build::{app, node, pod};
use crate::prng::Prng;
use hami_allocator::Allocator;
use hami_allocator::wire::{Candidate, CardRequest, Mode, PodRequest, Topology};

fn full_node(random: &mut Prng) -> (Allocator, Vec<Candidate>) {
    let cards =
        (0..=random.below(2)).map(|at| crate::build::card(&format!("g{at}"), 100)).collect();
    let mut allocator = crate::build::with(vec![node("n", cards)]);
    let mut candidates = Vec::new();
    for at in 0..9 {
        let mut request = pod(
            &format!("p{at}"),
            &[app(1, random.pick(&[20, 30, 50]), random.pick(&[0, 20, 50]))],
        );
        request.priority = random.pick(&[0, 5, 10, 20]);
        let Ok(assignment) = allocator.reserve(&request, "n", 0) else { continue };
        allocator.place(&request, assignment, true).expect("our own answer");
        let pdb_violating = random.chance(25);
        candidates.push(Candidate {
            uid: request.pod.uid,
            priority: request.priority,
            pdb_violating,
            chosen: false,
        });
    }
    random.shuffle(&mut candidates);
    (allocator, candidates)
}

fn fits_without(allocator: &mut Allocator, request: &PodRequest, removed: &[&Candidate]) -> bool {
    let mut other = Allocator::restore(&allocator.snapshot()).expect("our own snapshot");
    for one in removed {
        other.remove(&one.uid);
    }
    other.reserve(request, "n", 0).is_ok()
}

type Cost = (usize, Option<i32>, usize);

fn cost(removed: &[&Candidate]) -> Cost {
    let violations = removed.iter().filter(|one| one.pdb_violating).count();
    (violations, removed.iter().map(|one| one.priority).max(), removed.len())
}

#[test]
fn the_best_set_is_evicted() {
    let (mut some, mut none) = (0, 0);
    for seed in 0..150 {
        let random = &mut Prng::new(seed);
        let (mut allocator, candidates) = full_node(random);
        let container =
            app(random.pick(&[1, 1, 2]), random.pick(&[40, 70, 100]), random.pick(&[0, 40, 100]));
        let mut request = pod("urgent", &[container]);
        request.priority = 15;
        let lower: Vec<&Candidate> = candidates.iter().filter(|one| one.priority < 15).collect();
        let sets = (0..1_usize << lower.len()).map(|set| {
            let of = |at: &usize| set >> at & 1 == 1;
            (0..lower.len()).filter(of).map(|at| lower[at]).collect::<Vec<&Candidate>>()
        });
        let cheapest: Option<Cost> = sets
            .filter(|removed| fits_without(&mut allocator, &request, removed))
            .map(|removed| cost(&removed))
            .min();
        let before = allocator.digest();
        let victims = allocator.victims(&request, "n", &candidates, 0).expect("a good request");
        assert_eq!(before, allocator.digest(), "a question changes nothing");
        let found: Option<Vec<&Candidate>> = victims.map(|uids| {
            uids.iter()
                .map(|uid| candidates.iter().find(|one| one.uid == *uid).expect("a candidate"))
                .collect()
        });
        if let Some(found) = &found {
            assert!(fits_without(&mut allocator, &request, found), "seed {seed}");
        }
        assert_eq!(found.as_ref().map(|found| cost(found)), cheapest, "seed {seed}");
        some += u32::from(cheapest.is_some());
        none += u32::from(cheapest.is_none());
    }
    assert!(some > 50 && none > 10, "{some} {none}");
}

/// Randomly linked cards with four pods on each, and a pod that requests this many of them with the
/// best links in each of its containers.
fn linked(seed: u64, count: usize, containers: usize) -> (Allocator, Vec<Candidate>, PodRequest) {
    let random = &mut Prng::new(seed);
    let mut cards: Vec<_> =
        (0..count).map(|at| crate::build::card(&format!("g{at}"), 400)).collect();
    for (at, card) in cards.iter_mut().enumerate() {
        card.links = (0..at).map(|to| (format!("g{to}"), 1 + random.below(99) as u32)).collect();
    }
    let mut allocator = crate::build::with(vec![node("n", cards)]);
    let mut candidates = Vec::new();
    for at in 0..4 * count {
        let mut request = pod(&format!("p{at:03}"), &[app(1, 100, 0)]);
        request.priority = at as i32 % 5;
        let assignment = allocator.reserve(&request, "n", 0).expect("room");
        allocator.place(&request, assignment, true).expect("our own answer");
        let (uid, priority) = (request.pod.uid, request.priority);
        let pdb_violating = random.chance(25);
        candidates.push(Candidate { uid, priority, pdb_violating, chosen: false });
    }
    let mut urgent = pod("urgent", &vec![app(4, 200, 0); containers]);
    urgent.card_request = CardRequest { topology: Topology::Strict, ..CardRequest::default() };
    urgent.priority = 10;
    (allocator, candidates, urgent)
}

#[test]
fn no_more_pods_are_evicted_than_by_sparing_one_by_one() {
    for seed in 0..6 {
        let (mut allocator, candidates, urgent) = linked(seed, 8, 2);
        let mut spared: Vec<&Candidate> = candidates.iter().collect();
        spared.sort_by_key(|one| (!one.pdb_violating, -one.priority));
        for one in spared.clone() {
            let fewer: Vec<&Candidate> =
                spared.iter().copied().filter(|other| other.uid != one.uid).collect();
            if fits_without(&mut allocator, &urgent, &fewer) {
                spared = fewer;
            }
        }
        assert!(spared.len() < candidates.len(), "seed {seed}: some can stay");
        let victims = allocator.victims(&urgent, "n", &candidates, 0).expect("a good request");
        let victims = victims.expect("there is a way");
        let found: Vec<&Candidate> =
            candidates.iter().filter(|one| victims.contains(&one.uid)).collect();
        assert_eq!(found.len(), victims.len());
        assert!(fits_without(&mut allocator, &urgent, &found), "seed {seed}");
        assert!(cost(&found) <= cost(&spared), "seed {seed}: {:?}", (cost(&found), cost(&spared)));
    }
}

#[test]
fn pods_not_spared_in_time_are_evicted() {
    let (mut allocator, candidates, urgent) = linked(0, 64, 1);
    let victims = allocator.victims(&urgent, "n", &candidates, 0).expect("a good request");
    let victims = victims.expect("there is a way");
    let found: Vec<&Candidate> =
        candidates.iter().filter(|one| victims.contains(&one.uid)).collect();
    assert!(fits_without(&mut allocator, &urgent, &found));
}

#[test]
fn many_small_pods_make_room_for_many_containers() {
    let cards = (0..16).map(|at| {
        let mut card = crate::build::card(&format!("g{at}"), 800);
        card.links = (at / 4 * 4..at).map(|to| (format!("g{to}"), 100)).collect();
        card
    });
    let mut node = node("n", cards.collect());
    node.mode = Mode::Topology;
    let mut allocator = crate::build::with(vec![node]);
    let mut candidates = Vec::new();
    for at in 0..128 {
        let request = pod(&format!("p{at:03}"), &[app(1, 100, 0)]);
        let assignment = allocator.reserve(&request, "n", 0).expect("room");
        allocator.place(&request, assignment, true).expect("our own answer");
        let uid = request.pod.uid;
        candidates.push(Candidate { uid, priority: 0, pdb_violating: false, chosen: false });
    }
    let mut urgent = pod("urgent", &vec![app(1, 400, 0); 8]);
    urgent.priority = 10;
    let victims = allocator.victims(&urgent, "n", &candidates, 0).expect("a good request");
    let found: Vec<&Candidate> = candidates
        .iter()
        .filter(|one| victims.as_ref().is_some_and(|uids| uids.contains(&one.uid)))
        .collect();
    assert!(fits_without(&mut allocator, &urgent, &found), "{victims:?}");
}

#[test]
fn pods_of_equal_priority_stay_whatever_the_candidate_says() {
    let mut allocator = crate::build::with(vec![crate::build::plain("n", 1)]);
    let mut old = pod("old", &[app(1, 900, 0)]);
    old.priority = 10;
    let assignment = allocator.reserve(&old, "n", 0).expect("room");
    allocator.place(&old, assignment, true).expect("our own answer");
    let mut request = pod("new", &[app(1, 900, 0)]);
    request.priority = 10;
    let candidate =
        Candidate { uid: "old".into(), priority: 0, pdb_violating: false, chosen: false };
    assert_eq!(allocator.victims(&request, "n", std::slice::from_ref(&candidate), 0), Ok(None));
    request.priority = 11;
    let important = Candidate { priority: 11, ..candidate.clone() };
    assert_eq!(allocator.victims(&request, "n", &[important], 0), Ok(None));
    assert_eq!(allocator.victims(&request, "n", &[candidate], 0), Ok(Some(vec!["old".into()])));
    assert_eq!(allocator.victims(&request, "elsewhere", &[], 0), Ok(None));
}

#[test]
fn no_pod_is_evicted_beyond_chosen_ones_that_are_enough() {
    let mut allocator = crate::build::with(vec![crate::build::plain("n", 2)]);
    for name in ["a", "b", "c"] {
        let request = pod(name, &[app(1, 500, 0)]);
        let assignment = allocator.reserve(&request, "n", 0).expect("room");
        allocator.place(&request, assignment, true).expect("our own answer");
    }
    let mut request = pod("new", &[app(1, 1000, 0)]);
    request.priority = 10;
    let going = |chosen: &[&str]| {
        let one = |uid: &str| Candidate {
            uid: uid.into(),
            priority: 0,
            pdb_violating: false,
            chosen: chosen.contains(&uid),
        };
        ["a", "b", "c"].map(one)
    };
    let mut victims = |chosen: &[&str]| {
        let found = allocator.victims(&request, "n", &going(chosen), 0).expect("a good request");
        found.expect("there is a way").join(" ")
    };
    // One of them is alone on its card; the other two share a card.
    let alone = victims(&[]);
    assert_eq!(alone.len(), 1, "{alone}");
    let [one, other] = ["a", "b", "c"]
        .map(str::to_owned)
        .into_iter()
        .filter(|uid| *uid != alone)
        .collect::<Vec<_>>()
        .try_into()
        .expect("two");
    assert_eq!(victims(&[&alone]), alone);
    assert_eq!(victims(&[&one, &other]), format!("{one} {other}"), "the third is spared");
    assert_eq!(victims(&[&one]).len(), 3, "one more, whichever");
}

/// A pod of about 200 MiB on node `n`, and its candidate.
fn placed(allocator: &mut Allocator, uid: &str, mib: u64, priority: i32) -> Candidate {
    let mut request = pod(uid, &[app(1, mib, 0)]);
    request.priority = priority;
    let assignment = allocator.reserve(&request, "n", 0).expect("room");
    allocator.place(&request, assignment, true).expect("our own answer");
    Candidate { uid: uid.into(), priority, pdb_violating: false, chosen: false }
}

fn urgent(cards: u32, mib: u64) -> PodRequest {
    PodRequest { priority: 15, ..pod("urgent", &[app(cards, mib, 0)]) }
}

#[test]
fn a_repeated_candidate_is_evicted_once_and_counts_as_chosen_if_one_is() {
    let mut allocator = crate::build::with(vec![crate::build::plain("n", 1)]);
    let one = placed(&mut allocator, "one", 200, 0);
    let chosen = Candidate { chosen: true, ..one.clone() };
    for candidates in
        [[one.clone(), chosen.clone()], [chosen.clone(), one], [chosen.clone(), chosen]]
    {
        let found = allocator.victims(&urgent(1, 100), "n", &candidates, 0);
        assert_eq!(found, Ok(Some(vec!["one".into()])), "{candidates:?}");
    }
}

#[test]
fn pods_on_other_nodes_and_the_pod_itself_are_not_evicted() {
    let elsewhere = node("m", vec![crate::build::card("g9", 1000)]);
    let mut allocator = crate::build::with(vec![crate::build::plain("n", 1), elsewhere]);
    let far = pod("far", &[app(1, 600, 0)]);
    let assignment = allocator.reserve(&far, "m", 0).expect("room");
    allocator.place(&far, assignment, true).expect("our own answer");
    let far = |chosen| Candidate { uid: "far".into(), priority: 0, pdb_violating: false, chosen };
    assert_eq!(allocator.victims(&urgent(1, 600), "n", &[far(true)], 0), Ok(Some(Vec::new())));
    // Its eviction would help the quota, but the question is about the node.
    allocator.set_quota(crate::build::quota("q", None, Some(1000), None)).expect("a good quota");
    assert_eq!(allocator.victims(&urgent(1, 600), "n", &[far(false)], 0), Ok(None));
    allocator.remove_quota("team", "q");
    let itself = Candidate { chosen: true, ..placed(&mut allocator, "urgent", 600, 0) };
    assert_eq!(allocator.victims(&urgent(1, 600), "n", &[itself], 0), Ok(Some(Vec::new())));
}

#[test]
fn a_necessary_victim_makes_others_of_its_priority_free() {
    let mut allocator = crate::build::with(vec![crate::build::plain("n", 1)]);
    let protected = placed(&mut allocator, "protected", 300, 10);
    let candidates = [
        placed(&mut allocator, "low-1", 100, 0),
        placed(&mut allocator, "low-2", 100, 0),
        placed(&mut allocator, "middle", 200, 5),
        placed(&mut allocator, "stays", 300, 20),
        Candidate { pdb_violating: true, ..protected },
    ];
    let found = allocator.victims(&urgent(1, 500), "n", &candidates, 0);
    assert_eq!(found, Ok(Some(vec!["middle".into(), "protected".into()])));
}

/// Five pods on each of eight cards, of which four must be empty: more sets than can be tried.
/// `says` returns the priority and the budget of the pods of a card.
fn crowded(says: impl Fn(u32) -> (i32, bool)) -> (Allocator, Vec<Candidate>) {
    let mut allocator = crate::build::with(vec![crate::build::plain("n", 8)]);
    let mut candidates = Vec::new();
    for at in 0..40 {
        let mut request = pod(&format!("p{at:02}"), &[app(1, 200, 0)]);
        let assignment = allocator.reserve(&request, "n", 0).expect("room");
        let card = assignment.containers["c0"][0].card[1..].parse().expect("a number");
        let (priority, pdb_violating) = says(card);
        request.priority = priority;
        allocator.place(&request, assignment, true).expect("our own answer");
        let uid = request.pod.uid;
        candidates.push(Candidate { uid, priority, pdb_violating, chosen: false });
    }
    (allocator, candidates)
}

fn going<'a>(allocator: &mut Allocator, candidates: &'a [Candidate]) -> Vec<&'a Candidate> {
    let found = allocator.victims(&urgent(4, 1000), "n", candidates, 0).expect("a good request");
    let uids = found.expect("there is a way");
    candidates.iter().filter(|one| uids.contains(&one.uid)).collect()
}

#[test]
fn with_too_many_sets_pods_under_a_budget_are_spared_first() {
    let (mut allocator, candidates) = crowded(|card| (0, card > 2));
    let removed = going(&mut allocator, &candidates);
    assert_eq!(removed.len(), 20);
    assert_eq!(removed.iter().filter(|one| one.pdb_violating).count(), 5, "of one card");
}

#[test]
fn with_too_many_sets_important_pods_are_spared_first() {
    let (mut allocator, candidates) = crowded(|card| (if card > 2 { 5 } else { 0 }, false));
    let removed = going(&mut allocator, &candidates);
    assert_eq!(removed.len(), 20);
    assert_eq!(removed.iter().filter(|one| one.priority == 5).count(), 5, "of one card");
}
