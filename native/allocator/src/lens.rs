//! The usual request on the usual nodes: one container, and nothing between the cards that matters.
//!
//! Then each card is judged by itself and the best so many are taken. What is the same for all nodes of a mode
//! is worked out once, and a node is read in its slim form alone. The answers are those of the search (a test
//! compares); there are tens of thousands of cards to ask.

use crate::card::{Standing, Use};
use crate::class::Class;
use crate::order;
use crate::reason::CardReason;
use crate::score::{self, Left, Scale};
use crate::slim::{Glance, Slim};
use crate::wire::{Mode, Order, Placement, Topology};

/// Cards that can be chosen at a time ([`crate::check::MOST`]).
const MOST: usize = 64;

/// A class, as it looks at nodes of one mode and placement.
pub struct Lens<'a> {
    class: &'a Class,
    mode: Mode,
    count: usize,
    mib: u64,
    percent: u64,
    least_percent: u64,
    cores: u32,
    /// So many have to be left: also who counts none needs some that nobody else has.
    least_cores: u32,
    alone: bool,
    /// Nothing but room matters.
    plain: bool,
    fullest_first: bool,
}

/// How full cards and nodes are, for the pods of a class.
pub struct Scales {
    card: Scale,
    node: Scale,
}

impl Scales {
    /// Of this class.
    pub fn of(class: &Class) -> Self {
        let scale = Scale::by(class.wish.weights.unwrap_or_default());
        Self { card: scale, node: scale }
    }
}

/// By their numbers.
const MODES: [Mode; 7] =
    [Mode::Full, Mode::Memory, Mode::Exclusive, Mode::Share, Mode::Topology, Mode::Mig, Mode::Mps];
const PLACEMENTS: [Option<Placement>; 3] =
    [None, Some(Placement::Binpack), Some(Placement::Spread)];

/// The lenses of a class; none where the search has to look.
pub struct Lenses<'a>([[Option<Lens<'a>>; 3]; 7]);

impl<'a> Lenses<'a> {
    /// Of this class.
    pub fn of(class: &'a Class) -> Self {
        Self(MODES.map(|mode| PLACEMENTS.map(|placement| Lens::of(class, mode, placement))))
    }

    /// For such a node.
    pub fn get(&self, mode: Mode, placement: Option<Placement>) -> Option<&Lens<'a>> {
        let at = match placement {
            None => 0,
            Some(Placement::Binpack) => 1,
            Some(Placement::Spread) => 2,
        };
        self.0[mode as usize][at].as_ref()
    }
}

impl<'a> Lens<'a> {
    fn of(class: &'a Class, mode: Mode, placement: Option<Placement>) -> Option<Self> {
        let wish = &class.wish;
        let usual = class.shape.groups.len() == 1
            && mode != Mode::Mig
            && !wish.numa
            && !wish.order.contains(&Order::Numa)
            && class.topology(mode) == Topology::None
            && wish.uuids.is_empty()
            && wish.avoid.is_empty();
        let peak = &class.peaks[0];
        let refused = !class.takes_mode(mode) || (mode == Mode::Exclusive && peak.partial);
        (usual && !refused).then(|| Self {
            class,
            mode,
            count: class.shape.groups[0].count,
            mib: peak.mib,
            percent: peak.percent.into(),
            least_percent: peak.least_percent.into(),
            cores: peak.cores(mode),
            least_cores: peak.cores(mode).max(peak.without_cores(mode).into()),
            alone: peak.wants_alone(mode),
            plain: class.takes_all_models()
                && peak.least_percent == 0
                && !class.idle_only
                && !peak.wants_alone(mode),
            fullest_first: order::fullest_first(class, placement),
        })
    }

    /// The node's score with the pod; none where the pod does not fit.
    pub fn look(&self, node: &Glance<'_>, scales: &mut Scales) -> Option<u16> {
        if self.count == 1 {
            let first = self.first(node, &mut scales.card);
            return first.map(|one| self.score(node, scales, &[one]));
        }
        if node.cards.iter().filter(|card| self.fits(card)).count() < self.count {
            return None;
        }
        let fits = |(_, card): &(usize, &Slim)| self.fits(card);
        let keyed = |(at, card)| (self.key(card, &mut scales.card), at as u8);
        let rated = node.cards.iter().enumerate().filter(fits).map(keyed);
        // The best so far, with their keys.
        let mut best = [(0_i64, 0_u8); MOST];
        let mut found = 0;
        for one in rated {
            // Those that come after it move on; the last one falls off.
            let at = best[..found].partition_point(|other| *other < one);
            if at < self.count {
                found = (found + 1).min(self.count);
                best.copy_within(at..found - 1, at + 1);
                best[at] = one;
            }
        }
        Some(self.score(node, scales, &best[..found]))
    }

    /// The card that comes first; of equal ones the first on the node.
    fn first(&self, node: &Glance<'_>, scale: &mut Scale) -> Option<(i64, u8)> {
        let (mut least, mut best) = (i64::MAX, 0);
        for (at, card) in node.cards.iter().enumerate() {
            let key = if self.fits(card) { self.key(card, scale) } else { i64::MAX };
            best = if key < least { at } else { best };
            least = least.min(key);
        }
        (least < i64::MAX).then_some((least, best as u8))
    }

    /// The kind of reason of the card that is nearest to doing, where too few do; none where no card is
    /// refused.
    pub fn obstacle(&self, node: &Glance<'_>) -> Option<usize> {
        node.cards.iter().filter_map(|card| self.bar(card)).map(CardReason::kind).min()
    }

    /// Whether there are too few cards even where no pod is on the node.
    pub fn never(&self, node: &Glance<'_>) -> bool {
        let fits = |card: &&Slim| self.fits(&card.emptied());
        node.cards.iter().filter(fits).take(self.count).count() < self.count
    }

    /// Whether the pod can have this card.
    #[inline]
    fn fits(&self, card: &Slim) -> bool {
        let room = self.need(card) <= card.room_mib.into() && self.least_cores <= card.free_cores;
        if self.plain || !room {
            return room;
        }
        self.class.takes_model(card.model)
            && self.eaten_share(card).is_none()
            && !(card.used_slots > 0 && self.minds_company(card))
    }

    /// Why the pod cannot have this card, if so; in the order of [`crate::fit`].
    fn bar(&self, card: &Slim) -> Option<CardReason> {
        match card.standing {
            Standing::Open => {}
            Standing::Gone => return Some(CardReason::Gone),
            Standing::Unhealthy => return Some(CardReason::Unhealthy),
            Standing::Cordoned => return Some(CardReason::Cordoned),
        }
        if !self.class.takes_model(card.model) {
            return Some(CardReason::OtherType);
        }
        if let Some(share) = self.eaten_share(card) {
            return Some(CardReason::Overhead { share, overhead: card.overhead_mib.into() });
        }
        if card.used_slots >= card.slots {
            return Some(CardReason::Slots { slots: card.slots.into() });
        }
        if card.used_slots > 0 && self.minds_company(card) {
            let idle_only = self.class.idle_only;
            return Some(if idle_only { CardReason::NotIdle } else { CardReason::InUse });
        }
        let (asked, free) = (self.need(card), card.room_mib.into());
        if asked > free {
            return Some(CardReason::Memory { asked, free });
        }
        let (asked, free) = (self.cores, card.free_cores);
        if asked > free {
            return Some(CardReason::Cores { asked, free });
        }
        (self.least_cores > free).then_some(CardReason::CoresGiven)
    }

    fn minds_company(&self, card: &Slim) -> bool {
        self.class.idle_only || (self.alone && card.cores <= 100)
    }

    /// The share that leaves a container nothing beside the overhead, if there is one.
    #[inline]
    fn eaten_share(&self, card: &Slim) -> Option<u64> {
        let share = u64::from(card.memory_mib) * self.least_percent / 100;
        (self.least_percent > 0 && share <= card.overhead_mib.into()).then_some(share)
    }

    /// MiB that count against the card.
    #[inline]
    fn need(&self, card: &Slim) -> u64 {
        let plain = if self.mib == 0 { 0 } else { self.mib + u64::from(card.overhead_mib) };
        if self.percent == 0 {
            return plain;
        }
        plain.max(u64::from(card.memory_mib) * self.percent / 100)
    }

    /// Of a card that fits; what comes first is least.
    #[inline]
    fn key(&self, card: &Slim, scale: &mut Scale) -> i64 {
        let has = [card.slots.into(), card.cores.into(), card.memory_mib.into()];
        let given = [
            u64::from(card.used_slots) + 1,
            u64::from(card.cores - card.free_cores) + u64::from(self.cores),
            u64::from(card.usable_mib - card.room_mib) + self.need(card),
        ];
        let full = scale.made_for(has).fullness(given);
        if self.fullest_first { -full } else { full }
    }

    fn load(&self, card: &Slim) -> Use {
        let (memory_mib, cores) = (self.need(card), self.cores);
        Use { memory_mib, cores, slots: 1, plain_slots: 1, mig: 0 }
    }

    fn score(&self, node: &Glance<'_>, scales: &mut Scales, chosen: &[(i64, u8)]) -> u16 {
        let mut totals = node.totals;
        let mut waste = 0.0;
        for (_, at) in chosen {
            let card = &node.cards[usize::from(*at)];
            let load = self.load(card);
            totals.give(&load);
            waste += Left::of(card, &load).waste(&load, self.mode);
        }
        score::usual(&self.class.wish, &mut scales.node, &totals, waste / chosen.len() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::{Lenses, Scales};
    use crate::class::Class;
    use crate::effort::Effort;
    use crate::engine::Allocator;
    use crate::parse::parse;
    use crate::score;
    use crate::search;
    use crate::tally;
    use crate::wire::Node;

    const MODES: [&str; 6] = ["full", "memory", "exclusive", "share", "topology", "mps"];
    const PLACEMENTS: [&str; 3] = ["null", "\"binpack\"", "\"spread\""];
    const WISHES: [&str; 8] = [
        "",
        r#""order": ["binpack"]"#,
        r#""order": ["spread", "binpack"], "node_order": "spread""#,
        r#""order": ["mutex"]"#,
        r#""mutex": true, "types": ["a100"]"#,
        r#""avoid_types": ["T4"], "mode": "hami-core""#,
        r#""weights": {"slot": 0, "core": 3, "memory": 7}"#,
        r#""mode": "memory", "node_order": "binpack""#,
    ];
    const ASKS: [&str; 7] = [
        r#""memory": {"mib": 70}"#,
        r#""memory": {"mib": 430}, "cores": 35"#,
        r#""memory": {"mib": 10}, "cores": 100"#,
        r#""memory": {"percent": 2}"#,
        r#""memory": {"percent": 45}, "cores": 20"#,
        r#""memory": "whole""#,
        r#""memory": "whole", "cores": 100"#,
    ];

    fn node(mode: &str, placement: &str, step: usize) -> Node {
        let card = |at: usize| {
            let model = ["Tesla T4", "A100", "A100"][(at + step) % 3];
            let (memory, foreign) = (800 + 100 * (at % 3), 150 * usize::from(at == 3));
            let (cores, slots) = ([100, 100, 150][step % 3], 3 + at % 2);
            let (healthy, cordoned) = ((at + step) % 9 != 4, (at + step) % 11 == 5);
            format!(
                r#"{{"uuid": "g{at}", "index": {at}, "model": "{model}", "memory_mib": {memory},
                "cores": {cores}, "slots": {slots}, "healthy": {healthy}, "cordoned": {cordoned},
                "foreign_mib": {foreign}, "overhead_mib": {}}}"#,
                20 * (at % 2)
            )
        };
        let cards: Vec<String> = (0..step % 7).map(card).collect();
        let json = format!(
            r#"{{"name": "n", "mode": "{mode}", "placement": {placement}, "cards": [{}]}}"#,
            cards.join(",")
        );
        parse("node", json.as_bytes()).expect("a good node")
    }

    fn request(uid: usize, cards: usize, ask: &str, wish: &str) -> crate::wire::Request {
        let json = format!(
            r#"{{"pod": {{"uid": "{uid}", "namespace": "a", "name": "b"}}, "wish": {{{wish}}},
            "asks": [{{"container": "c", "kind": "app", "cards": {cards}, {ask}}}]}}"#
        );
        parse("request", json.as_bytes()).expect("a good request")
    }

    /// What the search says of the node: the score, or the reason in brief and whether it is for ever.
    fn searched(allocator: &Allocator, class: &Class, number: u32) -> Result<u16, (String, bool)> {
        let (view, mut entries) = (allocator.node(number).view(), Vec::new());
        let mut effort = Effort::default();
        match search::find(class, &view, None, &mut effort, &mut entries) {
            Ok(()) => {
                let mut loads = Vec::new();
                score::loads(class, &view, &entries, &mut loads);
                Ok(score::score(class, &view, &entries, &loads))
            }
            Err(reason) => {
                let never =
                    reason.is_lasting() || search::never(class, &view, &mut effort, &mut entries);
                Err((reason.brief(), never))
            }
        }
    }

    #[test]
    fn a_lens_shows_what_the_search_finds() {
        let mut allocator = Allocator::new();
        let (mut fit, mut full, mut never, mut unseen) = (0, 0, 0, 0);
        for step in 0..252 {
            let (mode, placement) = (MODES[step / 7 % 6], PLACEMENTS[step % 3]);
            allocator.set_node(node(mode, placement, 3 + step)).expect("a good node");
            let number = allocator.number("n").expect("it is there");
            for (wish, ask, cards) in WISHES
                .iter()
                .flat_map(|wish| ASKS.iter().map(move |ask| (wish, ask)))
                .flat_map(|(wish, ask)| [1, 2, 4].map(|cards| (wish, ask, cards)))
            {
                let mut class = Class::of(&request(1000, cards, ask, wish));
                class.meet_models(&allocator.models);
                let glance = allocator.shelf.get(number);
                let lenses = Lenses::of(&class);
                let Some(lens) = lenses.get(glance.mode, glance.placement) else {
                    unseen += 1;
                    continue;
                };
                if glance.cards.is_empty() {
                    continue;
                }
                let seen = lens.look(&glance, &mut Scales::of(&class)).ok_or_else(|| {
                    (tally::brief(lens.obstacle(&glance)).into(), lens.never(&glance))
                });
                match &seen {
                    Ok(_) => fit += 1,
                    Err((_, false)) => full += 1,
                    Err(_) => never += 1,
                }
                let found = searched(&allocator, &class, number);
                assert_eq!(seen, found, "{wish} {ask} {cards}, step {step}");
            }
            let taken = request(step, 1 + step % 2, ASKS[step % 5], "");
            let _full = allocator.reserve(&taken, "n", 0);
            if step % 7 == 6 {
                (step - 6..step).for_each(|at| allocator.remove(&at.to_string()));
            }
        }
        assert!(
            fit > 1500 && full > 1500 && never > 1500 && unseen > 1500,
            "{fit} {full} {never} {unseen}"
        );
    }
}
