//! Shares of cards under quotas, where the use of a quota depends on the chosen cards. The cached
//! verdicts must be those that an evaluation without a cache finds.

use crate::build::{card, container, node, pod, with};
use crate::prng::Prng;
use hami_allocator::wire::{Kind, Memory, Mig, MigProfile, Mode, Node, PodRequest, Quota};
use hami_allocator::{Allocator, Filtered};
use std::collections::BTreeSet;

const SECOND: u64 = 1_000_000_000;
const NOT_YET: &str = "not looked at yet,";

fn named(at: usize) -> String {
    format!("n{at:02}")
}

fn limit(allocator: &mut Allocator, namespace: &str, memory_mib: u64) {
    let (namespace, name) = (namespace.into(), "memory".into());
    let quota = Quota { namespace, name, gpu: None, memory_mib: Some(memory_mib), cores: None };
    allocator.set_quota(quota).expect("a good quota");
}

fn of(mut request: PodRequest, namespace: &str) -> PodRequest {
    request.pod.namespace = namespace.into();
    request
}

/// The verdict on each node: its score, or whether evictions may help, and the reason.
type Said = Vec<Result<u16, (bool, String)>>;

fn said(
    allocator: &mut Allocator,
    request: &PodRequest,
    names: &[String],
    filtered: &Filtered,
) -> Said {
    let scores = allocator.score(request, names, 0, 0).expect("a good request");
    let mut said: Said = scores.into_iter().map(Ok).collect();
    for (node, why) in &filtered.failed {
        said[*node as usize] = Err((true, why.to_string()));
    }
    for (node, why) in &filtered.unresolvable {
        said[*node as usize] = Err((false, why.to_string()));
    }
    assert_eq!(said.iter().filter(|one| one.is_ok()).count(), filtered.feasible.len());
    said
}

/// The same from new allocators with the same state, one for each node.
fn afresh(allocator: &mut Allocator, request: &PodRequest, names: &[String]) -> Said {
    let state = allocator.snapshot();
    let one = |name: &String| {
        let (mut fresh, name) =
            (Allocator::restore(&state).expect("our own snapshot"), std::slice::from_ref(name));
        let filtered = fresh.filter(request, name, 0).expect("a good request");
        said(&mut fresh, request, name, &filtered).remove(0)
    };
    names.iter().map(one).collect()
}

#[test]
fn an_expensive_choice_under_a_quota_continues_and_ends() {
    const NODES: usize = 30;
    // Eight of the sixteen different cards exceed the quota, but the eight smallest do not.
    let cards =
        |at: usize| (0..16).map(|of| card(&format!("{at}-g{of:02}"), 16_000 + 100 * of)).collect();
    let mut nodes: Vec<Node> = (0..NODES).map(|at| node(&named(at), cards(at))).collect();
    nodes.push(node("aside", vec![card("aside-g0", 16_000)]));
    let mut allocator = with(nodes);
    limit(&mut allocator, "team", 8 * 16_000 + 900);
    limit(&mut allocator, "other", 8 * 16_000 + 700);
    let names: Vec<String> = (0..NODES).map(named).collect();
    let wanted = pod("wanted", &[container(Kind::App, 8, Memory::Whole, 0)]);
    let mut before = NODES;
    let mut questions = 0;
    while before > 0 {
        let now = questions * 10 * SECOND;
        let filtered = allocator.filter(&wanted, &names, now).expect("a good request");
        let later = filtered.failed.iter().filter(|(_, why)| why.starts_with(NOT_YET)).count();
        assert_eq!((filtered.feasible.len(), filtered.is_partial), (0, later > 0));
        // A question has the steps for twenty nodes.
        assert!(later < before && before - later <= 20, "{later} of {before}");
        before = later;
        questions += 1;
        // Meanwhile other pods of the namespace are bound, and the quota leaves less.
        let small =
            pod(&format!("small{questions}"), &[container(Kind::App, 1, Memory::Mib(100), 0)]);
        let assignment = allocator.reserve(&small, "aside", now).expect("room");
        allocator.place(&small, assignment, true).expect("our own answer");
    }
    assert!(questions > 1, "it was too much for one question");
    // A verdict for a remaining amount applies to smaller ones too, with the amounts of the current
    // request.
    for request in [wanted.clone(), of(wanted, "other")] {
        let filtered = allocator.filter(&request, &names, questions * 10 * SECOND).expect("good");
        assert!(!filtered.is_partial);
        let remembered = said(&mut allocator, &request, &names, &filtered);
        assert_eq!(remembered, afresh(&mut allocator, &request, &names));
        let over =
            format!("never fits: quota memory of namespace {} allows", request.pod.namespace);
        assert!(filtered.unresolvable.iter().all(|(_, why)| why.starts_with(&over)));
    }
}

/// Nodes with equal cards, different cards, or cards of which some are in MIG mode.
fn some_node(random: &mut Prng, at: usize) -> Node {
    let kind = random.below(3);
    let cards = (0..2 + random.below(3)).map(|of| {
        let memory = if kind == 0 { 1000 } else { random.pick(&[500, 1000, 1000, 2000]) };
        let mut card = card(&format!("{at}-g{of}"), memory);
        let profile = |name: &str, memory_mib, size, placements: &[u32]| MigProfile {
            name: name.into(),
            memory_mib,
            slices: size,
            placements: placements.to_vec(),
            size,
        };
        let profiles = vec![
            profile("small", memory / 4 - 10, 1, &[0, 1, 2, 3]),
            profile("half", memory / 2 - 10, 2, &[0, 2]),
            profile("large", memory - 10, 4, &[0]),
        ];
        card.mig = (kind == 2 && random.chance(60)).then_some(Mig { profiles, taken: Vec::new() });
        card
    });
    let mut node = node(&named(at), cards.collect());
    node.mode = if kind == 2 { Mode::Mig } else { Mode::Full };
    node
}

fn some_request(random: &mut Prng, uid: &str) -> PodRequest {
    let shares = [Memory::Percent(20), Memory::Percent(50), Memory::Percent(90), Memory::Whole];
    let one = container(Kind::App, random.pick(&[1, 1, 2, 3]), random.pick(&shares), 0);
    let containers = match random.below(3) {
        0 => vec![container(Kind::Init, 1, Memory::Percent(25), 0), one],
        1 => vec![one, container(Kind::App, 1, Memory::Mib(200), 0)],
        _ => vec![one],
    };
    of(pod(uid, &containers), random.pick(&["team", "other", "third"]))
}

#[test]
fn cached_verdicts_are_those_of_a_new_allocator() {
    const NODES: usize = 6;
    let (mut fits, mut quotas, mut full) = (0, 0, BTreeSet::new());
    for seed in 0..12 {
        let random = &mut Prng::new(seed);
        let mut allocator = with((0..NODES).map(|at| some_node(random, at)).collect());
        let names: Vec<String> = (0..NODES).map(named).collect();
        // A few classes again and again, while nodes, quotas and their use change.
        let asked: Vec<PodRequest> =
            (0..6).map(|at| some_request(random, &format!("asked{at}"))).collect();
        for at in 0..60 {
            match random.below(6) {
                0 => allocator.remove(&format!("placed{}", random.below(at + 1))),
                1 => {
                    let namespace = random.pick(&["team", "other", "third"]);
                    limit(&mut allocator, namespace, 100 * random.below(60) as u64);
                }
                2 => {
                    let number = random.below(NODES);
                    allocator.set_node(some_node(random, number)).expect("a good node");
                }
                3 => {
                    let request = some_request(random, &format!("placed{at}"));
                    if let Ok(given) = allocator.reserve(&request, &names[random.below(NODES)], 0) {
                        allocator.place(&request, given, true).expect("our own answer");
                    }
                }
                _ => {
                    let one = &asked[random.below(asked.len())];
                    let request = of(one.clone(), random.pick(&["team", "other", "third"]));
                    let filtered = allocator.filter(&request, &names, 0).expect("a good request");
                    let remembered = said(&mut allocator, &request, &names, &filtered);
                    assert_eq!(remembered, afresh(&mut allocator, &request, &names), "seed {seed}");
                    fits += filtered.feasible.len();
                    let is_quota = |why: &str| why.starts_with("quota");
                    quotas += filtered.unresolvable.iter().filter(|(_, why)| is_quota(why)).count();
                    full.extend(filtered.failed.iter().map(|(_, why)| why.to_string()));
                }
            }
        }
    }
    assert!(fits > 50 && quotas > 50 && full.len() > 2, "{fits} {quotas} {full:?}");
}
