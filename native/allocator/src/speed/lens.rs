//! The usual request on the usual nodes: one container, and nothing between the cards that matters.
//!
//! Then each card is judged by itself and the best so many are taken. What is the same for all nodes of a mode
//! is worked out once, and a node is read in its slim form alone. The answers are those of the search (a test
//! compares); there are tens of thousands of cards to ask.

use crate::rules::card::{Standing, Use};
use crate::rules::card_reason::CardReason;
use crate::rules::class::Class;
use crate::rules::fullness::{self, Scale};
use crate::search::order;
use crate::search::score::{self, Left};
use crate::speed::slim::{Glance, Has, Slim};
use crate::wire::{Mode, Order, Placement, Topology};

/// Cards that can be chosen at a time ([`crate::wire::check::MOST`]).
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
    /// How full a card is counts by weights of its own.
    weighs: bool,
    /// Of keys: what comes first is least.
    sign: i64,
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
            weighs: wish.weights.is_some(),
            sign: if order::fullest_first(class, placement) { -1 } else { 1 },
        })
    }

    /// The node's score with the pod; none where the pod does not fit.
    pub fn look(&self, node: &Glance<'_>, scales: &mut Scales) -> Option<u16> {
        if self.count == 1 {
            let first = self.first(node, &mut scales.card);
            return first.map(|one| self.score(node, scales, [one].into_iter()));
        }
        if node.cards().filter(|card| self.fits(card)).count() < self.count {
            return None;
        }
        let fits = |(_, card): &(u8, Slim<'_>)| self.fits(card);
        let keyed = |(at, card): (u8, Slim<'_>)| (self.key(&card, &mut scales.card), at);
        let rated = (0..).zip(node.cards()).filter(fits).map(keyed);
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
        let chosen = best[..found].iter().map(|(_, at)| *at);
        Some(self.score(node, scales, chosen))
    }

    /// The card that comes first; of equal ones the first on the node.
    fn first(&self, node: &Glance<'_>, scale: &mut Scale) -> Option<u8> {
        if node.alike && self.plain && !self.weighs {
            return self.first_alike(node);
        }
        let fits = |(_, card): &(u8, Slim<'_>)| self.fits(card);
        let keyed = |(at, card): (u8, Slim<'_>)| (self.key(&card, scale), at);
        (0..).zip(node.cards()).filter(fits).map(keyed).min().map(|(_, at)| at)
    }

    /// The same where the pod makes the same of each card.
    fn first_alike(&self, node: &Glance<'_>) -> Option<u8> {
        let need = self.need(node.has.first()?);
        let flip = if self.sign < 0 { u32::MAX } else { 0 };
        let mut least = u64::MAX;
        for (at, rest) in (0_u64..).zip(node.rests) {
            let fits =
                (need <= rest.room_mib.into()) & (self.least_cores <= rest.free_cores.into());
            // How full, and where: no branch could be foretold here.
            let key = u64::from(rest.full ^ flip) << 32 | at;
            least = least.min(if fits { key } else { u64::MAX });
        }
        (least < u64::MAX).then_some(least as u8)
    }

    /// The kind of reason of the card that is nearest to doing, where too few do; none where no card is
    /// refused.
    pub fn obstacle(&self, node: &Glance<'_>) -> Option<usize> {
        node.cards().filter_map(|card| self.bar(&card)).map(CardReason::kind).min()
    }

    /// Whether there are too few cards even where no pod is on the node.
    pub fn unfit_when_empty(&self, node: &Glance<'_>) -> bool {
        let fits = |has: &&Has| self.fits(&Slim::empty(has));
        node.has.iter().filter(fits).take(self.count).count() < self.count
    }

    /// Whether the pod can have this card.
    #[inline]
    fn fits(&self, card: &Slim<'_>) -> bool {
        let Slim { has, rest } = card;
        let room =
            self.need(has) <= rest.room_mib.into() && self.least_cores <= rest.free_cores.into();
        if self.plain || !room {
            return room;
        }
        self.class.takes_model(has.model)
            && self.eaten_share(has).is_none()
            && !(rest.used_slots > 0 && self.minds_company(has))
    }

    /// Why the pod cannot have this card, if so; in the order of [`crate::rules::fit`].
    fn bar(&self, card: &Slim<'_>) -> Option<CardReason> {
        let Slim { has, rest } = card;
        match has.standing {
            Standing::Open => {}
            Standing::Gone => return Some(CardReason::Gone),
            Standing::Unhealthy => return Some(CardReason::Unhealthy),
            Standing::Cordoned => return Some(CardReason::Cordoned),
        }
        if !self.class.takes_model(has.model) {
            return Some(CardReason::OtherType);
        }
        if let Some(share) = self.eaten_share(has) {
            return Some(CardReason::Overhead { share, overhead: has.overhead_mib.into() });
        }
        if rest.used_slots >= has.slots {
            return Some(CardReason::Slots { slots: has.slots.into() });
        }
        if rest.used_slots > 0 && self.minds_company(has) {
            let idle_only = self.class.idle_only;
            return Some(if idle_only { CardReason::NotIdle } else { CardReason::InUse });
        }
        let (asked, free) = (self.need(has), rest.room_mib.into());
        if asked > free {
            return Some(CardReason::Memory { asked, free });
        }
        let (asked, free) = (self.cores, rest.free_cores.into());
        if asked > free {
            return Some(CardReason::Cores { asked, free });
        }
        (self.least_cores > free).then_some(CardReason::CoresGiven)
    }

    fn minds_company(&self, has: &Has) -> bool {
        self.class.idle_only || (self.alone && has.cores <= 100)
    }

    /// The share that leaves a container nothing beside the overhead, if there is one.
    #[inline]
    fn eaten_share(&self, has: &Has) -> Option<u64> {
        let share = u64::from(has.memory_mib) * self.least_percent / 100;
        (self.least_percent > 0 && share <= has.overhead_mib.into()).then_some(share)
    }

    /// MiB that count against the card.
    #[inline]
    fn need(&self, has: &Has) -> u64 {
        let plain = if self.mib == 0 { 0 } else { self.mib + u64::from(has.overhead_mib) };
        if self.percent == 0 {
            return plain;
        }
        plain.max(u64::from(has.memory_mib) * self.percent / 100)
    }

    /// Of a card that fits; what comes first is least.
    fn key(&self, card: &Slim<'_>, scale: &mut Scale) -> i64 {
        let scale = scale.made_for(card.has.measures());
        let full = if self.weighs {
            fullness::whole(scale.part(card.given()))
        } else {
            card.rest.full.into()
        };
        let with_pod = [1, self.cores.into(), self.need(card.has)];
        (full + fullness::whole(scale.part(with_pod))) * self.sign
    }

    fn load(&self, card: &Slim<'_>) -> Use {
        let (memory_mib, cores) = (self.need(card.has), self.cores);
        Use { memory_mib, cores, slots: 1, plain_slots: 1, mig: 0 }
    }

    fn score(
        &self,
        node: &Glance<'_>,
        scales: &mut Scales,
        chosen: impl ExactSizeIterator<Item = u8>,
    ) -> u16 {
        let mut totals = node.totals;
        let (mut waste, count) = (0.0, chosen.len());
        for at in chosen {
            let card = node.card(at);
            let load = self.load(&card);
            totals.give(&load);
            waste += Left::of(&card, &load).waste(&load, self.mode);
        }
        score::usual(&self.class.wish, &mut scales.node, &totals, waste / count as f64)
    }
}

#[cfg(test)]
mod tests;
