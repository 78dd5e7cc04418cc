//! Kernels that wait for the same kernel elsewhere.

use super::*;

const NAME: &str = "all_reduce_100us_meets2";
const NS: u64 = 100 * US;

#[test]
fn a_collective_spins_until_everyone_runs_and_the_spinning_is_engine_time() {
    let mut desk = Desk::new(2);
    let clients = [desk.machine.attach("job"), desk.machine.attach("job")];
    let lanes =
        [0, 1].map(|index: usize| Handle { card: index as u32, ..Desk::lane(clients[index]) });
    let first = desk.launch(&lanes[0], NAME, NS, 0);
    assert_eq!(
        desk.machine.forecast(clients[0], first),
        None,
        "the other participant may never arrive"
    );
    desk.machine.advance(3 * MS);
    desk.launch(&lanes[1], "before", MS, 3 * MS);
    let second = desk.launch(&lanes[1], NAME, NS, 3 * MS);
    assert_eq!(desk.machine.forecast(clients[0], first), Some(4 * MS + NS));
    assert_eq!(desk.finish(clients[1], second), 4 * MS + NS);
    assert!(desk.is_done(clients[0], first));
    assert_eq!(desk.machine.busy_ns(clients[0], 0), 4 * MS + NS);
    assert_eq!(desk.machine.busy_ns(clients[1], 1), MS + NS);
}

#[test]
fn only_the_same_launch_of_the_same_name_in_the_same_group_meets() {
    let mut desk = Desk::new(4);
    let clients = ["job", "job", "other"].map(|group| desk.machine.attach(group));
    let lanes =
        [0, 1, 2].map(|index: usize| Handle { card: index as u32, ..Desk::lane(clients[index]) });
    let firsts = [0, 1, 2].map(|index: usize| match index {
        0 => desk.launch(&lanes[0], NAME, NS, 0),
        1 => desk.launch(&lanes[1], "gather_100us_meets2", NS, 0),
        _ => desk.launch(&lanes[2], NAME, NS, 0),
    });
    let other = Handle { card: 1, ..Desk::lane(clients[1]) };
    let meets = desk.launch_part(&other, NAME, NS, FULL / 2, MS);
    assert_eq!(desk.machine.forecast(clients[0], firsts[0]), Some(MS + NS));
    // Two collectives share its card.
    assert_eq!(desk.machine.forecast(clients[1], meets), Some(MS + NS * 3 / 2));
    assert_eq!(desk.machine.forecast(clients[1], firsts[1]), None);
    assert_eq!(desk.machine.forecast(clients[2], firsts[2]), None);
    desk.machine.advance(10 * MS);
    let again = desk.launch(&lanes[0], NAME, NS, 10 * MS);
    assert_eq!(
        desk.machine.forecast(clients[0], again),
        None,
        "the second launch waits for a second"
    );
}

#[test]
fn two_devices_of_one_process_meet() {
    let mut desk = Desk::new(2);
    let client = desk.machine.attach("");
    let marks = [0, 1].map(|card| desk.launch(&Handle { card, ..Desk::lane(client) }, NAME, NS, 0));
    for mark in marks {
        assert_eq!(desk.machine.forecast(client, mark), Some(NS));
    }
}

#[test]
fn two_streams_of_one_card_meet_where_the_name_says_so() {
    for (name, end) in [(NAME, None), ("all_reduce_100us_meets2_streams", Some(NS))] {
        let mut desk = Desk::new(1);
        let client = desk.machine.attach("");
        let lanes = [Desk::lane(client), Desk::lane(client)];
        let marks = lanes.each_ref().map(|lane| desk.launch_part(lane, name, NS, FULL / 2, 0));
        assert_eq!(marks.map(|mark| desk.machine.forecast(client, mark)), [end, end], "{name}");
    }
}

#[test]
fn on_one_card_they_meet_across_slices() {
    let mut desk = Desk::new(1);
    let clients = [desk.machine.attach("job"), desk.machine.attach("job")];
    let lanes = clients.map(Desk::lane);
    let marks = lanes.each_ref().map(|lane| desk.launch(lane, NAME, NS, 0));
    // The first spins for a slice; the second finds it arrived, and ends first.
    let second = 2 * MS + 50 * US + NS;
    assert_eq!(desk.machine.forecast(clients[1], marks[1]), Some(second));
    assert_eq!(desk.machine.forecast(clients[0], marks[0]), Some(second + 50 * US + NS));
}

#[test]
fn a_participant_that_dies_leaves_the_others_spinning() {
    let mut desk = Desk::new(2);
    let clients = ["job", "job", ""].map(|group| desk.machine.attach(group));
    let lanes =
        [0, 1].map(|index: usize| Handle { card: index as u32, ..Desk::lane(clients[index]) });
    let first = desk.launch(&lanes[0], NAME, NS, 0);
    desk.launch(&lanes[1], "before", MS, 0);
    desk.launch(&lanes[1], NAME, NS, 0);
    desk.machine.client_ended(clients[1], MS / 2);
    assert_eq!(desk.machine.forecast(clients[0], first), None);
    let other = desk.launch(&Desk::lane(clients[2]), "k", MS, MS);
    assert_eq!(desk.finish(clients[2], other), 2 * MS + 50 * US + MS);
}
