//! Several processes on one card.

use super::*;

/// The engine time of two clients that always have work, after `ns`.
fn saturated(kernels: [u64; 2], slicing: Slicing, ns: u64) -> [u64; 2] {
    let mut desk = Desk::new(1);
    desk.machine.set_slicing(slicing, 0);
    let clients = [desk.machine.attach("a"), desk.machine.attach("b")];
    for (client, kernel) in clients.into_iter().zip(kernels) {
        let lane = Desk::lane(client);
        for _ in 0..=ns / kernel {
            desk.launch(&lane, "k", kernel, 0);
        }
    }
    desk.machine.advance(ns);
    clients.map(|client| desk.busy(client))
}

#[test]
fn two_clients_get_equal_slices_and_switches_are_billed_to_neither() {
    // A slice and a switch are 2.05 ms: in 410 ms there are 100 of each client.
    let expected = [100 * 2 * MS; 2];
    for kernels in [[20 * US, 20 * US], [5 * MS, 5 * MS], [20 * US, 50 * MS], [300 * US, 7 * MS]] {
        assert_eq!(saturated(kernels, Slicing::default(), 410 * MS), expected, "{kernels:?}");
    }
    let free = Slicing { slice_ns: MS, switch_ns: 0 };
    assert_eq!(saturated([100 * US; 2], free, 100 * MS), [50 * MS; 2]);
}

#[test]
fn a_client_that_has_nothing_to_run_gives_its_slice_up() {
    let mut desk = Desk::new(1);
    let clients = [desk.machine.attach(""), desk.machine.attach("")];
    let lanes = clients.map(Desk::lane);
    desk.launch(&lanes[0], "k", 100 * MS, 0);
    let short = desk.launch(&lanes[1], "k", 100 * US, 500 * US);
    // The first one's slice ends at 2 ms; after 0.1 ms it goes on, with a switch each way.
    assert_eq!(desk.finish(clients[1], short), 2 * MS + 150 * US);
    desk.machine.advance(10 * MS);
    assert_eq!(desk.busy(clients[0]), 10 * MS - 200 * US);
    assert_eq!(desk.busy(clients[1]), 100 * US);
}

#[test]
fn alone_there_are_no_slices_and_coming_back_needs_no_switch() {
    let mut desk = Desk::new(1);
    let client = desk.machine.attach("");
    let lane = Desk::lane(client);
    desk.launch(&lane, "k", 7 * MS, 0);
    let again = desk.launch(&lane, "k", MS, 20 * MS);
    assert_eq!(desk.finish(client, again), 21 * MS);
    let other = desk.machine.attach("");
    let first = desk.launch(&Desk::lane(other), "k", MS, 30 * MS);
    assert_eq!(desk.finish(other, first), 31 * MS + 50 * US, "from an idle context, too");
}

#[test]
fn an_event_waits_for_its_contexts_turn_but_not_behind_a_copy() {
    let mut desk = Desk::new(1);
    let clients = [desk.machine.attach(""), desk.machine.attach("")];
    let lanes = [0, 1, 1].map(|index: usize| Desk::lane(clients[index]));
    desk.launch(&lanes[0], "k", 100 * MS, 0);
    desk.submit(&lanes[2], Work::Copy { direction: Direction::ToHost, ns: 100 * US }, MS);
    let copied = desk.record(&lanes[2], 1, MS);
    let begin = desk.record(&lanes[1], 2, MS);
    desk.launch(&lanes[1], "k", 3 * MS, MS);
    let end = desk.record(&lanes[1], 3, MS);
    desk.machine.advance(50 * MS);
    assert_eq!(desk.reached(clients[1], 1, copied), MS + 100 * US);
    assert_eq!(desk.reached(clients[1], 2, begin), 2 * MS + 50 * US);
    // A slice of 2 ms, the other's slice and two switches, and 1 ms more.
    assert_eq!(desk.reached(clients[1], 3, end), 2 * MS + 50 * US + 3 * MS + 2100 * US);
}

#[test]
fn contexts_of_one_process_take_turns_too_and_cards_are_apart() {
    let mut desk = Desk::new(2);
    let client = desk.machine.attach("");
    let lanes = [(1, 0), (2, 0), (1, 1)].map(|(context, card)| Handle {
        context,
        card,
        ..Desk::lane(client)
    });
    let marks = lanes.each_ref().map(|lane| desk.launch(lane, "k", 4 * MS, 0));
    let ends = marks.map(|mark| desk.machine.forecast(client, mark).expect("an end"));
    assert_eq!(ends, [6 * MS + 100 * US, 8 * MS + 150 * US, 4 * MS]);
    desk.machine.advance(20 * MS);
    assert_eq!([0, 1].map(|card| desk.machine.busy_ns(client, card)), [8 * MS, 4 * MS]);
}

#[test]
fn the_work_of_an_ended_client_is_removed() {
    for at in [0, 1, 500 * US, 2 * MS, 2 * MS + 20 * US, 3 * MS, 4 * MS + 70 * US] {
        let mut desk = Desk::new(1);
        let clients = [desk.machine.attach(""), desk.machine.attach("")];
        let lanes = clients.map(Desk::lane);
        let other = Desk::lane(clients[0]);
        let copy = Work::Copy { direction: Direction::ToDevice, ns: 50 * MS };
        desk.submit(&other, copy, 0);
        let waiting = Desk::lane(clients[0]);
        let lost = desk.launch(&lanes[0], "k", 100 * MS, 0);
        desk.submit(&waiting, Work::Wait(lost), 0);
        desk.launch(&waiting, "k", MS, 0);
        let copied = desk.submit(&Desk::lane(clients[1]), copy, 0);
        let kept = desk.launch(&lanes[1], "k", 10 * MS, 0);
        desk.machine.client_ended(clients[0], at);
        let before = clients.map(|client| desk.busy(client));
        assert!(before[0] + before[1] <= at);
        let left = 10 * MS - before[1];
        let end = desk.finish(clients[1], kept);
        assert!((at + left..=at + left + 50 * US).contains(&end), "ended at {at}: {end}");
        assert_eq!(desk.finish(clients[1], copied), at + 50 * MS);
        desk.machine.advance(200 * MS);
        assert_eq!(clients.map(|client| desk.busy(client)), [before[0], 10 * MS]);
        assert!(desk.is_done(clients[0], lost), "no client waits for it");
        // The next client uses its slot again.
        let next = desk.machine.attach("");
        let mark = desk.launch(&Desk::lane(next), "k", MS, 300 * MS);
        desk.finish(next, mark);
    }
}

/// A fixed mixture of clients, lanes, kernels, copies, waits and deaths; everything there is to
/// see.
fn mixture(step: u64) -> Vec<u64> {
    let mut desk = Desk::new(2);
    let mut random: u64 = 7;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };
    let clients: Vec<_> = (0..4).map(|_| desk.machine.attach("")).collect();
    let lanes: Vec<_> = (0..24)
        .map(|index| Handle {
            context: index % 3,
            card: index % 2,
            ..Desk::lane(clients[index as usize % 4])
        })
        .collect();
    let mut marks = vec![Mark::NONE; clients.len()];
    let (mut at, mut looked) = (0, 0);
    for _ in 0..2000 {
        let lane = &lanes[next(24) as usize];
        at += next(100 * US);
        while looked + step < at {
            looked += step;
            desk.machine.advance(looked);
        }
        if lane.client == 3 && at > 50 * MS {
            continue;
        }
        let demand = 1 + next(u64::from(FULL)) as u32;
        let mark = match next(6) {
            0 => desk.submit(lane, Work::Wait(marks[lane.client]), at),
            1 => desk.submit(lane, Work::Copy { direction: Direction::ToHost, ns: next(MS) }, at),
            2 => desk.record(lane, next(8) as u32, at),
            _ => desk.launch_part(lane, ["a", "b", "c"][next(3) as usize], next(MS), demand, at),
        };
        marks[lane.client] = mark;
        if lane.client == 3 && next(20) == 0 {
            desk.machine.client_ended(3, 50 * MS);
        }
    }
    desk.machine.client_ended(3, at);
    desk.machine.advance(at + 5000 * MS);
    let mut seen = Vec::new();
    for client in clients {
        for card in 0..2 {
            seen.push(desk.machine.busy_ns(client, card));
            seen.extend(desk.machine.history(client, card).flat_map(|(start, ns)| [start, ns]));
            seen.extend(desk.machine.by_kernel(client, card).map(|(_, used)| used.busy_ns));
        }
        assert!(client == 3 || desk.is_done(client, marks[client]));
    }
    seen
}

#[test]
fn the_same_work_takes_the_same_course_however_often_it_is_looked_at() {
    let first = mixture(MS);
    assert_eq!(first, mixture(MS));
    assert_eq!(first, mixture(10 * US));
    assert_eq!(first, mixture(u64::MAX / 2));
}
