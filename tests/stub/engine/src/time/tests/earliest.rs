//! The instant before which a mark is not done: exact without other processes, and true whichever
//! process begins or ends.

use super::*;
use std::collections::BTreeMap;

impl Desk {
    fn earliest(&mut self, client: usize, mark: Mark) -> Option<u64> {
        let query = Query { mark, event: None, has_forecast: false };
        match self.machine.status(client, &query).progress {
            Progress::Pending { earliest, .. } => Some(earliest),
            Progress::Done(_) => None,
        }
    }
}

#[test]
fn alone_it_is_when_the_mark_is_done() {
    let mut desk = Desk::new(1);
    let client = desk.machine.attach("");
    let (first, second) = (Desk::lane(client), Desk::lane(client));
    let up = Work::Copy { direction: Direction::ToDevice, ns: 700 };
    desk.launch(&first, "k", 1000, 0);
    desk.submit(&first, up, 0);
    let end = desk.record(&first, 1, 0);
    desk.submit(&second, Work::Wait(end), 0);
    let last = desk.launch(&second, "k", 300, 0);
    for now in [0, 400, 1200] {
        desk.machine.advance(now);
        let promised = [end, last].map(|mark| desk.earliest(client, mark));
        assert_eq!(promised, [Some(1700), Some(2000)], "at {now}");
    }
    assert_eq!(desk.finish(client, last), 2000);
}

#[test]
fn kernels_that_run_at_once_slow_each_other_down_to_the_end() {
    let mut desk = Desk::new(1);
    let client = desk.machine.attach("");
    let lanes = [(); 3].map(|()| Desk::lane(client));
    let marks = [300, 500, 1000].map(|ns| (ns, ns / 100));
    let marks = [0, 1, 2].map(|index: usize| desk.launch(&lanes[index], "k", marks[index].0, 0));
    for now in [0, 100, 899, 950, 1301, 1790] {
        desk.machine.advance(now);
        for (mark, end) in marks.iter().zip([900, 1300, 1800]) {
            assert_eq!(desk.earliest(client, *mark), (now < end).then_some(end), "at {now}");
        }
    }
}

#[test]
fn another_process_may_go_at_once_and_a_switch_may_not_be_hurried() {
    let mut desk = Desk::new(1);
    let clients = [desk.machine.attach(""), desk.machine.attach("")];
    let marks = clients.map(|client| desk.launch(&Desk::lane(client), "k", 3 * MS, 0));
    assert_eq!(desk.earliest(clients[1], marks[1]), Some(3 * MS));
    desk.machine.advance(2 * MS + 20 * US);
    assert_eq!(desk.earliest(clients[1], marks[1]), Some(5 * MS + 50 * US));
    assert_eq!(desk.earliest(clients[0], marks[0]), Some(3 * MS + 20 * US));
}

/// Numbers that look like chance, and are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Three processes with whatever there is on two cards, one of which goes; every promise that was
/// ever promised for a mark is checked again at every instant.
#[test]
fn no_mark_is_done_before_it_was_promised() {
    for seed in 0..20 {
        let mut dice = Dice(seed);
        let mut desk = Desk::new(2);
        let clients = [(); 3].map(|()| desk.machine.attach(""));
        let lanes: Vec<Handle> = (0..18)
            .map(|index| {
                let (client, context) = (clients[index % 3], 1 + index as u32 / 9);
                Handle { client, context, card: (index as u32 / 3) % 2, lane: Lane::default() }
            })
            .collect();
        let mut marks: Vec<(usize, Mark)> = Vec::new();
        // The latest instant promised for each.
        let mut promised = BTreeMap::new();
        let mut now = 0;
        for step in 0..600 {
            let longest = [400, 60, 60][dice.below(3) as usize];
            now += dice.below(longest) * US + dice.below(3);
            let on = &lanes[dice.below(18) as usize];
            let is_gone = step > 400 && on.client == clients[2];
            if step == 400 {
                desk.machine.client_ended(clients[2], now);
                marks.retain(|(client, _)| *client != clients[2]);
            } else if !is_gone {
                let ns = 1 + dice.below(300 * US);
                let other = marks.get(dice.below(marks.len() as u64 + 1) as usize);
                let mark = match dice.below(8) {
                    0 => desk.submit(on, Work::Copy { direction: Direction::ToHost, ns }, now),
                    1 => desk.record(on, step as u32, now),
                    2 if other.is_some_and(|(client, _)| *client == on.client) => {
                        desk.submit(on, Work::Wait(other.expect("some").1), now)
                    }
                    3 if step % 7 == 0 => desk.launch(on, "all_reduce_1us_meets2", ns, now),
                    demand => desk.launch_part(on, "k", ns, FULL >> (demand % 3), now),
                };
                marks.push((on.client, mark));
            }
            desk.machine.advance(now);
            marks.retain(|&(client, mark)| {
                let latest = promised.entry((client, mark)).or_insert(0);
                let earliest = desk.earliest(client, mark);
                assert!(
                    earliest.is_some() || *latest <= now,
                    "seed {seed}: by {now}, not {latest}"
                );
                *latest = (*latest).max(earliest.unwrap_or(0));
                earliest.is_some()
            });
        }
        assert!(promised.len() > 300, "{}", promised.len());
    }
}
