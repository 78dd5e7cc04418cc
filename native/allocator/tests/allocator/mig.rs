//! Cards in MIG mode.

use crate::build::{app, card, init, node, pod, reserve, with, with_card_request};
use hami_allocator::wire::{
    Card, CardRequest, ContainerRequest, Memory, Mig, MigProfile, Mode, Node, Order,
};

/// The profiles of an A100 with 80 GB, as NVML lists them.
fn a100(uuid: &str) -> Card {
    let profile = |name: &str, memory_mib, slices, size, placements: &[u32]| MigProfile {
        name: name.into(),
        memory_mib,
        slices,
        placements: placements.to_vec(),
        size,
    };
    let mut card = card(uuid, 81_920);
    card.mig = Some(Mig {
        profiles: vec![
            profile("1g.10gb", 9_728, 1, 1, &[0, 1, 2, 3, 4, 5, 6]),
            profile("1g.20gb", 19_968, 1, 2, &[0, 2, 4, 6]),
            profile("2g.20gb", 19_968, 2, 2, &[0, 2, 4]),
            profile("3g.40gb", 40_192, 3, 4, &[0, 4]),
            profile("4g.40gb", 40_192, 4, 4, &[0]),
            profile("7g.80gb", 81_152, 7, 8, &[0]),
        ],
        taken: Vec::new(),
    });
    card
}

fn mig(cards: Vec<Card>) -> Node {
    Node { mode: Mode::Mig, ..node("n", cards) }
}

fn instance(
    allocator: &mut hami_allocator::Allocator,
    uid: &str,
    container: ContainerRequest,
) -> Result<(String, u32), String> {
    let request = pod(uid, &[container]);
    reserve(allocator, &request)?;
    let assignment = allocator.reserve(&request, "n", 0).expect("the same again");
    let grant = assignment.containers["c0"][0].clone();
    let instance = grant.mig.expect("an instance");
    Ok((instance.profile, instance.start))
}

#[test]
fn the_smallest_profile_that_is_large_enough() {
    let profile = |container| {
        instance(&mut with(vec![mig(vec![a100("g0")])]), "p", container).map(|(profile, _)| profile)
    };
    assert_eq!(profile(app(1, 5_000, 0)).as_deref(), Ok("1g.10gb"));
    assert_eq!(profile(app(1, 9_729, 0)).as_deref(), Ok("1g.20gb"));
    assert_eq!(profile(app(1, 9_729, 20)).as_deref(), Ok("2g.20gb"));
    assert_eq!(profile(app(1, 30_000, 43)).as_deref(), Ok("4g.40gb"));
    assert_eq!(
        profile(ContainerRequest { memory: Memory::Whole, ..app(1, 1, 0) }).as_deref(),
        Ok("7g.80gb")
    );
    assert_eq!(
        profile(ContainerRequest { memory: Memory::Percent(40), ..app(1, 1, 0) }).as_deref(),
        Ok("3g.40gb")
    );
    let said =
        "never fits: 1 card: 1 has no MIG profile so large (90000 MiB requested, largest 81152)";
    assert_eq!(profile(app(1, 90_000, 0)), Err(said.to_owned()));
}

#[test]
fn small_instances_leave_room_for_large_ones() {
    let mut allocator = with(vec![mig(vec![a100("g0")])]);
    for at in 0..3 {
        instance(&mut allocator, &format!("small-{at}"), app(1, 5_000, 0)).expect("room");
    }
    instance(&mut allocator, "large", app(1, 40_000, 0)).expect("half of the card is still whole");
    let error = instance(&mut allocator, "large-2", app(1, 40_000, 0)).unwrap_err();
    assert_eq!(error, "1 card: 1 has no free placement for 3g.40gb (beside 4 instances)");
    let error = instance(&mut allocator, "small-3", app(1, 5_000, 0)).unwrap_err();
    assert_eq!(error, "1 card: 1 has no free placement for 1g.10gb (beside 4 instances)");
}

#[test]
fn instances_of_one_container_may_be_of_one_card() {
    let mut allocator = with(vec![mig(vec![a100("g0")])]);
    let request = pod("p", &[app(3, 9_000, 0)]);
    assert_eq!(reserve(&mut allocator, &request), Ok(vec![vec!["g0".to_owned(); 3]]));
    let assignment = allocator.reserve(&request, "n", 0).expect("the same again");
    let mut starts: Vec<u32> = assignment.containers["c0"]
        .iter()
        .map(|grant| grant.mig.as_ref().expect("an instance").start)
        .collect();
    starts.sort_unstable();
    starts.dedup();
    assert_eq!(starts.len(), 3);
}

#[test]
fn an_instance_is_reused_unchanged() {
    let mut allocator = with(vec![mig(vec![a100("g0")])]);
    let request = pod("p", &[init(1, 30_000, 0), app(1, 5_000, 0)]);
    reserve(&mut allocator, &request).expect("room");
    let assignment = allocator.reserve(&request, "n", 0).expect("the same again");
    assert_eq!(assignment.containers["c0"], assignment.containers["c1"]);
    assert_eq!(assignment.containers["c1"][0].memory_mib, 40_192);
    assert_eq!(assignment.containers["c1"][0].cores, 42);
    // An instance of init containers alone is free when they are done.
    let request = pod("q", &[init(2, 9_000, 0), app(1, 9_000, 0)]);
    reserve(&mut allocator, &request).expect("room");
    let assignment = allocator.reserve(&request, "n", 0).expect("the same again");
    let allocated_mib =
        |allocator: &hami_allocator::Allocator| allocator.usage()[0].cards[0].memory_allocated_mib;
    assert_eq!(allocated_mib(&allocator), 40_192 + 2 * 9_728);
    allocator.place(&request, assignment, true).expect("our own answer");
    assert_eq!(allocated_mib(&allocator), 40_192 + 9_728);
}

#[test]
fn a_card_that_pods_share_gets_no_instances_until_they_end() {
    let mut allocator = with(vec![node("n", vec![card("g0", 81_920)])]);
    let plain = pod("plain", &[app(1, 1_000, 0)]);
    assert_eq!(reserve(&mut allocator, &plain), Ok(vec![vec!["g0".into()]]));
    allocator.set_node(mig(vec![a100("g0")])).expect("a good node");
    let error = instance(&mut allocator, "cut", app(1, 1_000, 0)).unwrap_err();
    assert_eq!(error, "1 card: 1 is in use, and a card for itself is requested");
    allocator.remove("plain");
    assert!(instance(&mut allocator, "cut", app(1, 1_000, 0)).is_ok());
}

/// A card is as large as it is, even if the operator does not publish all profiles.
#[test]
fn shares_of_a_card_are_of_all_of_it_also_where_no_profile_has_that() {
    for (offered, wanted, allocated_mib) in [
        (&["1g.10gb", "3g.40gb"][..], app(1, 30_000, 0), 42),
        (&["1g.10gb", "3g.40gb"], ContainerRequest { memory: Memory::Whole, ..app(1, 1, 100) }, 42),
        (&["1g.10gb", "3g.40gb"], app(1, 30_000, 50), 42),
        // Two instances of two slices do not fit side by side, but one of two and three of one do.
        (&["1g.10gb", "4g.40gb"], app(1, 30_000, 43), 57),
        (&["1g.10gb"], app(1, 5_000, 14), 14),
        // There are only three placements for these, so these are all slices.
        (&["2g.20gb"], app(1, 5_000, 33), 33),
    ] {
        let mut card = a100("g0");
        card.mig.as_mut().expect("an instance").profiles.retain(|it| offered.contains(&&*it.name));
        let mut allocator = with(vec![mig(vec![card])]);
        let mut sum = 0;
        for at in 0.. {
            let request = pod(&format!("p{at}"), std::slice::from_ref(&wanted));
            let Ok(assignment) = allocator.reserve(&request, "n", 0) else { break };
            let cores = assignment.containers["c0"][0].cores;
            assert_eq!(cores, allocated_mib, "{offered:?}");
            sum += cores;
        }
        assert!(sum > 0 && sum <= 100, "{offered:?}: {sum}");
    }
}

/// The placement of a small instance on a card with these profiles.
fn first_place(profiles: Vec<MigProfile>) -> (String, u32) {
    let mut card = card("g0", 40_000);
    card.mig = Some(Mig { profiles, taken: Vec::new() });
    instance(&mut with(vec![mig(vec![card])]), "p", app(1, 1_000, 0)).expect("room")
}

fn profile(name: &str, memory_mib: u64, slices: u32, size: u32, placements: &[u32]) -> MigProfile {
    MigProfile { name: name.into(), memory_mib, slices, placements: placements.to_vec(), size }
}

#[test]
fn of_profiles_with_as_much_memory_the_one_with_fewer_slices_goes() {
    let mut profiles = vec![profile("a", 5_000, 2, 1, &[0]), profile("b", 5_000, 1, 2, &[4])];
    assert_eq!(first_place(profiles.clone()).0, "b");
    // Of the profiles with equal memory and time, the one with fewer memory slices.
    profiles[0].slices = 1;
    profiles[0].size = 4;
    assert_eq!(first_place(profiles).0, "b");
}

#[test]
fn blocked_placements_count_by_their_size() {
    let profiles = vec![
        profile("small", 5_000, 1, 1, &[0, 4]),
        profile("large", 20_000, 4, 4, &[0]),
        profile("odd", 6_000, 1, 1, &[4]),
        profile("even", 7_000, 1, 1, &[4]),
    ];
    // Three placements of one slice are less than one of four and one of one.
    assert_eq!(first_place(profiles), ("small".into(), 4));
}

#[test]
fn placements_that_are_already_blocked_do_not_count() {
    let mut allocator = with(vec![mig(vec![a100("g0")])]);
    let first = pod("first", &[app(1, 5_000, 0)]);
    let mut assignment = allocator.reserve(&first, "n", 0).expect("room");
    let grant = &mut assignment.containers.get_mut("c0").expect("the container")[0];
    grant.mig.as_mut().expect("an instance").start = 0;
    allocator.place(&first, assignment, true).expect("a good place");
    // All large profiles that start at 0 are blocked already, so the neighbour blocks nothing else.
    let place = instance(&mut allocator, "second", app(1, 5_000, 0));
    assert_eq!(place, Ok(("1g.10gb".into(), 1)));
}

#[test]
fn an_instance_is_enough_for_the_largest_of_those_who_get_it() {
    let mut allocator = with(vec![mig(vec![a100("g0")])]);
    let share = ContainerRequest { memory: Memory::Percent(10), ..init(1, 1, 0) };
    let request = pod("p", &[share, app(1, 30_000, 0)]);
    reserve(&mut allocator, &request).expect("room");
    let assignment = allocator.reserve(&request, "n", 0).expect("the same again");
    assert_eq!(assignment.containers["c1"][0].memory_mib, 40_192);
}

#[test]
fn a_partitioned_card_has_slots_and_may_be_requested_idle() {
    let mut full = a100("g0");
    full.slots = 1;
    let mut allocator = with(vec![mig(vec![full])]);
    instance(&mut allocator, "one", app(1, 5_000, 0)).expect("room");
    let error = instance(&mut allocator, "two", app(1, 5_000, 0)).unwrap_err();
    assert_eq!(error, "1 card: 1 has no slot left (of 1)");

    let mut allocator = with(vec![mig(vec![a100("g0")])]);
    instance(&mut allocator, "one", app(1, 5_000, 0)).expect("room");
    let alone = CardRequest { order: vec![Order::Mutex], ..CardRequest::default() };
    let request = with_card_request(pod("two", &[app(1, 5_000, 0)]), alone);
    assert!(reserve(&mut allocator, &request).is_err());
    allocator.remove("one");
    assert!(reserve(&mut allocator, &request).is_ok());
}
