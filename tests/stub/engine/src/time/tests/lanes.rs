//! One process: lanes in order, side by side, waiting for each other; copies; what is billed.

use super::*;

#[test]
fn a_lane_runs_in_order_and_never_starts_in_the_past() {
    let mut desk = Desk::new(1);
    let client = desk.machine.attach("");
    let lane = Desk::lane(client);
    desk.launch(&lane, "a", 50, 100);
    let second = desk.launch(&lane, "a", 50, 120);
    assert_eq!(desk.machine.forecast(client, second), Some(200), "behind the first");
    desk.machine.advance(1000);
    let third = desk.launch(&lane, "a", 1, 500);
    assert_eq!(desk.finish(client, third), 1001, "what comes late counts from now");
    assert_eq!(desk.busy(client), 101);
    assert_eq!(desk.status(client, third, None).lane_done, 3);
}

#[test]
fn kernels_that_fit_overlap_and_count_once() {
    let mut desk = Desk::new(1);
    let client = desk.machine.attach("");
    let (first, second) = (Desk::lane(client), Desk::lane(client));
    let long = desk.launch_part(&first, "half", 10 * MS, FULL / 2, 0);
    let short = desk.launch_part(&second, "half", 4 * MS, FULL / 2, 0);
    assert_eq!((desk.finish(client, short), desk.finish(client, long)), (4 * MS, 10 * MS));
    assert_eq!(desk.busy(client), 10 * MS);
    let used: Vec<_> = desk.machine.by_kernel(client, 0).collect();
    assert_eq!(used, [("half", KernelUse { launched: 2, busy_ns: 10 * MS })]);
}

#[test]
fn kernels_that_do_not_fit_share_and_end_later() {
    let mut desk = Desk::new(1);
    let client = desk.machine.attach("");
    let (first, second) = (Desk::lane(client), Desk::lane(client));
    let long = desk.launch(&first, "long", 10 * MS, 0);
    let short = desk.launch_part(&second, "short", 4 * MS, FULL / 2, 0);
    // They demand one and a half cards: each goes on at two thirds of its speed.
    assert_eq!(desk.finish(client, short), 6 * MS);
    assert_eq!(desk.finish(client, long), 12 * MS);
    assert_eq!(desk.busy(client), 12 * MS);
}

#[test]
fn three_kernels_at_a_third_lose_no_nanosecond() {
    let mut desk = Desk::new(1);
    let client = desk.machine.attach("");
    let lanes = [(); 3].map(|()| Desk::lane(client));
    let marks = lanes.each_ref().map(|lane| desk.launch(lane, "k", 1001, 0));
    // Looked at every few nanoseconds, so that no rounding of a piece can add up.
    for at in (0..3003).step_by(7) {
        desk.machine.advance(at);
    }
    for mark in marks {
        assert_eq!(desk.machine.forecast(client, mark), Some(3003));
    }
}

#[test]
fn a_lane_waits_for_a_mark_and_ignores_a_removed_one() {
    let mut desk = Desk::new(2);
    let client = desk.machine.attach("");
    let (first, second) = (Desk::lane(client), Handle { card: 1, ..Desk::lane(client) });
    let slow = desk.launch(&first, "slow", 5 * MS, 0);
    desk.submit(&second, Work::Wait(slow), 0);
    let behind = desk.launch(&second, "k", MS, 0);
    assert_eq!(desk.finish(client, behind), 6 * MS, "on another card");
    assert_eq!(desk.machine.busy_ns(client, 1), MS);
    desk.submit(&first, Work::End, 6 * MS);
    desk.submit(&second, Work::Wait(slow), 6 * MS);
    desk.submit(&second, Work::Wait(Mark::new(77, 9)), 6 * MS);
    let last = desk.launch(&second, "k", MS, 6 * MS);
    assert_eq!(desk.finish(client, last), 7 * MS);
}

#[test]
fn copies_run_beside_kernels_and_each_way_beside_the_other() {
    let mut desk = Desk::new(1);
    let client = desk.machine.attach("");
    let lanes = [(); 4].map(|()| Desk::lane(client));
    let copy = |direction| Work::Copy { direction, ns: 3 * MS };
    let kernel = desk.launch(&lanes[0], "k", 10 * MS, 0);
    let up = desk.submit(&lanes[1], copy(Direction::ToDevice), 0);
    let down = desk.submit(&lanes[2], copy(Direction::ToHost), 0);
    let second = desk.submit(&lanes[3], copy(Direction::ToDevice), MS);
    let behind = desk.launch(&lanes[3], "k", MS, MS);
    let forecast = |mark| desk.machine.forecast(client, mark);
    assert_eq!([up, down, second].map(forecast), [3 * MS, 3 * MS, 6 * MS].map(Some));
    // From 6 ms on two kernels share: 1 ms of work takes 2 ms, and the long one ends 1 ms later.
    assert_eq!([behind, kernel].map(forecast), [8 * MS, 11 * MS].map(Some));
    desk.machine.advance(20 * MS);
    assert_eq!(desk.busy(client), 11 * MS, "copies are not engine time");
}

#[test]
fn an_event_is_reached_when_the_engine_gets_there() {
    let mut desk = Desk::new(1);
    let client = desk.machine.attach("");
    let (first, second) = (Desk::lane(client), Desk::lane(client));
    let begin = desk.record(&first, 1, 5);
    desk.launch(&first, "k", 100, 5);
    let end = desk.record(&first, 2, 5);
    desk.launch(&first, "k", 100, 5);
    desk.machine.advance(1000);
    assert_eq!((desk.reached(client, 1, begin), desk.reached(client, 2, end)), (5, 105));
    // Recorded anew in a lane that is faster than the one of the first record.
    desk.launch(&first, "k", 100, 1000);
    let old = desk.record(&first, 2, 1000);
    let new = desk.record(&second, 2, 1000);
    desk.machine.advance(5000);
    assert_eq!(desk.status(client, old, Some(2)).progress, Progress::Done(None));
    assert_eq!(desk.reached(client, 2, new), 1000);
}

#[test]
fn history_adds_up_to_what_was_billed_and_utilisation_follows_it() {
    let mut desk = Desk::new(1);
    let client = desk.machine.attach("");
    let lane = Desk::lane(client);
    let mut at = 0;
    for round in 0..100 {
        desk.launch(&lane, "k", round * 77_777, at);
        at += 5 * MS;
    }
    desk.machine.advance(900 * MS);
    let history: Vec<_> = desk.machine.history(client, 0).collect();
    assert_eq!(history.iter().map(|(_, ns)| ns).sum::<u64>(), desk.busy(client));
    assert_eq!(desk.busy(client), (0..100).sum::<u64>() * 77_777);
    assert!(history.iter().all(|(start, ns)| start % BUCKET_NS == 0 && *ns <= BUCKET_NS));
    let start = desk.machine.now();
    assert_eq!(desk.machine.percent(client, 0), 0, "idle for a whole period");
    for round in 0..100 {
        desk.launch(&lane, "k", 2500 * US, start + round * 10 * MS);
    }
    desk.machine.advance(start + 900 * MS);
    assert_eq!((desk.machine.percent(client, 0), desk.machine.card_percent(0)), (25, 25));
}

#[test]
fn invalid_items_are_dropped() {
    let mut desk = Desk::new(1);
    let client = desk.machine.attach("");
    let lane = Desk::lane(client);
    let mark = desk.launch(&lane, "k", 10, 0);
    let item = |mark, card, work| Item { at: 0, mark, context: 1, card, work };
    let kernel = |name| Work::Kernel { name, ns: 10, demand: FULL };
    desk.machine.submit(client, &item(Mark::new(1, 1), 0, kernel(1)));
    desk.machine.submit(client, &item(Mark::new(1, 9), 0, kernel(1)));
    desk.machine.submit(client, &item(Mark::new(0, 1), 0, kernel(1)));
    desk.machine.submit(client, &item(Mark::new(2, 1), 1, kernel(1)));
    desk.machine.submit(client, &item(Mark::new(2, 1), 0, kernel(99)));
    desk.machine.submit(client + 1, &item(Mark::new(2, 1), 0, kernel(1)));
    assert_eq!(desk.finish(client, mark), 10);
    desk.machine.advance(100);
    assert_eq!(desk.busy(client), 10);
}

#[test]
fn a_kernel_of_hours_among_others_is_seen_as_far_as_it_makes_sense() {
    let mut desk = Desk::new(1);
    let clients = [desk.machine.attach(""), desk.machine.attach("")];
    let lanes = clients.map(Desk::lane);
    let hour = 3600 * 1000 * MS;
    let marks = lanes.each_ref().map(|lane| desk.launch(lane, "k", hour, 0));
    let Progress::Pending { forecast: Some(forecast), check_at: Some(check_at), .. } =
        desk.status(clients[0], marks[0], None).progress
    else {
        panic!("an hour is not over");
    };
    assert!(forecast < hour && check_at == 10 * MS, "{forecast} {check_at}");
    desk.machine.client_ended(clients[1], MS);
    assert_eq!(desk.finish(clients[0], marks[0]), hour);
}
