//! Small clusters in which every plan is tried: the allocator finds a plan exactly if there is one,
//! and its plan works whatever the kubelet picks.

use crate::build::{cards, container, node, pod, with};
use crate::kubelet::{Machine, Others, Plan, weight};
use crate::prng::Prng;
use hami_allocator::wire::{Card, CardRequest, ContainerRequest, Kind, Memory, Mode, PodRequest};
use std::cell::RefCell;

const CASES: u64 = 6_000;

#[test]
fn a_plan_is_found_exactly_where_there_is_one() {
    let (mut found, mut none, mut open) = (0, 0, 0);
    for seed in 0..CASES {
        let random = &mut Prng::new(seed);
        let mode = random.pick(&[Mode::Full, Mode::Full, Mode::Memory, Mode::Share]);
        let cards = some_cards(random);
        let mut published = node("n", cards.clone());
        published.mode = mode;
        let mut allocator = with(vec![published]);
        let others = others(random, &mut allocator, &cards);
        let request = some_request(random);
        let numa = request.card_request.numa;
        let nothing = || vec![Others::default(); cards.len()];
        let worst = RefCell::new(nothing());
        let machine =
            Machine { cards: &cards, others: &others, mode, numa, request: &request, worst };
        let feasible = machine.is_feasible();
        let answer = allocator.reserve(&request, "n", 0);
        match answer {
            Ok(assignment) => {
                assert!(
                    feasible,
                    "seed {seed}: {assignment:?} cannot be, for {request:?} beside {others:?} on {cards:?}"
                );
                let plan = plan_of(&machine, &request, &assignment, &cards);
                machine.worst.replace(nothing());
                assert!(
                    machine.holds(&plan),
                    "seed {seed}: {plan:?} for {request:?} beside {others:?} on {cards:?}"
                );
                is_charged(&allocator, &machine);
                found += 1;
                open += u32::from(
                    request.containers[0].kind == Kind::Init && request.containers.len() > 2,
                );
            }
            Err(refusal) => {
                assert!(
                    !feasible,
                    "seed {seed}: {refusal:?} for {request:?} beside {others:?} on {cards:?}"
                );
                none += 1;
            }
        }
    }
    // A test that always sees the same outcome tests nothing.
    assert!(
        found > 1000 && none > 1000 && open > 300,
        "{found} found, {none} not, {open} with choices"
    );
}

/// A card is charged with the worst choice of the kubelet, and no more.
fn is_charged(allocator: &hami_allocator::Allocator, machine: &Machine<'_>) {
    let usage = allocator.usage();
    for (at, worst) in machine.worst.borrow().iter().enumerate() {
        let others = machine.others[at];
        let allocated = &usage[0].cards[at];
        let charged =
            (allocated.memory_allocated_mib, allocated.cores_allocated, allocated.slots_allocated);
        let counted =
            (others.memory + worst.memory, others.cores + worst.cores, others.slots + worst.slots);
        assert_eq!(charged, counted, "{:?}", machine.request);
    }
}

fn some_cards(random: &mut Prng) -> Vec<Card> {
    let count = 1 + random.below(4);
    let one = |at: usize| {
        let mut card = crate::build::card(&format!("g{at}"), random.pick(&[1000, 1000, 600]));
        card.foreign_mib = random.pick(&[0, 0, 0, 200]);
        card.healthy = !random.chance(5);
        card.cordoned = random.chance(5);
        card.slots = random.pick(&[32, 32, 2]);
        card.numa = random.pick(&[Some(0), Some(1), Some(1), None]);
        card
    };
    (0..count).map(one).collect()
}

/// Places a few pods of one container each, and sums up what they take.
fn others(
    random: &mut Prng,
    allocator: &mut hami_allocator::Allocator,
    cards: &[Card],
) -> Vec<Others> {
    let mut others = vec![Others::default(); cards.len()];
    for at in 0..random.below(4) {
        let one = ContainerRequest { kind: Kind::App, cards: 1, ..some_ask(random) };
        let request = pod(&format!("other-{at}"), &[one]);
        let Ok(assignment) = allocator.reserve(&request, "n", 0) else { continue };
        let grant = &assignment.containers["c0"][0];
        let at = cards.iter().position(|card| card.uuid == grant.card).expect("a card of the node");
        others[at].memory += weight(&request.containers[0], &cards[at]);
        others[at].cores += grant.cores;
        others[at].slots += 1;
    }
    others
}

fn some_ask(random: &mut Prng) -> ContainerRequest {
    let memory = match random.below(8) {
        0 => Memory::Whole,
        1 => Memory::Percent(random.pick(&[10, 34, 50])),
        _ => Memory::Mib(random.pick(&[50, 200, 300, 450, 600])),
    };
    container(
        Kind::App,
        random.pick(&[1, 1, 1, 2, 2, 3]),
        memory,
        random.pick(&[0, 0, 10, 30, 50, 60, 100]),
    )
}

fn some_request(random: &mut Prng) -> PodRequest {
    let kinds = [Kind::Init, Kind::Init, Kind::Sidecar, Kind::App, Kind::App];
    let mut kinds: Vec<Kind> = (0..=random.below(4)).map(|_| random.pick(&kinds)).collect();
    kinds.sort_by_key(|kind| *kind == Kind::App);
    let containers: Vec<ContainerRequest> =
        kinds.into_iter().map(|kind| ContainerRequest { kind, ..some_ask(random) }).collect();
    let mut request = pod("pod", &containers);
    request.card_request = CardRequest { numa: random.chance(20), ..CardRequest::default() };
    request
}

fn plan_of(
    machine: &Machine<'_>,
    request: &PodRequest,
    assignment: &hami_allocator::wire::Assignment,
    all: &[Card],
) -> Plan {
    let index =
        |uuid: &String| all.iter().position(|card| card.uuid == *uuid).expect("a card of the node");
    let mut waiting: Vec<usize> = Vec::new();
    let mut plan = Vec::new();
    let hands = cards(request, assignment);
    for ((container, hand), need) in request.containers.iter().zip(hands).zip(machine.needs()) {
        let hand: Vec<usize> = hand.iter().map(index).collect();
        assert_eq!(hand.len(), container.cards as usize);
        // The reused cards come first.
        let (reused, new) = hand.split_at(hand.len() - need);
        assert!(reused.iter().all(|card| waiting.contains(card)), "{hand:?} of {waiting:?}");
        match container.kind {
            Kind::Init => waiting.extend(new),
            Kind::Sidecar | Kind::App => waiting.retain(|card| !reused.contains(card)),
        }
        plan.push(new.to_vec());
    }
    plan
}
