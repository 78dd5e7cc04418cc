//! Nodes with several GPUs in MIG mode, and with other cards beside them.

use crate::build::{
    allocated_mib, app, card, container, init, node, pod, quota, reserve, with, with_card_request,
};
use crate::profiles::mig_card;
use hami_allocator::Allocator;
use hami_allocator::wire::{
    Assignment, Card, CardRequest, ContainerRequest, Kind, Level, Memory, Mode, Node, Order,
    Placement, PodRequest, Sharing, Topology,
};

fn mig(cards: Vec<Card>) -> Node {
    Node { mode: Mode::Mig, ..node("n", cards) }
}

fn with_mig(models: &[&str]) -> Allocator {
    let cards = models.iter().enumerate();
    with(vec![mig(cards.map(|(at, model)| mig_card(&format!("g{at}"), model)).collect())])
}

/// Where a pod of one container and one card is: `g0 1g.5gb at 6`, or `g1 shared`.
fn place(
    allocator: &mut Allocator,
    uid: &str,
    container: ContainerRequest,
    card_request: CardRequest,
) -> Result<String, String> {
    let request = with_card_request(pod(uid, &[container]), card_request);
    reserve(allocator, &request)?;
    let assignment = allocator.reserve(&request, "n", 0).expect("the same again");
    Ok(places(&assignment).remove(0))
}

/// Where each ID of each container is.
fn places(assignment: &Assignment) -> Vec<String> {
    let of = assignment.containers.values().flatten();
    of.map(|one| match &one.mig {
        Some(instance) => format!("{} {} at {}", one.card, instance.profile, instance.start),
        None => format!("{} shared", one.card),
    })
    .collect()
}

fn any() -> CardRequest {
    CardRequest::default()
}

fn sharing(sharing: Sharing) -> CardRequest {
    CardRequest { mode: Some(sharing), ..any() }
}

fn order(order: &[Order]) -> CardRequest {
    CardRequest { order: order.to_vec(), ..any() }
}

/// Places pods one after another, and returns where they are.
fn places_of(allocator: &mut Allocator, containers: &[ContainerRequest]) -> Vec<String> {
    let pods = containers.iter().enumerate();
    pods.map(|(at, container)| {
        place(allocator, &format!("p{at}"), container.clone(), any()).expect("room")
    })
    .collect()
}

fn starts(of: &[String], prefix: &str) -> Vec<u32> {
    let start = |place: &String| {
        place.strip_prefix(prefix).expect("the profile").parse().expect("a memory slice")
    };
    let mut all: Vec<u32> = of.iter().map(start).collect();
    all.sort_unstable();
    all
}

#[test]
fn seven_of_the_smallest_profile_fill_a_card() {
    let mut allocator = with_mig(&["a100"]);
    let found = places_of(&mut allocator, &vec![app(1, 4_000, 0); 7]);
    assert_eq!(starts(&found, "g0 1g.5gb at "), [0, 1, 2, 3, 4, 5, 6]);
    let said = place(&mut allocator, "eighth", app(1, 4_000, 0), any()).unwrap_err();
    assert_eq!(said, "1 card: 1 has no free placement for 1g.5gb (beside 7 instances)");
}

#[test]
fn three_of_two_slices_leave_one_for_the_smallest() {
    let (small, double) = (app(1, 4_000, 0), app(1, 9_000, 20));
    for at in 0..4 {
        let mut asked = vec![double.clone(); 3];
        asked.insert(at, small.clone());
        let mut found = places_of(&mut with_mig(&["a100"]), &asked);
        assert_eq!(found.remove(at), "g0 1g.5gb at 6");
        assert_eq!(starts(&found, "g0 2g.10gb at "), [0, 2, 4]);
    }
}

#[test]
fn each_card_makes_the_profile_of_its_own_that_is_large_enough() {
    let mut allocator = with_mig(&["a100", "h100", "h200"]);
    for (mib, cores, found) in [
        // Only this one has half of so much.
        (60_000, 0, "g2 3g.71gb at 4"),
        (60_000, 57, "g2 4g.71gb at 0"),
        // The card is full, so it takes a whole one of the other model.
        (60_000, 0, "g1 7g.80gb at 0"),
        (9_850, 15, "g0 2g.10gb at 4"),
        (9_850, 0, "g0 1g.10gb at 6"),
        (19_000, 43, "g0 4g.20gb at 0"),
    ] {
        let uid = format!("{mib} {cores} {found}");
        assert_eq!(place(&mut allocator, &uid, app(1, mib, cores), any()).as_deref(), Ok(found));
    }
    let said = place(&mut allocator, "more", app(1, 9_000, 0), any()).unwrap_err();
    assert_eq!(
        said,
        "3 cards: 3 have no free placement for their MIG profiles (beside up to 3 instances)"
    );
    let said = place(&mut allocator, "large", app(1, 150_000, 0), any()).unwrap_err();
    assert_eq!(
        said,
        "never fits: 3 cards: 3 have no MIG profile so large (150000 MiB requested, largest 143360)"
    );
}

#[test]
fn half_of_a_card_is_an_instance_of_half_of_its_memory_slices() {
    for (model, half) in [("a100", "3g.20gb"), ("h100", "3g.40gb"), ("h200", "3g.71gb")] {
        let request = container(Kind::App, 1, Memory::Percent(50), 0);
        let of = places_of(&mut with_mig(&[model]), &[request.clone(), request]);
        assert!(of.iter().all(|place| place.contains(half)), "{of:?}");
    }
}

#[test]
fn small_instances_are_on_few_cards_unless_they_shall_be_spread() {
    for (placement, wish, on, whole) in [
        (None, any(), vec!["g0"; 7], true),
        (Some(Placement::Binpack), any(), vec!["g0"; 7], true),
        (Some(Placement::Spread), order(&[Order::Binpack]), vec!["g0"; 7], true),
        (Some(Placement::Spread), any(), vec!["g0", "g1", "g0", "g1", "g0", "g1", "g0"], false),
        (None, order(&[Order::Spread]), vec!["g0", "g1", "g0", "g1", "g0", "g1", "g0"], false),
    ] {
        let mut published = mig(vec![mig_card("g0", "h100"), mig_card("g1", "h100")]);
        published.placement = placement;
        let mut allocator = with(vec![published]);
        for (at, on) in on.iter().enumerate() {
            let found = place(&mut allocator, &format!("p{at}"), app(1, 4_000, 0), wish.clone());
            assert!(found.as_ref().is_ok_and(|it| it.starts_with(on)), "{at}: {found:?}");
        }
        let all = container(Kind::App, 1, Memory::Whole, 100);
        let found = place(&mut allocator, "whole", all, wish.clone());
        assert_eq!(found.is_ok(), whole, "{placement:?} {wish:?}: {found:?}");
    }
}

/// A fuller card is not the better one if it still can have a large instance.
#[test]
fn an_instance_takes_the_place_that_no_large_one_could_have() {
    let mut allocator = with_mig(&["a100", "a100"]);
    let on = |uuid: &str| CardRequest { uuids: vec![uuid.into()], ..any() };
    let half = place(&mut allocator, "half", app(1, 19_000, 0), on("g0"));
    assert_eq!(half.as_deref(), Ok("g0 3g.20gb at 4"));
    let small = place(&mut allocator, "small", app(1, 4_000, 0), on("g1"));
    assert_eq!(small.as_deref(), Ok("g1 1g.5gb at 6"));
    for wish in [any(), order(&[Order::Binpack])] {
        let found = place(&mut allocator, "next", app(1, 4_000, 0), wish);
        assert!(found.as_ref().is_ok_and(|it| it.starts_with("g1 1g.5gb at ")), "{found:?}");
        allocator.remove("next");
    }
}

fn half_and_half() -> Allocator {
    // The profiles alone say that it makes instances.
    let without_level = Card { level: Level::None, ..mig_card("g0", "a100") };
    with(vec![mig(vec![without_level, card("g1", 40_960), instance_card("g2")])])
}

/// An instance that an administrator has made.
fn instance_card(uuid: &str) -> Card {
    Card { level: Level::Mig, slots: 1, cores: 14, ..card(uuid, 4_864) }
}

#[test]
fn other_cards_of_a_node_of_mode_mig_are_shared() {
    let mut allocator = half_and_half();
    let found: Vec<String> = (0..3)
        .map(|at| {
            let request = sharing(Sharing::HamiCore);
            place(&mut allocator, &format!("p{at}"), app(1, 13_000, 30), request).expect("room")
        })
        .collect();
    assert_eq!(found, ["g1 shared", "g1 shared", "g1 shared"]);
    assert_eq!(allocated_mib(&allocator), [0, 39_000, 0]);
    let said = place(&mut allocator, "more", app(1, 13_000, 30), sharing(Sharing::HamiCore));
    assert_eq!(
        said.unwrap_err(),
        "3 cards: 1 has too little memory (13000 MiB requested, free 1960), \
         2 are in MIG mode, and hami-core is requested"
    );
    // Without a choice of its own the pod gets an instance.
    let found = place(&mut allocator, "any", app(1, 13_000, 30), any());
    assert_eq!(found.as_deref(), Ok("g0 3g.20gb at 4"));
}

#[test]
fn a_pod_that_requests_mig_gets_an_instance_of_either_kind() {
    let mut allocator = half_and_half();
    // The one that exists takes nothing from later ones.
    let found = place(&mut allocator, "a", app(1, 4_000, 10), sharing(Sharing::Mig));
    assert_eq!(found.as_deref(), Ok("g2 shared"));
    let found = place(&mut allocator, "b", app(1, 4_000, 10), sharing(Sharing::Mig));
    assert_eq!(found.as_deref(), Ok("g0 1g.5gb at 6"));
    let strict = CardRequest { isolation: Level::Mig, ..any() };
    let found = place(&mut allocator, "c", app(1, 4_000, 10), strict);
    assert!(found.as_ref().is_ok_and(|it| it.starts_with("g0 1g.5gb at ")), "{found:?}");
    let said = place(&mut allocator, "d", app(1, 40_000, 10), sharing(Sharing::Mig)).unwrap_err();
    assert_eq!(
        said,
        "3 cards: 1 has no free placement for 7g.40gb (beside 2 instances), \
         1 is too small (40000 MiB requested, total 4864), 1 is not in MIG mode"
    );
    // In a full mode of the node, too.
    let mut published = node("n", vec![mig_card("g0", "a100"), card("g1", 40_960)]);
    for mode in [Mode::Full, Mode::Memory, Mode::Share, Mode::Topology, Mode::Mps] {
        published.mode = mode;
        let mut allocator = with(vec![published.clone()]);
        let found = place(&mut allocator, "a", app(1, 4_000, 10), sharing(Sharing::Mig));
        assert_eq!(found.as_deref(), Ok("g0 1g.5gb at 6"), "{mode}");
    }
}

#[test]
fn memory_slices_of_others_are_not_free() {
    let mut published = mig(vec![mig_card("g0", "h200")]);
    let taken = |published: &mut Node, slices: &[u32]| {
        published.cards[0].mig.as_mut().expect("profiles").taken = slices.to_vec();
        published.clone()
    };
    let mut allocator = with(vec![taken(&mut published, &[4, 5])]);
    let found = place(&mut allocator, "a", app(1, 60_000, 0), any());
    assert_eq!(found.as_deref(), Ok("g0 3g.71gb at 0"));
    let said = place(&mut allocator, "b", app(1, 30_000, 20), any()).unwrap_err();
    assert_eq!(
        said,
        "1 card: 1 has no free placement for 2g.35gb (beside 1 instance, and 2 memory slices of others)"
    );
    let found = place(&mut allocator, "b", app(1, 30_000, 0), any());
    assert_eq!(found.as_deref(), Ok("g0 1g.35gb at 6"));
    // No eviction makes room, but the others may end.
    let whole = pod("whole", &[container(Kind::App, 1, Memory::Whole, 100)]);
    let filtered = allocator.filter(&whole, &["n"], 0).expect("a good request");
    assert_eq!(&*filtered.unresolvable[0].1, "no free placement for the MIG profile");
    let two = pod("two", &[app(1, 60_000, 0), app(1, 60_000, 0)]);
    let filtered = allocator.filter(&two, &["n"], 0).expect("a good request");
    assert_eq!(&*filtered.unresolvable[0].1, "no free placement for the MIG profile");
    allocator.remove("a");
    allocator.remove("b");
    let filtered = allocator.filter(&two, &["n"], 0).expect("a good request");
    let said = "cards fit each container, but not all containers together";
    assert_eq!(&*filtered.unresolvable[0].1, said);
    allocator.set_node(taken(&mut published, &[])).expect("a good node");
    assert!(reserve(&mut allocator, &two).is_ok());
}

#[test]
fn memory_slices_beyond_the_mask_are_rejected() {
    for (taken, fix) in [(vec![64], "write 0 to 63"), (vec![0; 65], "write at most 64")] {
        let mut published = mig(vec![mig_card("g0", "h200")]);
        published.cards[0].mig.as_mut().expect("profiles").taken = taken;
        let error = Allocator::new().set_node(published).unwrap_err();
        assert_eq!((&*error.field, &*error.fix), ("node.cards[0].mig.taken", fix));
    }
}

/// The usage is the same when the pods are read again.
fn placed_again(allocator: &mut Allocator, request: &PodRequest) -> Vec<u64> {
    let assignment = allocator.reserve(request, "n", 0).expect("room");
    let before = allocated_mib(allocator);
    allocator.place(request, assignment, false).expect("our own answer");
    assert_eq!(allocated_mib(allocator), before, "{request:?}");
    before
}

#[test]
fn init_containers_leave_instances_and_parts_of_cards_to_the_apps() {
    let cards = || vec![mig_card("g0", "a100"), card("g1", 1_000)];
    // The kubelet may give each of the two to either app.
    let both = [init(2, 300, 0), app(1, 500, 0), app(1, 400, 0)];
    assert_eq!(placed_again(&mut with(vec![mig(cards())]), &pod("p", &both)), [4_864, 500]);
    // Two instances and a part of the card, of which an app takes all and another one no more.
    let three = [init(3, 300, 0), app(2, 400, 0), app(1, 700, 0)];
    assert_eq!(placed_again(&mut with(vec![mig(cards())]), &pod("p", &three)), [9_728, 700]);
    // An instance that is left, and a new one beside it.
    let more = [init(1, 30_000, 0), app(2, 4_000, 0)];
    let mut allocator = with(vec![mig(vec![mig_card("g0", "a100")])]);
    let said = reserve(&mut allocator, &pod("p", &more)).unwrap_err();
    assert_eq!(said, "cards fit each container, but not all containers together");
    let more = [init(1, 19_000, 0), app(2, 4_000, 0)];
    assert_eq!(placed_again(&mut allocator, &pod("p", &more)), [19_968 + 4_864]);
}

#[test]
fn a_container_takes_cards_of_both_kinds_where_one_has_too_few() {
    let mut allocator = with(vec![mig(vec![mig_card("g0", "a100"), card("g1", 40_960)])]);
    let request = pod("p", &[app(4, 4_000, 0)]);
    let assignment = allocator.reserve(&request, "n", 0).expect("room");
    let mut found = places(&assignment);
    assert_eq!(found.remove(0), "g1 shared");
    assert_eq!(starts(&found, "g0 1g.5gb at ").len(), 3);
    assert_eq!(allocated_mib(&allocator), [3 * 4_864, 4_000]);
    let of = |cards, mib| pod("q", &[app(cards, mib, 0)]);
    // One card shares, and the other one is too small for the request.
    let said = reserve(&mut allocator, &of(2, 40_500)).unwrap_err();
    assert_eq!(
        said,
        "never fits: 2 cards: 1 has too little memory (40500 MiB requested, free 36960), \
         1 has no MIG profile so large (40500 MiB requested, largest 40192)"
    );
    let said = reserve(&mut allocator, &of(6, 4_000)).unwrap_err();
    assert_eq!(said, "cards fit each container, but not all containers together");
}

#[test]
fn links_count_between_cards_without_mig() {
    let mut cards = vec![mig_card("g0", "a100"), card("g1", 40_960), card("g2", 40_960)];
    cards.push(card("g3", 40_960));
    for (one, other) in [(0, 1), (0, 2), (0, 3), (2, 3)] {
        let uuid = cards[other].uuid.clone();
        cards[one].links.insert(uuid, if one == 0 { 900 } else { 100 });
    }
    for topology in [Topology::BestEffort, Topology::Strict] {
        let wish = || CardRequest { topology, ..any() };
        let of = |uid: &str, cards| with_card_request(pod(uid, &[app(cards, 30_000, 0)]), wish());
        let mut allocator = with(vec![mig(cards.clone())]);
        let found = allocator.reserve(&of("two", 2), "n", 0).expect("room");
        assert_eq!(places(&found), ["g2 shared", "g3 shared"], "{topology:?}");
        // With one card left, an instance is all there is, and it has no links.
        let found = allocator.reserve(&of("more", 2), "n", 0);
        match topology {
            Topology::Strict => assert!(found.is_err()),
            _ => assert_eq!(places(&found.expect("room")), ["g1 shared", "g0 7g.40gb at 0"]),
        }
    }
}

#[test]
fn a_quota_counts_the_requested_memory_of_an_instance() {
    let mut allocator = half_and_half();
    allocator.set_quota(quota("q", None, Some(3_000), None)).expect("a good quota");
    let used = |allocator: &Allocator| allocator.namespaces()[0].memory_mib;
    for (at, on) in ["g2 shared", "g0 1g.5gb at 6", "g0 1g.5gb at 4"].iter().enumerate() {
        let request =
            with_card_request(pod(&format!("p{at}"), &[app(1, 1_000, 10)]), sharing(Sharing::Mig));
        let assignment = allocator.reserve(&request, "n", 0).expect("room");
        assert_eq!(places(&assignment), [*on]);
        assert_eq!(assignment.containers["c0"][0].memory_mib, 4_864);
        assert_eq!(used(&allocator), 1_000 * (at as u64 + 1));
        // After a restart the request is read from the pod.
        allocator.place(&request, assignment, true).expect("our own answer");
        assert_eq!(used(&allocator), 1_000 * (at as u64 + 1));
    }
    let said = place(&mut allocator, "more", app(1, 1, 0), sharing(Sharing::Mig)).unwrap_err();
    assert_eq!(said, "quota q of namespace team allows 3000 MiB: 3000 in use, 1 requested");
}

#[test]
fn a_quota_counts_a_share_of_a_card_as_the_instance() {
    let half = pod("p", &[container(Kind::App, 1, Memory::Percent(48), 0)]);
    for (allowed, fits) in [(19_967, 0), (19_968, 1)] {
        let mut allocator = with_mig(&["a100"]);
        allocator.set_quota(quota("q", None, Some(allowed), None)).expect("a good quota");
        let filtered = allocator.filter(&half, &["n"], 0).expect("a good request");
        assert_eq!(filtered.feasible.len(), fits);
        assert_eq!(reserve(&mut allocator, &half).is_ok(), fits == 1);
    }
}
