//! Charges, refusals and releases, by kind.

use super::*;
use crate::profile;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

fn ledger() -> Ledger {
    Ledger::new(&profile::cards("t4,t4").expect("cards"))
}

#[test]
fn a_card_grants_its_last_byte_and_not_one_more() {
    let mut ledger = ledger();
    let capacity = ledger.cards[0].capacity;
    let client = ledger.attach(1, "");
    ledger.charge(client, 0, Kind::Context, 100).expect("context");
    ledger.charge(client, 0, Kind::Requested, capacity - 101).expect("nearly all");
    assert_eq!(ledger.charge(client, 0, Kind::Requested, 2), Err(Refusal::OutOfMemory));
    assert_eq!(ledger.charge(client, 0, Kind::Requested, u64::MAX), Err(Refusal::OutOfMemory));
    ledger.charge(client, 0, Kind::Requested, 1).expect("the last byte");
    assert_eq!((ledger.used(0), ledger.used(1)), (capacity, 0));
    assert_eq!(ledger.cards[0].refused, 2);
}

#[test]
fn peaks_are_kept_by_card_client_and_group() {
    let mut ledger = ledger();
    let (first, second) = (ledger.attach(1, "a"), ledger.attach(2, "a"));
    let other = ledger.attach(3, "b");
    ledger.charge(first, 0, Kind::Requested, 10).expect("10");
    ledger.charge(second, 0, Kind::Requested, 5).expect("5");
    ledger.release(first, 0, Kind::Requested, 10).expect("held");
    ledger.charge(second, 0, Kind::Requested, 1).expect("1");
    ledger.release(second, 0, Kind::Requested, 1).expect("held");
    ledger.charge(other, 0, Kind::Requested, 12).expect("12");
    let requested = |holding: &Holding| (holding.requested.now, holding.requested.peak);
    assert_eq!(requested(&ledger.cards[0].all), (17, 17));
    assert_eq!(requested(&ledger.groups[0].holdings[0]), (5, 15));
    assert_eq!(requested(&ledger.clients[first.0].holdings[0]), (0, 10));
    assert_eq!(ledger.release(second, 0, Kind::Requested, 6), Err(NotHeld));
    assert_eq!(ledger.release(second, 1, Kind::Requested, 0), Err(NotHeld));
    assert_eq!(ledger.release(first, 0, Kind::Context, 1), Err(NotHeld));
    ledger.reset_peaks();
    assert_eq!(requested(&ledger.groups[0].holdings[0]), (5, 5));
}

#[test]
fn the_bytes_of_an_ended_client_are_held_until_they_are_freed() {
    let mut ledger = ledger();
    let client = ledger.attach(1, "");
    ledger.charge(client, 1, Kind::Context, 7).expect("7");
    ledger.charge(client, 1, Kind::Requested, 8).expect("8");
    ledger.charge(client, 1, Kind::Requested, 9).expect("9");
    ledger.detach(client);
    assert_eq!(ledger.used(1), 24);
    ledger.free_all(client);
    assert_eq!(ledger.used(1), 0);
    assert_eq!(ledger.cards[1].all.allocations, 0);
    assert_eq!(ledger.clients[client.0].state, State::Freed);
}

#[test]
fn planned_refusals_count_requests_and_strike_once() {
    let mut ledger = ledger();
    let client = ledger.attach(1, "");
    ledger.refuse_nth(0, 2);
    let mut charge = |kind| ledger.charge(client, 0, kind, 1).is_ok();
    assert!(charge(Kind::Requested) && charge(Kind::Context));
    assert!(!charge(Kind::Requested));
    assert!(charge(Kind::Requested));
}

#[test]
fn managed_memory_is_requested_and_takes_no_room() {
    let mut ledger = ledger();
    let capacity = ledger.cards[0].capacity;
    let client = ledger.attach(1, "");
    ledger.charge(client, 0, Kind::Managed, 3 * capacity).expect("more than the card has");
    ledger.charge(client, 0, Kind::Requested, capacity).expect("all of the card");
    let all = ledger.cards[0].all;
    assert_eq!((all.requested.now, all.managed), (4 * capacity, 3 * capacity));
    assert_eq!((all.held.peak, ledger.used(0)), (4 * capacity, capacity));
    assert_eq!(ledger.charge(client, 0, Kind::Managed, u64::MAX), Err(Refusal::OutOfMemory));
    assert_eq!(ledger.release(client, 0, Kind::Requested, capacity + 1), Err(NotHeld));
    ledger.release(client, 0, Kind::Managed, 3 * capacity).expect("held");
    assert_eq!((ledger.cards[0].all.held.now, ledger.cards[0].all.managed), (capacity, 0));
}

#[test]
fn a_pools_room_is_cached_until_it_is_asked_for() {
    let mut ledger = ledger();
    let client = ledger.attach(1, "");
    let levels = |ledger: &Ledger| {
        let Holding { requested, cached, held, .. } = ledger.groups[0].holdings[0];
        [requested, cached, held].map(|level| (level.now, level.peak))
    };
    assert_eq!(ledger.charge_pool(client, 0, [100, 10], 7), Ok(Some(100)));
    assert_eq!(levels(&ledger), [(7, 7), (93, 93), (100, 100)]);
    assert_eq!(ledger.charge_pool(client, 0, [0, 0], 93), Ok(Some(0)));
    assert_eq!(levels(&ledger), [(100, 100), (0, 93), (100, 100)]);
    assert_eq!(ledger.charge_pool(client, 0, [0, 0], 1), Err(NotHeld), "nothing is left");
    ledger.release_pool(client, 0, 93, 0).expect("live");
    assert_eq!(ledger.release_pool(client, 0, 0, 94), Err(NotHeld));
    ledger.release_pool(client, 0, 7, 100).expect("live, and all of the room");
    assert_eq!(levels(&ledger), [(0, 100), (0, 93), (0, 100)]);
}

#[test]
fn a_pool_takes_the_smaller_room_when_the_larger_does_not_fit() {
    let mut ledger = ledger();
    let capacity = ledger.cards[0].capacity;
    let client = ledger.attach(1, "");
    ledger.charge(client, 0, Kind::Requested, capacity - 50).expect("nearly all");
    assert_eq!(ledger.charge_pool(client, 0, [100, 50], 7), Ok(Some(50)));
    assert_eq!(ledger.charge_pool(client, 0, [100, 50], 44), Ok(None));
    assert_eq!(ledger.cards[0].refused, 1, "one request, one refusal");
    ledger.refuse_nth(0, 1);
    assert_eq!(ledger.charge_pool(client, 0, [0, 0], 1), Ok(None), "a planned fault");
    assert_eq!(ledger.charge_pool(client, 0, [0, 0], 43), Ok(Some(0)));
}

/// On a card that rounds up to 2 MiB, above 1 MiB.
#[test]
fn rounding_is_in_use_and_not_requested() {
    const MIB: u64 = 1 << 20;
    let mut ledger = Ledger::new(&profile::cards("h200-coarse").expect("cards"));
    let capacity = ledger.cards[0].capacity;
    let client = ledger.attach(1, "");
    let sizes = [MIB, MIB + 1, 2 * MIB, 3 * MIB];
    for bytes in sizes {
        ledger.charge(client, 0, Kind::Requested, bytes).expect("room");
    }
    let Holding { requested, held, rounding, occupied, .. } = ledger.groups[0].holdings[0];
    let sum: u64 = sizes.iter().sum();
    let beyond = 2 * MIB - 1;
    assert_eq!((requested.now, held.now, rounding.now), (sum, sum, beyond));
    assert_eq!((ledger.used(0), occupied.now), (sum + beyond, sum + beyond));
    for bytes in sizes {
        ledger.release(client, 0, Kind::Requested, bytes).expect("held");
    }
    assert_eq!((ledger.used(0), ledger.cards[0].all.rounding.now), (0, 0));
    // What is left is less than the rounded size, and more than the requested one.
    ledger.charge(client, 0, Kind::Context, capacity - 3 * MIB).expect("nearly all");
    assert_eq!(ledger.charge(client, 0, Kind::Requested, 2 * MIB + 1), Err(Refusal::OutOfMemory));
    assert_eq!(ledger.charge(client, 0, Kind::Requested, u64::MAX), Err(Refusal::OutOfMemory));
    ledger.charge(client, 0, Kind::Requested, 2 * MIB).expect("room");
    assert_eq!(ledger.charge_pool(client, 0, [MIB, MIB], MIB), Ok(Some(MIB)), "pools are exact");
    assert_eq!(ledger.used(0), capacity);
}

#[test]
fn the_driver_takes_memory_for_modules_and_limits() {
    let mut ledger = ledger();
    let client = ledger.attach(1, "");
    ledger.refuse_nth(0, 1);
    for (kind, bytes) in [(Kind::Context, 1), (Kind::Module, 10), (Kind::Local, 100)] {
        ledger.charge(client, 0, kind, bytes).expect("no request of the program");
    }
    let Holding { requested, modules, local, occupied, .. } = ledger.clients[client.0].holdings[0];
    assert_eq!((requested.now, modules.now, local.now, occupied.now), (0, 10, 100, 111));
    assert_eq!(ledger.used(0), 111);
    assert_eq!(ledger.release(client, 0, Kind::Module, 11), Err(NotHeld));
    assert_eq!(ledger.release(client, 0, Kind::Local, 101), Err(NotHeld));
    ledger.release(client, 0, Kind::Local, 60).expect("held");
    let left = ledger.cards[0].left();
    assert_eq!(ledger.charge(client, 0, Kind::Module, left + 1), Err(Refusal::OutOfMemory));
    ledger.free_all(client);
    assert_eq!(ledger.used(0), 0);
}

#[test]
fn a_shared_allocation_is_counted_once_and_moves_to_its_next_holder() {
    let mut ledger = ledger();
    let clients = [ledger.attach(1, "a"), ledger.attach(2, "a"), ledger.attach(3, "b")];
    let [first, second, third] = clients;
    let object = [77, 0];
    assert_eq!(ledger.hold(second, 0, object, 0), Err(Refusal::Unknown));
    ledger.hold(first, 0, object, 100).expect("room");
    ledger.hold(second, 0, object, 100).expect("it exists");
    ledger.hold(third, 0, object, 0).expect("it exists");
    ledger.hold(third, 0, object, 0).expect("twice");
    let held = |ledger: &Ledger| {
        clients.map(|client| {
            let held = &ledger.clients[client.0].holdings[0];
            (held.requested.now, held.allocations)
        })
    };
    assert_eq!(held(&ledger), [(100, 1), (0, 0), (0, 0)]);
    ledger.drop_hold(first, object).expect("held");
    assert_eq!(ledger.drop_hold(first, object), Err(NotHeld));
    assert_eq!(held(&ledger), [(0, 0), (100, 1), (0, 0)]);
    assert_eq!(ledger.groups[0].holdings[0].requested, Level { now: 100, peak: 100 });
    ledger.detach(second);
    ledger.free_all(second);
    assert_eq!(held(&ledger), [(0, 0), (0, 0), (100, 1)]);
    assert_eq!(ledger.cards[0].all.requested, Level { now: 100, peak: 100 });
    ledger.drop_hold(third, object).expect("held");
    assert_eq!(ledger.used(0), 100, "it is held twice");
    ledger.free_all(third);
    assert_eq!((ledger.used(0), ledger.shared.len()), (0, 0));
}

#[test]
fn open_descriptors_keep_memory_for_its_exporter_while_it_lives() {
    let mut ledger = ledger();
    let clients = [ledger.attach(1, "a"), ledger.attach(2, "b")];
    let [exporter, importer] = clients;
    let is_open = Arc::new(AtomicBool::new(true));
    let probe = || {
        let is_open = Arc::clone(&is_open);
        Probe::new(move || is_open.load(Relaxed))
    };
    let held =
        |ledger: &Ledger| clients.map(|client| ledger.clients[client.0].holdings[0].requested.now);
    let object = [77, 0];
    assert_eq!(ledger.export(exporter, object, probe()), Err(NotHeld));
    ledger.hold(exporter, 0, object, 100).expect("room");
    assert_eq!(ledger.export(importer, object, probe()), Err(NotHeld));
    ledger.export(exporter, object, probe()).expect("held");
    ledger.drop_hold(exporter, object).expect("held");
    assert_eq!((held(&ledger), ledger.settle()), ([100, 0], false));
    ledger.hold(importer, 0, object, 0).expect("it exists");
    assert_eq!(held(&ledger), [0, 100]);
    ledger.drop_hold(importer, object).expect("held");
    assert_eq!(held(&ledger), [100, 0]);
    is_open.store(false, Relaxed);
    assert!(ledger.settle());
    assert_eq!((held(&ledger), ledger.shared.len()), ([0, 0], 0));
    assert_eq!(ledger.cards[0].all.requested, Level { now: 0, peak: 100 });

    is_open.store(true, Relaxed);
    for object in [[78, 0], [79, 0]] {
        ledger.hold(exporter, 0, object, 100).expect("room");
        ledger.export(exporter, object, probe()).expect("held");
    }
    ledger.hold(importer, 0, [78, 0], 0).expect("it exists");
    ledger.drop_hold(exporter, [79, 0]).expect("held");
    ledger.free_all(exporter);
    assert_eq!((held(&ledger), ledger.used(0), ledger.kept.len()), ([0, 100], 100, 0));
    ledger.drop_hold(importer, [78, 0]).expect("held");
    assert_eq!((ledger.used(0), ledger.shared.len()), (0, 0));
}

#[test]
fn charged_bytes_can_become_a_shared_allocation() {
    let mut ledger = ledger();
    let (owner, other) = (ledger.attach(1, ""), ledger.attach(2, ""));
    assert_eq!(ledger.share(owner, 0, [5, 512], 10), Err(NotHeld));
    ledger.charge(owner, 0, Kind::Requested, 10).expect("room");
    ledger.share(owner, 0, [5, 512], 10).expect("held");
    ledger.hold(other, 0, [5, 512], 0).expect("it exists");
    ledger.free_all(owner);
    assert_eq!(ledger.clients[other.0].holdings[0].requested, Level { now: 10, peak: 10 });
    ledger.drop_hold(other, [5, 512]).expect("held");
    assert_eq!(ledger.used(0), 0);
}

#[test]
fn a_graphs_launch_moves_cached_bytes_and_leaves_exact_peaks() {
    let mut ledger = ledger();
    let client = ledger.attach(1, "");
    let levels = |ledger: &Ledger| {
        let Holding { requested, cached, held, graphs, .. } = ledger.groups[0].holdings[0];
        [requested, cached, held, graphs].map(|level| (level.now, level.peak))
    };
    ledger.charge(client, 0, Kind::Graphs, 100).expect("room");
    assert_eq!(levels(&ledger), [(0, 0), (100, 100), (100, 100), (100, 100)]);
    let mut walk = Walk::default();
    walk.allocate(60);
    walk.allocate(30);
    walk.free(60);
    ledger.walk_graph(client, 0, &walk).expect("reserved");
    assert_eq!(levels(&ledger), [(30, 90), (70, 100), (100, 100), (100, 100)]);
    assert_eq!(ledger.cards[0].all.allocations, 1);
    assert_eq!(ledger.release(client, 0, Kind::Graphs, 71), Err(NotHeld));
    assert_eq!(ledger.walk_graph(client, 0, &Walk { rise: 71, ..walk }), Err(NotHeld));
    let mut walk = Walk::default();
    walk.free(30);
    ledger.walk_graph(client, 0, &walk).expect("live");
    assert_eq!(ledger.walk_graph(client, 0, &walk), Err(NotHeld));
    ledger.release(client, 0, Kind::Graphs, 100).expect("all of it");
    assert_eq!(levels(&ledger), [(0, 90), (0, 100), (0, 100), (0, 100)]);
}
