//! Quotas of a namespace.

use crate::build::{app, card, container, names, node, plain, pod, quota, reserve, with};
use hami_allocator::wire::{Kind, Memory};

#[test]
fn all_quotas_of_a_namespace_hold() {
    let mut allocator = with(vec![plain("n", 4)]);
    allocator.set_quota(quota("cards", Some(3), None, None)).expect("good");
    allocator.set_quota(quota("memory", None, Some(1500), Some(100))).expect("good");
    reserve(&mut allocator, &pod("a", &[app(2, 500, 20)])).expect("room");
    let said = reserve(&mut allocator, &pod("b", &[app(2, 100, 0)])).unwrap_err();
    assert_eq!(said, "quota cards of namespace team allows 3 cards: 2 in use, 2 requested");
    let said = reserve(&mut allocator, &pod("b", &[app(1, 501, 0)])).unwrap_err();
    assert_eq!(said, "quota memory of namespace team allows 1500 MiB: 1000 in use, 501 requested");
    let said =
        reserve(&mut allocator, &pod("b", &[container(Kind::App, 1, Memory::Percent(51), 0)]))
            .unwrap_err();
    assert_eq!(said, "quota memory of namespace team allows 1500 MiB: 1000 in use, 510 requested");
    let said = reserve(&mut allocator, &pod("b", &[app(1, 100, 70)])).unwrap_err();
    assert_eq!(
        said,
        "quota memory of namespace team allows 100 % of cores: 40 in use, 70 requested"
    );
    allocator.remove_quota("team", "memory");
    assert!(reserve(&mut allocator, &pod("b", &[app(1, 501, 70)])).is_ok());
    allocator.remove("a");
    assert!(reserve(&mut allocator, &pod("c", &[app(2, 501, 0)])).is_ok());
}

#[test]
fn a_share_that_a_quota_forbids_on_one_card_may_do_on_another() {
    let mut allocator = with(vec![node("n", vec![card("g0", 1000), card("g1", 500)])]);
    allocator.set_quota(quota("memory", None, Some(300), None)).expect("good");
    let half = pod("a", &[container(Kind::App, 1, Memory::Percent(50), 0)]);
    assert_eq!(reserve(&mut allocator, &half), Ok(vec![names(&["g1"])]));
}

#[test]
fn a_quota_says_of_each_node_whether_its_cards_would_do() {
    let mut allocator = with(vec![
        node("alike", vec![card("g0", 1000), card("g1", 1000)]),
        node("mixed", vec![card("g2", 1000), card("g3", 500)]),
        node("small", vec![card("g4", 500), card("g5", 500)]),
    ]);
    let whole = pod("a", &[container(Kind::App, 1, Memory::Whole, 0)]);
    let all = ["alike", "mixed", "small"];
    for (allowed, fits) in [(499, 0..0), (500, 1..3), (999, 1..3), (1000, 0..3)] {
        allocator.set_quota(quota("memory", None, Some(allowed), None)).expect("good");
        let found = allocator.filter(&whole, &all, 0).expect("good");
        assert_eq!(found.feasible, fits.collect::<Vec<u32>>(), "{allowed}");
        assert!(found.failed.is_empty(), "no pod's going would help");
        for (node, name) in all.iter().enumerate() {
            let reserved = allocator.reserve(&whole, name, 0).is_ok();
            assert_eq!(reserved, found.feasible.contains(&(node as u32)), "{allowed} {name}");
            allocator.release("a");
        }
    }
}
