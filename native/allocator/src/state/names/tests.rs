//! Lookups of names in any order, compared with a plain map.

use super::Names;
use prng::Prng;
use std::collections::BTreeMap;

#[path = "../../../tests/allocator/prng.rs"]
mod prng;

#[test]
fn names_with_equal_hashes_are_found() {
    for bits in [u64::MAX, 3, 0] {
        let mut names = Names { bits, ..Names::default() };
        let name =
            |at: u32| format!("node-{at}{}", ".a-rather-long-domain".repeat(at as usize % 3));
        (0..40).for_each(|at| names.insert(&name(at), at));
        (0..40).for_each(|at| assert_eq!(names.get(&name(at)), Some(at)));
        (0..40).step_by(2).for_each(|at| names.remove(at));
        (0..40).for_each(|at| assert_eq!(names.get(&name(at)), (at % 2 == 1).then_some(at)));
        names.insert("new", 0);
        assert_eq!((names.get("new"), names.get("")), (Some(0), None));
        let looked_up: Vec<String> =
            (0..90).map(|at| name(at * 7 % 45)).chain(["new".into(), String::new()]).collect();
        let one_by_one = |names: &Names| -> Vec<Option<u32>> {
            looked_up.iter().map(|name| names.get(name)).collect()
        };
        for _ in 0..9 {
            assert_eq!(names.get_all(&looked_up).each, one_by_one(&names));
        }
        (1..40).step_by(2).for_each(|at| names.remove(at));
        assert_eq!(names.get_all(&looked_up).each, one_by_one(&names));
        names.remove(0);
        assert!(names.by_hash.is_empty() && names.twins.is_empty());
    }
}

#[test]
fn names_move_into_the_order_of_lookups_and_keep_their_numbers() {
    let mut names = Names::default();
    let looked_up: Vec<String> = (0..100).map(|at| format!("node-{}", at * 37 % 100)).collect();
    (0..100).for_each(|at| names.insert(&format!("node-{at}"), at));
    let numbers: Vec<Option<u32>> = (0..100).map(|at| Some(at * 37 % 100)).collect();
    for _ in 0..4 {
        assert_eq!(names.get_all(&looked_up).each, numbers);
    }
    let in_memory = names.numbers.iter().map(|number| Some(*number));
    assert!(in_memory.eq(numbers.iter().copied()), "{:?}", names.numbers);
    names.remove(37);
    names.insert("another", 37);
    names.insert("more", 100);
    assert_eq!((names.at(37), names.at(100)), (Some(&b"another"[..]), Some(&b"more"[..])));
    assert_eq!((names.get("node-37"), names.get("another")), (None, Some(37)));
    assert_eq!(names.get_all(&["more", "another", "node-37"]).each, [Some(100), Some(37), None]);
    assert_eq!(names.get_all(&looked_up).each[2..], numbers[2..]);
}

/// Short, long and medium names, names with escapes in JSON, and the empty name; all are different.
fn name(at: usize) -> String {
    match at % 8 {
        0 => format!("node-{at}"),
        1 => format!("{at:038}"),
        2 => format!("{at:039}"),
        3 => format!("node-{at}{}", ".a-rather-long-domain".repeat(9)),
        4 => format!("n\"{at}"),
        5 => format!("n\\{at}"),
        6 => format!("n\u{f6}d\u{e9}-\u{1f600}-{at}"),
        _ if at == 7 => String::new(),
        _ => format!("a blank\nand a line {at}"),
    }
}

/// A list as this many workers write it, chunk by chunk, starting anywhere.
fn mixed(random: &mut Prng, names: &[String], workers: usize) -> Vec<String> {
    let mut names = names.to_vec();
    let begin = random.below(names.len().max(1));
    names.rotate_left(begin);
    let chunk = names.len().isqrt().max(1);
    let mut waiting = names.chunks(chunk);
    let mut hands: Vec<&[String]> = waiting.by_ref().take(workers).collect();
    let mut list = Vec::new();
    while !hands.is_empty() {
        let at = random.below(hands.len());
        let (first, rest) = hands[at].split_first().expect("no chunk is empty");
        list.push(first.clone());
        hands[at] = rest;
        if rest.is_empty() {
            match waiting.next() {
                Some(next) => hands[at] = next,
                None => drop(hands.swap_remove(at)),
            }
        }
    }
    list
}

/// Names and numbers, and the same in a plain map.
struct Both {
    names: Names,
    plain: BTreeMap<String, u32>,
    free: Vec<u32>,
}

impl Both {
    fn insert(&mut self, name: String) {
        // Numbers are reused, the last one first.
        let next = (self.plain.len() + self.free.len()) as u32;
        let number = self.free.pop().unwrap_or(next);
        self.names.insert(&name, number);
        self.plain.insert(name, number);
    }

    fn come_or_go(&mut self, name: String) {
        match self.plain.remove(&name) {
            Some(number) => {
                self.names.remove(number);
                self.free.push(number);
            }
            None => self.insert(name),
        }
    }

    fn check(&mut self, list: &[String]) {
        let plain: Vec<Option<u32>> =
            list.iter().map(|name| self.plain.get(name).copied()).collect();
        assert_eq!(self.names.get_all(list).each, plain);
        let Names { numbers, places, .. } = &self.names;
        for (place, number) in (0..).zip(numbers) {
            assert_eq!(places[*number as usize], place, "each number has a place of its own");
        }
        assert_eq!(places.len(), numbers.len());
    }
}

#[test]
fn lookups_in_any_order_give_the_numbers_of_a_plain_map() {
    for (count, rounds) in [(0, 4), (1, 20), (2, 40), (9, 300), (150, 150), (5_000, 12)] {
        for (seed, bits) in [(1, u64::MAX), (2, 15)] {
            let random = &mut Prng::new(seed + count as u64);
            let (names, plain) = (Names { bits, ..Names::default() }, BTreeMap::new());
            let mut both = Both { names, plain, free: Vec::new() };
            (0..count).for_each(|at| both.insert(name(at)));
            let mut order: Vec<String> = (0..count).map(name).collect();
            for _ in 0..rounds {
                if random.chance(20) {
                    random.shuffle(&mut order);
                }
                let workers = random.pick(&[1, 1, 2, 16]);
                let mut list = mixed(random, &order, workers);
                // Some names twice, some unknown ones, some left out.
                for _ in 0..random.below(6) {
                    let at = random.below(list.len() + 1);
                    list.insert(at, name(random.below(count + 4)));
                }
                if random.chance(20) {
                    list.truncate(random.below(count + 1));
                }
                both.check(&list);
                both.check(&list);
                for _ in 0..random.below(5) {
                    both.come_or_go(name(random.below(count + 2)));
                }
            }
            for (name, number) in &both.plain {
                let text = both.names.at(*number).expect("it is there");
                assert_eq!((both.names.get(name), text), (Some(*number), name.as_bytes()));
            }
            for number in &both.free {
                assert_eq!(both.names.at(*number), Some(&b""[..]));
            }
        }
    }
}

/// How often names move during this many lists: of one order or two, two lists of each in turn.
fn moves(orders: usize, workers: usize, lists: usize) -> usize {
    let random = &mut Prng::new(7);
    let mut names = Names::default();
    let mut order: Vec<String> = (0..200).map(|at| format!("node-{at}")).collect();
    (0..).zip(&order).for_each(|(at, name)| names.insert(name, at));
    let of_each = |_| {
        random.shuffle(&mut order);
        order.clone()
    };
    let orders: Vec<Vec<String>> = (0..orders).map(of_each).collect();
    let moved = (0..lists).filter(|at| {
        let list = mixed(random, &orders[at / 2 % orders.len()], workers);
        let before = names.numbers.clone();
        names.get_all(&list);
        names.numbers != before
    });
    moved.count()
}

#[test]
fn names_do_not_keep_moving_if_that_does_not_help() {
    for workers in [1, 2] {
        assert!((1..=3).contains(&moves(1, workers, 300)), "they are in the order of the lookups");
    }
    // There is no good order for them: they move now and then, and not for every list.
    assert!(moves(1, 16, 300) < 30);
    assert!(moves(2, 1, 300) <= 150);
    assert!(moves(150, 1, 300) <= 150);
}
