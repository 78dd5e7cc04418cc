//! Long random histories. The allocations are counted from the answers alone and never exceed a
//! card; nothing is left behind; the same history gives the same answers; and the order of events
//! does not matter.

use crate::build::{app, container, init, node, pod, sidecar};
use crate::ledger::Ledger;
use crate::prng::Prng;
use hami_allocator::wire::{
    CardRequest, Kind, Memory, Mode, Node, Order, Placement, PodRequest, Topology,
};
use hami_allocator::{Allocator, Refusal};

const HISTORIES: u64 = 100;
const STEPS: usize = 120;
const NODES: usize = 4;

type Event<'a> = Box<dyn Fn(&mut Allocator) + 'a>;

#[test]
fn no_card_is_overcommitted_and_nothing_stays_behind() {
    let (mut reserved, mut unblocked) = (0, 0);
    for seed in 0..HISTORIES {
        let (mut allocator, mut ledger, mut answers) =
            (Allocator::new(), Ledger::default(), Vec::new());
        history(seed, &mut allocator, &mut ledger, &mut answers);
        reserved += answers.iter().filter(|answer| answer.starts_with("reserved")).count();
        unblocked += answers.iter().filter(|answer| *answer == "without unbound true").count();

        // The same history again.
        let (mut again, mut other, mut repeated) =
            (Allocator::new(), Ledger::default(), Vec::new());
        history(seed, &mut again, &mut other, &mut repeated);
        assert_eq!(answers, repeated, "seed {seed}");
        assert_eq!(allocator.digest(), again.digest(), "seed {seed}");

        allocator.expire(u64::MAX);
        from_scratch(seed, &mut allocator, &ledger);

        // Nothing is left behind.
        for uid in ledger.pods.keys() {
            allocator.remove(uid);
        }
        let mut empty = Allocator::new();
        ledger.nodes.values().for_each(|node| empty.set_node(node.clone()).expect("a good node"));
        ledger
            .quotas
            .values()
            .for_each(|quota| empty.set_quota(quota.clone()).expect("a good quota"));
        assert_eq!(allocator.digest(), empty.digest(), "seed {seed}");
        assert_eq!(json(&allocator), json(&empty), "seed {seed}");
    }
    assert!(reserved > 1200, "{reserved} reservations");
    assert!(unblocked > 1200, "{unblocked} fit without unbound ones");
}

/// The final state is the same if its events come in any other order, and after a snapshot.
fn from_scratch(seed: u64, allocator: &mut Allocator, ledger: &Ledger) {
    let digest = allocator.digest();
    let restored = Allocator::restore(&allocator.snapshot()).expect("our own snapshot");
    assert_eq!(json(&restored), json(allocator), "seed {seed}");
    for order in 0..3 {
        let mut other = Allocator::new();
        let mut events: Vec<Event<'_>> = Vec::new();
        for node in ledger.nodes.values() {
            events.push(Box::new(|other| other.set_node(node.clone()).expect("a good node")));
            events.push(Box::new(|other| other.set_node(node.clone()).expect("a good node")));
        }
        for quota in ledger.quotas.values() {
            events.push(Box::new(|other| other.set_quota(quota.clone()).expect("a good quota")));
        }
        for (request, assignment, started, placed) in ledger.pods.values() {
            if !placed {
                continue;
            }
            let started = *started;
            events.push(Box::new(move |other| {
                other.place(request, assignment.clone(), started).expect("good");
            }));
        }
        Prng::new(seed * 10 + order).shuffle(&mut events);
        for event in &events {
            event(&mut other);
        }
        // Reservations are not events.
        let mut without = Allocator::restore(&allocator.snapshot()).expect("our own snapshot");
        assert_eq!(without.digest(), digest);
        ledger.pods.keys().for_each(|uid| without.release(uid));
        assert_eq!(other.digest(), without.digest(), "seed {seed}");
        assert_eq!(json(&other), json(&without), "seed {seed}");
    }
}

fn json(allocator: &Allocator) -> String {
    serde_json::to_string(&allocator.usage()).expect("plain values")
}

fn history(seed: u64, allocator: &mut Allocator, ledger: &mut Ledger, answers: &mut Vec<String>) {
    let random = &mut Prng::new(seed);
    let mut now = 0;
    for step in 0..STEPS {
        now += random.below(3_000_000_000) as u64;
        match if step < NODES { 0 } else { random.below(20) } {
            0 | 1 => {
                let node = some_node(random, step % NODES, seed.is_multiple_of(3));
                allocator.set_node(node.clone()).expect("a good node");
                ledger.nodes.insert(node.name.clone(), node);
            }
            2 if random.chance(30) => {
                let name = format!("n{}", random.below(NODES));
                allocator.remove_node(&name);
                ledger.nodes.remove(&name);
            }
            3 if random.chance(30) => some_quota(random, allocator, ledger),
            4 | 5 => end(random, allocator, ledger),
            6 | 7 => bound(random, allocator, ledger),
            8 => {
                let Some(uid) = some_uid(random, ledger) else { continue };
                allocator.release(&uid);
                if ledger.pods.get(&uid).is_some_and(|(.., placed)| !placed) {
                    ledger.pods.remove(&uid);
                }
            }
            9 => {
                allocator.expire(now);
            }
            _ => schedule(random, step, now, allocator, ledger, answers),
        }
    }
}

fn some_node(random: &mut Prng, at: usize, changes: bool) -> Node {
    let cards = (0..2 + random.below(3)).map(|card| {
        let mut card = crate::build::card(&format!("n{at}-g{card}"), 1000);
        card.numa = Some(card.index % 2);
        card.slots = 6;
        card.cordoned = random.chance(5);
        card.healthy = !random.chance(5);
        for peer in 0..4 {
            card.links.insert(format!("n{at}-g{peer}"), 10 * (1 + peer + card.index % 3));
        }
        // A card that shrinks, or that other programs use, may be overcommitted.
        if changes {
            card.memory_mib = random.pick(&[1000, 1000, 600]);
            card.foreign_mib = random.pick(&[0, 0, 300]);
        }
        card
    });
    let mut node = node(&format!("n{at}"), cards.collect());
    if changes {
        node.mode = random.pick(&[Mode::Full, Mode::Memory, Mode::Topology, Mode::Exclusive]);
    }
    node.placement = random.pick(&[None, Some(Placement::Binpack)]);
    node
}

fn some_quota(random: &mut Prng, allocator: &mut Allocator, ledger: &mut Ledger) {
    let name = format!("q{}", random.below(2));
    if random.chance(40) {
        allocator.remove_quota("team", &name);
        ledger.quotas.remove(&name);
        return;
    }
    let (memory_mib, cores) = (random.pick(&[2000, 4000]), random.pick(&[60, 150]));
    let quota = crate::build::quota(&name, Some(6), Some(memory_mib), Some(cores));
    allocator.set_quota(quota.clone()).expect("a good quota");
    ledger.quotas.insert(name, quota);
}

fn some_uid(random: &mut Prng, ledger: &Ledger) -> Option<String> {
    let uids: Vec<&String> = ledger.pods.keys().collect();
    (!uids.is_empty()).then(|| uids[random.below(uids.len())].clone())
}

fn end(random: &mut Prng, allocator: &mut Allocator, ledger: &mut Ledger) {
    // Sometimes a pod that never existed.
    let uid =
        some_uid(random, ledger).filter(|_| random.chance(90)).unwrap_or_else(|| "ghost".into());
    allocator.remove(&uid);
    allocator.remove(&uid);
    ledger.pods.remove(&uid);
}

/// The API server reports what was reserved, once or twice, and that init containers are done.
fn bound(random: &mut Prng, allocator: &mut Allocator, ledger: &mut Ledger) {
    let Some(uid) = some_uid(random, ledger) else { return };
    let (request, assignment, started, placed) = ledger.pods.get_mut(&uid).expect("a known pod");
    *started |= random.chance(50);
    *placed = true;
    for _ in 0..=random.below(2) {
        allocator.place(request, assignment.clone(), *started).expect("our own answer");
    }
}

fn schedule(
    random: &mut Prng,
    step: usize,
    now: u64,
    allocator: &mut Allocator,
    ledger: &mut Ledger,
    answers: &mut Vec<String>,
) {
    let fresh = some_request(random, &format!("p{step}"));
    // Sometimes the request of a known pod comes again.
    let old = some_uid(random, ledger)
        .filter(|_| random.chance(10))
        .map(|uid| ledger.pods[&uid].0.clone());
    let request = old.unwrap_or(fresh);
    let mut names: Vec<String> = (0..=NODES).map(|at| format!("n{at}")).collect();
    random.shuffle(&mut names);
    let filtered = allocator.filter(&request, &names, now).expect("a good request");
    answers.push(format!("{filtered:?}"));
    // Without any cache, from a snapshot.
    if random.chance(30) {
        let mut fresh = Allocator::restore(&allocator.snapshot()).expect("our own snapshot");
        let again = fresh.filter(&request, &names, now).expect("a good request");
        assert_eq!(format!("{again:?}"), format!("{filtered:?}"));
    }
    assert_eq!(
        filtered.feasible.len() + filtered.failed.len() + filtered.unresolvable.len(),
        names.len()
    );

    if filtered.feasible.is_empty() {
        let soon = now + random.pick(&[0, 2_000_000_000, 10_000_000_000]);
        let unblocked = allocator.fits_without_unbound(&request, &names, now, soon).expect("good");
        answers.push(format!("without unbound {unblocked}"));
        // The same request without anything that is held or reserved for others.
        let mut kept = Allocator::restore(&allocator.snapshot()).expect("our own snapshot");
        kept.expire(soon);
        ledger.pods.iter().filter(|(_, pod)| !pod.3).for_each(|(uid, _)| kept.release(uid));
        let found = kept.filter(&request, &names, now).expect("a good request");
        // If a quota rejects the pod, that is taken as the only reason.
        let of_quota = filtered.failed.is_empty()
            && filtered.unresolvable.iter().all(|(_, reason)| reason.starts_with("quota"));
        let fits = !found.feasible.is_empty();
        assert!(unblocked == fits || unblocked && of_quota, "{request:?}: {found:?}");
    }

    let scores =
        allocator.score(&request, &names, now, random.pick(&[0, 4_000_000_000])).expect("good");
    answers.push(format!("{scores:?}"));
    assert!(scores.iter().all(|score| *score <= 10_000));
    if random.chance(20) {
        return;
    }
    let feasible = &filtered.feasible;
    let node = if feasible.is_empty() || random.chance(10) {
        random.below(names.len())
    } else {
        feasible[random.below(feasible.len())] as usize
    };
    match allocator.reserve(&request, &names[node], now) {
        Ok(assignment) => {
            answers.push(format!("reserved {assignment:?}"));
            let twice = allocator.reserve(&request, &names[node], now).expect("the same again");
            assert_eq!(assignment, twice);
            let old = ledger.pods.get(&request.pod.uid);
            if old.is_none_or(|(_, old, ..)| *old != assignment) {
                assert!(old.is_none_or(|(.., placed)| !placed), "what is bound does not move");
                let entry = (request.clone(), assignment.clone(), false, false);
                ledger.pods.insert(request.pod.uid.clone(), entry);
                ledger.check(&request, &assignment);
            }
        }
        Err(Refusal::Unfit(reason)) => answers.push(reason.to_string()),
        Err(Refusal::Invalid(error)) => panic!("{error}"),
    }
}

fn some_request(random: &mut Prng, uid: &str) -> PodRequest {
    let mib = random.pick(&[100, 200, 450, 700]);
    let cores = random.pick(&[0, 10, 30, 60, 100]);
    let cards = random.pick(&[1, 1, 1, 2]);
    let memory = random.pick(&[Memory::Percent(20), Memory::Percent(50), Memory::Whole]);
    let containers = match random.below(8) {
        0 => vec![init(cards, mib, cores), app(1, 100, 10)],
        1 => vec![init(1, 50, 0), sidecar(1, 100, 5), app(cards, mib, cores)],
        2 => vec![app(cards, mib, cores), app(1, 200, 20)],
        3 => vec![container(Kind::App, cards, memory, cores)],
        4 => vec![init(2, 100, 10), app(1, mib, cores), app(1, 150, 0)],
        _ => vec![app(cards, mib, cores)],
    };
    let mut request = pod(uid, &containers);
    if random.chance(30) {
        request.card_request = CardRequest {
            order: vec![random.pick(&[
                Order::Binpack,
                Order::Spread,
                Order::Numa,
                Order::Topology,
                Order::Mutex,
            ])],
            numa: random.chance(20),
            topology: random.pick(&[Topology::None, Topology::BestEffort, Topology::Strict]),
            node_order: random.pick(&[None, Some(Placement::Spread)]),
            avoid: if random.chance(20) { vec!["n0-g0".into()] } else { Vec::new() },
            ..CardRequest::default()
        };
    }
    request
}
