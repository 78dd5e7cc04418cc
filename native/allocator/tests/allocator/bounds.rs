//! What one pod asks for must not keep the others waiting: every search ends after so many steps.

use crate::build::{app, card, node, pod, with};
use hami_allocator::wire::{Ask, Topology};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

#[test]
fn a_hopeless_choice_of_linked_cards_is_given_up() {
    let names: Vec<String> = (0..40).map(|at| format!("n{at:02}")).collect();
    let cards = |name: &str| (0..16).map(|at| card(&format!("{name}-g{at:02}"), 16_000)).collect();
    let mut allocator = with(names.iter().map(|name| node(name, cards(name))).collect());
    // Each of the small ones has a card to itself, and then the large one has one too few.
    let mut asks: Vec<Ask> = (0..3).map(|_| app(1, 8_100, 0)).collect();
    asks.push(app(14, 15_000, 0));
    let mut request = pod("p", &asks);
    request.wish.topology = Topology::BestEffort;
    let (done, answer) = mpsc::channel();
    thread::spawn(move || {
        let found = allocator.filter(&request, &names, 0).expect("a good request");
        done.send(found.feasible).expect("somebody waits");
    });
    let feasible = answer.recv_timeout(Duration::from_secs(60)).expect("an answer, some day");
    assert!(feasible.is_empty());
}
