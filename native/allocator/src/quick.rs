//! The usual request on the usual node: one container, and nothing between its cards that matters.
//!
//! Then each card is judged by itself and the best so many are taken, without the search and the lists that it
//! needs. The answer is the same (a test compares); there are thousands of nodes to ask.

use crate::card::Use;
use crate::class::Class;
use crate::fit::{self, View};
use crate::order;
use crate::search::Entry;
use crate::wire::{Mode, Order, Topology};

/// Whether each card can be judged by itself. Quotas by card have been ruled out.
pub fn suits(class: &Class, view: &View<'_>) -> bool {
    class.shape.groups.len() == 1
        && view.mode != Mode::Mig
        && !class.wish.numa
        && !class.wish.order.contains(&Order::Numa)
        && class.topology(view.mode) == Topology::None
}

/// Fills `entries` with as many as are asked for, the first in order first; or with fewer, if there
/// are not so many.
pub fn pick(class: &Class, view: &View<'_>, entries: &mut Vec<Entry>) -> bool {
    entries.clear();
    let count = class.shape.groups[0].count;
    let fits = |card: &usize| {
        fit::bar(class, view, *card).is_none() && fit::room(class, view, *card, &[], 0).is_ok()
    };
    let keyed = |card: usize| (order::only_fullness(class, view, 0, card as u8), card as u8);
    let rated = (0..view.cards.len()).filter(fits).map(keyed);
    let entry = |(_, card)| Entry { group: 0, card, place: None };
    if count == 1 {
        entries.extend(rated.min().map(entry));
        return !entries.is_empty();
    }
    // The best so far, with their keys.
    let mut best = [(0_i64, 0_u8); 64];
    let mut found = 0;
    for one in rated {
        // Those that come after it move on; the last one falls off.
        let at = best[..found].partition_point(|other| *other < one);
        if at < count {
            found = (found + 1).min(count);
            best.copy_within(at..found - 1, at + 1);
            best[at] = one;
        }
    }
    entries.extend(best[..found].iter().copied().map(entry));
    found == count
}

/// Whether there are too few cards even where no pod is on the node.
pub fn never(class: &Class, view: &View<'_>) -> bool {
    let fits = |card: &usize| {
        fit::bar(class, view, *card).is_none()
            && fit::room_beside(class, view, *card, &Use::default(), &[], 0).is_ok()
    };
    (0..view.cards.len()).filter(fits).count() < class.shape.groups[0].count
}

#[cfg(test)]
mod tests {
    use crate::class::Class;
    use crate::engine::Allocator;
    use crate::parse::parse;
    use crate::search::{find, find_all};
    use crate::wire::{Node, Request};

    fn node(memory: [u64; 4], placement: &str) -> Node {
        let card = |(at, mib): (usize, u64)| {
            format!(r#"{{"uuid": "g{at}", "index": {at}, "model": "T4", "memory_mib": {mib}}}"#)
        };
        let cards: Vec<String> = memory.into_iter().enumerate().map(card).collect();
        let json =
            format!(r#"{{"name": "n", "placement": {placement}, "cards": [{}]}}"#, cards.join(","));
        parse("node", json.as_bytes()).expect("a good node")
    }

    fn request(uid: usize, cards: usize, mib: u64, order: &str) -> Request {
        let json = format!(
            r#"{{"pod": {{"uid": "{uid}", "namespace": "a", "name": "b"}}, "wish": {{"order": [{order}]}},
            "asks": [{{"container": "c", "kind": "app", "cards": {cards}, "memory": {{"mib": {mib}}}}}]}}"#
        );
        parse("request", json.as_bytes()).expect("a good request")
    }

    #[test]
    fn the_quick_way_and_the_search_find_the_same() {
        let mut allocator = Allocator::new();
        for (step, placement) in
            ["null", "\"binpack\"", "\"spread\""].iter().cycle().take(60).enumerate()
        {
            allocator.set_node(node([1000, 900, 1000, 800], placement)).expect("a good node");
            for order in ["", "\"binpack\"", "\"spread\",\"binpack\"", "\"mutex\""] {
                for cards in 1..=5 {
                    let request = request(1000, cards, 70 + 10 * step as u64, order);
                    let mut class = Class::of(&request);
                    class.meet_models(&allocator.models);
                    let node = allocator.node(allocator.number("n").expect("it is there"));
                    let (mut quick, mut slow) = (Vec::new(), Vec::new());
                    let found = find(&class, &node.view(), None, &mut quick);
                    assert_eq!(found, find_all(&class, &node.view(), None, &mut slow));
                    if found.is_ok() {
                        assert_eq!(quick, slow);
                    }
                }
            }
            let _full = allocator.reserve(&request(step, 1 + step % 2, 90, ""), "n", 0);
        }
    }
}
