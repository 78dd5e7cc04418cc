//! Random walks over nodes with several kinds of cards, some of which make MIG instances. Each
//! answer is compared with a search of all placements that knows profiles, the instances that were
//! answered before, and sums, and nothing of the allocator.

use crate::build::{app, container, init, node, pod, with, with_card_request};
use crate::prng::Prng;
use crate::profiles::mig_card;
use hami_allocator::wire::{
    Assignment, Card, CardAllocation, CardRequest, ContainerRequest, Kind, Memory, MigProfile,
    Mode, Node, Order, PodRequest, Sharing,
};
use std::collections::BTreeMap;

const WALKS: u64 = 20;
const STEPS: usize = 700;
/// The compute slices of all of these cards.
const SLICES: u32 = 7;

/// What pods have of the cards.
#[derive(Default)]
struct World {
    cards: Vec<Card>,
    pods: BTreeMap<String, (PodRequest, Assignment)>,
}

/// How often an outcome was seen: a walk that always sees the same one tests nothing.
#[derive(Default, Debug)]
struct Seen {
    instances: u32,
    shared: u32,
    several: u32,
    refused: u32,
    beside_others: u32,
}

fn some_cards(random: &mut Prng) -> Vec<Card> {
    let card = |at: usize| {
        let uuid = format!("g{at}");
        let mut card = match random.pick(&["a100", "a100-80", "h100", "h200", "", ""]) {
            "" => crate::build::card(&uuid, random.pick(&[24_000, 81_920])),
            model => mig_card(&uuid, model),
        };
        card.slots = random.pick(&[32, 32, 32, 3]);
        card
    };
    (0..4).map(card).collect()
}

/// Slices that no instance of a pod has: others can make instances there only.
fn some_taken(random: &mut Prng, world: &mut World) {
    let at = random.below(world.cards.len());
    let all = if random.chance(50) { Vec::new() } else { vec![random.below(8), random.below(8)] };
    let held = world.held(&world.cards[at]);
    let is_free =
        |slice: &u32| !held.iter().any(|(start, size)| (*start..start + size).contains(slice));
    if let Some(mig) = &mut world.cards[at].mig {
        mig.taken = all.into_iter().map(|slice| slice as u32).filter(is_free).collect();
    }
}

fn some_request(random: &mut Prng, uid: &str) -> PodRequest {
    let memory = match random.below(8) {
        0 => Memory::Whole,
        1 => Memory::Percent(random.pick(&[5, 24, 50, 100])),
        _ => Memory::Mib(random.pick(&[
            500, 4_864, 4_865, 9_800, 9_990, 16_000, 19_900, 30_000, 40_100, 71_000, 100_000,
        ])),
    };
    let cores = random.pick(&[0, 0, 10, 14, 15, 28, 43, 57, 60, 100]);
    let one = container(Kind::App, random.pick(&[1, 1, 1, 1, 2, 3, 5]), memory, cores);
    let before = ContainerRequest { kind: Kind::Init, ..one.clone() };
    let containers = match random.below(6) {
        0 => vec![ContainerRequest { cores: 0, ..init(one.cards, 200, 0) }, one],
        1 => vec![before, ContainerRequest { cards: one.cards, ..app(1, 300, 0) }],
        _ => vec![one],
    };
    let order = random.pick(&[&[][..], &[Order::Binpack], &[Order::Spread]]).to_vec();
    let mode = random.pick(&[None, None, Some(Sharing::Mig), Some(Sharing::HamiCore)]);
    with_card_request(pod(uid, &containers), CardRequest { mode, order, ..CardRequest::default() })
}

impl World {
    fn node(&self, mode: Mode) -> Node {
        Node { mode, ..node("n", self.cards.clone()) }
    }

    /// The parts of a card that pods have. An instance that two containers of a pod have, one after
    /// the other, is one.
    fn parts(&self, card: &Card) -> Vec<(String, CardAllocation)> {
        let mut parts: Vec<(String, CardAllocation)> = Vec::new();
        for (uid, (_, assignment)) in &self.pods {
            for part in assignment.containers.values().flatten() {
                if part.card == card.uuid && !parts.contains(&(uid.clone(), part.clone())) {
                    parts.push((uid.clone(), part.clone()));
                }
            }
        }
        parts
    }

    /// The first memory slice and the size of each instance of a pod.
    fn held(&self, card: &Card) -> Vec<(u32, u32)> {
        let of = |(_, part): &(String, CardAllocation)| part.mig.clone();
        self.parts(card).iter().filter_map(of).map(|it| (it.start, it.size)).collect()
    }

    /// Whether each memory slice of a card has an instance, of a pod or of others.
    fn slices(&self, card: &Card) -> [bool; 64] {
        let mut slices = [false; 64];
        for (start, size) in self.held(card) {
            for slice in start..start + size {
                assert!(!slices[slice as usize], "two instances overlap: {:?}", self.parts(card));
                slices[slice as usize] = true;
            }
        }
        let taken = &card.mig.as_ref().expect("profiles").taken;
        let is_held = |slice: &u32| slices[*slice as usize];
        assert!(!taken.iter().any(is_held), "an instance is where others have one");
        for slice in taken {
            slices[*slice as usize] = true;
        }
        slices
    }

    /// MiB, percent and users of a card without MIG, at the peak of each pod.
    fn shared(&self, card: &Card) -> (u64, u32, u32) {
        let mut sums = (0, 0, 0);
        for (_, assignment) in self.pods.values() {
            let here =
                || assignment.containers.values().flatten().filter(|part| part.card == card.uuid);
            sums.0 += here().map(|part| part.memory_mib).max().unwrap_or(0);
            sums.1 += here().map(|part| part.cores).max().unwrap_or(0);
            sums.2 += u32::from(here().next().is_some());
        }
        sums
    }

    /// How many IDs of the pod a card has room for.
    fn room(&self, card: &Card, request: &PodRequest) -> usize {
        match (&card.mig, request.card_request.mode) {
            (Some(_), Some(Sharing::HamiCore)) | (None, Some(Sharing::Mig)) => 0,
            (Some(_), _) => {
                let Some(profile) = smallest(card, request) else { return 0 };
                let slots = card.slots as usize - self.held(card).len().min(card.slots as usize);
                most(&self.slices(card), profile, 0).min(slots)
            }
            (None, _) => usize::from(self.has_room(card, request)),
        }
    }

    fn has_room(&self, card: &Card, request: &PodRequest) -> bool {
        let (memory, cores, users) = self.shared(card);
        let fits = |one: &ContainerRequest| {
            let mib = match one.memory {
                Memory::Mib(mib) => mib,
                Memory::Percent(percent) => card.memory_mib * u64::from(percent) / 100,
                Memory::Whole => card.memory_mib,
            };
            memory + mib <= card.memory_mib
                && cores + one.cores.max(1) <= 100
                && (one.cores < 100 || users == 0)
        };
        users < card.slots && request.containers.iter().all(fits)
    }

    /// Checks the cards that a pod was given. The pod is not yet one of the world's.
    fn check(&self, request: &PodRequest, assignment: &Assignment, seen: &mut Seen) {
        let last = request.containers.last().expect("a container");
        let parts = &assignment.containers[&last.name];
        assert_eq!(parts.len(), last.cards as usize);
        for part in parts {
            let card = self.cards.iter().find(|card| card.uuid == part.card).expect("a card");
            assert!(self.room(card, request) > 0, "{part:?} for {request:?}");
            let Some(instance) = &part.mig else {
                assert!(card.mig.is_none(), "{part:?}");
                seen.shared += 1;
                continue;
            };
            let profile = smallest(card, request).expect("a profile that is large enough");
            let made = card.mig.as_ref().expect("profiles").profiles.iter();
            let made = made.clone().find(|one| one.name == instance.profile).expect("a profile");
            assert_eq!((made.memory_mib, made.slices), (profile.memory_mib, profile.slices));
            assert_eq!((instance.size, part.memory_mib), (made.size, made.memory_mib));
            assert!(made.placements.contains(&instance.start), "{part:?}");
            seen.instances += 1;
        }
        seen.several += u32::from(last.cards > 1);
        let of_default = request.card_request.order.first() != Some(&Order::Spread);
        if let ([CardAllocation { card, mig: Some(made), .. }], true) = (&parts[..], of_default) {
            let drop = |card: &Card, start, size| {
                let mut slices = self.slices(card);
                let before = largest(&slices, card);
                (start..start + size).for_each(|slice| slices[slice as usize] = true);
                before - largest(&slices, card)
            };
            let all = self.cards.iter().filter(|card| self.room(card, request) > 0);
            let best = all.map(|card| {
                let profile = card.mig.as_ref().and(smallest(card, request));
                let profile = profile.expect("a card without MIG comes first");
                let slices = self.slices(card);
                let free = profile
                    .placements
                    .iter()
                    .filter(|start| is_free(&slices, **start, profile.size));
                free.map(|start| drop(card, *start, profile.size)).min().expect("it has room")
            });
            let on = self.cards.iter().find(|one| one.uuid == *card).expect("a card");
            assert_eq!(Some(drop(on, made.start, made.size)), best.min(), "{made:?} of {card}");
        }
    }
}

/// The smallest profile of a card that is large enough for each container.
fn smallest<'a>(card: &'a Card, request: &PodRequest) -> Option<&'a MigProfile> {
    let profiles = &card.mig.as_ref()?.profiles;
    let whole = profiles.iter().map(|profile| profile.memory_mib).max()?;
    let is_enough = |profile: &&MigProfile| {
        request.containers.iter().all(|one| {
            let has_memory = match one.memory {
                Memory::Mib(mib) => profile.memory_mib >= mib,
                Memory::Percent(percent) => {
                    let mib = (card.memory_mib * u64::from(percent) / 100).min(whole);
                    profile.memory_mib >= mib || profile.size * 100 >= percent * 8
                }
                Memory::Whole => profile.memory_mib >= whole,
            };
            has_memory && profile.slices * 100 >= one.cores * SLICES
        })
    };
    let key = |profile: &&MigProfile| (profile.memory_mib, profile.slices, profile.size);
    profiles.iter().filter(is_enough).min_by_key(key)
}

fn is_free(slices: &[bool; 64], start: u32, size: u32) -> bool {
    !slices[start as usize..(start + size) as usize].contains(&true)
}

/// The size of the largest instance that a card can still have.
fn largest(slices: &[bool; 64], card: &Card) -> u32 {
    let profiles = &card.mig.as_ref().expect("profiles").profiles;
    let has = |profile: &&MigProfile| {
        profile.placements.iter().any(|start| is_free(slices, *start, profile.size))
    };
    profiles.iter().filter(has).map(|profile| profile.size).max().unwrap_or(0)
}

/// The most instances of a profile that have room side by side: every set of placements is tried.
fn most(slices: &[bool; 64], profile: &MigProfile, from: usize) -> usize {
    let with = |at: usize| {
        let start = profile.placements[at];
        let mut slices = *slices;
        is_free(&slices, start, profile.size).then(|| {
            slices[start as usize..(start + profile.size) as usize].fill(true);
            1 + most(&slices, profile, at + 1)
        })
    };
    (from..profile.placements.len()).filter_map(with).max().unwrap_or(0)
}

#[test]
fn instances_are_where_there_is_room_and_refused_where_there_is_none() {
    let mut seen = Seen::default();
    for seed in 0..WALKS {
        let random = &mut Prng::new(seed);
        let mode = random.pick(&[Mode::Mig, Mode::Full]);
        let mut world = World { cards: some_cards(random), ..World::default() };
        let mut allocator = with(vec![world.node(mode)]);
        for step in 0..STEPS {
            match random.below(10) {
                0 => {
                    some_taken(random, &mut world);
                    allocator.set_node(world.node(mode)).expect("a good node");
                }
                1..=3 if !world.pods.is_empty() => {
                    let at = random.below(world.pods.len());
                    let uid = world.pods.keys().nth(at).expect("a pod").clone();
                    world.pods.remove(&uid);
                    allocator.remove(&uid);
                }
                _ => {
                    let request = some_request(random, &format!("p{step}"));
                    let room: usize =
                        world.cards.iter().map(|card| world.room(card, &request)).sum();
                    let wanted = request.containers[0].cards as usize;
                    let filtered = allocator.filter(&request, &["n"], 0).expect("good");
                    assert_eq!(filtered.feasible.len(), usize::from(room >= wanted));
                    let Ok(assignment) = allocator.reserve(&request, "n", 0) else {
                        assert!(room < wanted, "seed {seed}, step {step}: {request:?}");
                        seen.refused += 1;
                        continue;
                    };
                    assert!(room >= wanted, "seed {seed}, step {step}: {assignment:?}");
                    world.check(&request, &assignment, &mut seen);
                    if random.chance(50) {
                        let again = assignment.clone();
                        allocator.place(&request, again, false).expect("our own answer");
                    }
                    world.pods.insert(request.pod.uid.clone(), (request, assignment));
                    for card in world.cards.iter().filter(|card| card.mig.is_some()) {
                        // It panics where two overlap.
                        let _slices = world.slices(card);
                        let others = !card.mig.as_ref().expect("profiles").taken.is_empty();
                        seen.beside_others += u32::from(others && !world.held(card).is_empty());
                    }
                }
            }
        }
        world.pods.keys().for_each(|uid| allocator.remove(uid));
        let usage = allocator.usage();
        assert!(usage[0].cards.iter().all(|card| card.slots_allocated == 0), "{usage:?}");
    }
    let Seen { instances, shared, several, refused, beside_others } = seen;
    let all = [instances, shared, several, refused, beside_others];
    assert!(all.iter().all(|count| *count > 200), "{seen:?}");
}
