//! One request, one node or thousands: a verdict for each.
//!
//! Verdicts come from the cache where nothing about the pod itself matters: not on the node where it has an entry, and not
//! where a quota counts what only the chosen card decides.

use crate::book::Holding;
use crate::cache::{Cached, Verdict};
use crate::check;
use crate::class::Class;
use crate::demand;
use crate::effort::Effort;
use crate::engine::Allocator;
use crate::fit::View;
use crate::hash::Map;
use crate::lens::{Lens, Lenses, Scales};
use crate::node;
use crate::quota::{Room, Spent};
use crate::reason::{KINDS, NodeReason};
use crate::score;
use crate::search::{self, Entry};
use crate::slim::Glance;
use crate::tally;
use crate::wire::{Ask, Mode, Request};
use hami_limits::InvalidValue;
use std::collections::HashSet;
use std::sync::Arc;

/// Where more has changed since a class was judged, nodes are looked at in the order of memory.
const MANY: u64 = 256;

impl Allocator {
    /// Looks at a node as it would be without this pod and those.
    pub(crate) fn with_view<T>(
        &self,
        request: &Request,
        number: u32,
        gone: &[&str],
        look: impl FnOnce(&Self, &View<'_>) -> T,
    ) -> T {
        let node = self.node(number);
        let here = |uid: &str| self.book.find(uid).is_some_and(|holding| holding.node == number);
        if gone.is_empty() && !here(&request.pod.uid) {
            return look(self, &node.view());
        }
        let stays = |holding: &&Holding| {
            let uid = holding.pod.uid.as_str();
            uid != request.pod.uid && !gone.contains(&uid)
        };
        let pods = node.pods.iter().map(|pod| self.book.get(*pod)).filter(stays);
        let mut used = Vec::new();
        let charges = pods.flat_map(|holding| &holding.charges);
        let totals = node::sum(&mut used, &node.facts, charges);
        look(self, &node.view_with(&used, totals))
    }

    /// Cards for a request, with its namespace's quotas as they would be without this pod and those.
    pub(crate) fn try_fit(
        &self,
        class: &Class,
        request: &Request,
        view: &View<'_>,
        gone: &[&str],
        effort: &mut Effort,
        entries: &mut Vec<Entry>,
    ) -> Result<(), NodeReason> {
        let room = self.room(request, gone);
        if let Some(over) = room.as_ref().and_then(|room| over(class, room)) {
            return Err(over);
        }
        search::find(class, view, room.as_ref().filter(|_| class.shares), effort, entries)
    }

    fn room(&self, request: &Request, gone: &[&str]) -> Option<Room<'_>> {
        let out = gone
            .iter()
            .copied()
            .filter(|uid| *uid != request.pod.uid)
            .chain([request.pod.uid.as_str()]);
        let out = out.filter_map(|uid| self.book.find(uid));
        let mine = out.filter(|holding| holding.pod.namespace == request.pod.namespace);
        self.quotas.room(&request.pod.namespace, mine.map(|holding| &holding.spent))
    }

    /// A verdict for each node, from the cache where that may be; whether the same again tells no more.
    pub(crate) fn judge(
        &mut self,
        request: &Request,
        numbers: &[Option<u32>],
        effort: &mut Effort,
        mut tell: impl FnMut(u32, &Verdict),
    ) -> bool {
        let (key, mut cached) = self.cache.take(request);
        cached.class.meet_models(&self.models);
        cached.verdicts.resize(self.nodes.len(), (0, Verdict::Fits(0)));
        let entries = std::mem::take(&mut self.entries);
        let own = self.book.find(&request.pod.uid).map(|holding| holding.node);
        let room = self.room(request, &[]);
        let of_all = room.as_ref().and_then(|room| over(&cached.class, room));
        let of_all = of_all.map(|reason| Verdict::Never(reason.brief().into()));
        let unknown = Verdict::Never(NodeReason::NoCards.brief().into());
        // Nobody is evicted where there may be room.
        let not_reached = if effort.is_last() {
            Verdict::Never(NodeReason::Exhausted.brief().into())
        } else {
            Verdict::Full(NodeReason::NotReached.brief().into())
        };
        let mut all = true;
        let room = room.filter(|_| cached.class.shares);
        let changes = self.generation - cached.judged_at;
        let Cached { class, verdicts, .. } = &mut cached;
        let lenses = Lenses::of(class);
        let mut looked = Looker {
            allocator: self,
            class,
            entries,
            texts: Map::default(),
            obstacles: Default::default(),
            loads: Vec::new(),
            scales: Scales::of(class),
            effort,
        };
        if changes > MANY && of_all.is_none() && room.is_none() {
            in_order(numbers, verdicts.len(), |number| {
                if own != Some(number) {
                    looked.refresh(&lenses, number, &mut verdicts[number as usize]);
                }
            });
        }
        for (at, number) in numbers.iter().enumerate() {
            let (at, number) = (at as u32, *number);
            let quota = room.as_ref().zip(number).map_or(Bound::Allows, |(room, number)| {
                looked.allocator.bound(looked.class, room, number)
            });
            match (&of_all, number) {
                (Some(verdict), _) => tell(at, verdict),
                (None, None) => tell(at, &unknown),
                (None, Some(_)) if matches!(quota, Bound::Forbids(_)) => {
                    let Bound::Forbids(reason) = quota else { continue };
                    tell(at, &Verdict::Never(looked.say(reason)));
                }
                // Such a verdict is of this pod, not of its class.
                (None, Some(number)) if own == Some(number) || matches!(quota, Bound::Depends) => {
                    if looked.effort.is_spent() {
                        all = false;
                        tell(at, &not_reached);
                        continue;
                    }
                    let looked = &mut looked;
                    let verdict = looked.allocator.with_view(request, number, &[], |_, view| {
                        looked.look(view, room.as_ref())
                    });
                    tell(at, &verdict);
                }
                (None, Some(number)) => {
                    let known = &mut verdicts[number as usize];
                    let is_fresh = known.0 == looked.allocator.generations[number as usize];
                    if is_fresh || looked.refresh(&lenses, number, known) {
                        tell(at, &known.1);
                    } else {
                        all = false;
                        tell(at, &not_reached);
                    }
                }
            }
        }
        self.entries = looked.entries;
        cached.judged_at = self.generation;
        self.cache.put(key, cached);
        all || effort.is_last()
    }
}

/// Each of the numbers once, from the least to the greatest: nodes lie in memory so, and those that are asked
/// about do not come so.
fn in_order(numbers: &[Option<u32>], count: usize, mut tell: impl FnMut(u32)) {
    let mut asked = vec![0_u64; count.div_ceil(64)];
    for number in numbers.iter().flatten() {
        asked[*number as usize / 64] |= 1 << (number % 64);
    }
    for (at, mut word) in (0..).zip(asked) {
        while word != 0 {
            tell(at * 64 + word.trailing_zeros());
            word &= word - 1;
        }
    }
}

impl Allocator {
    /// Whether one of these nodes would do, were it not for cards that are reserved, or held until `soon_ns` at most:
    /// what is promised so is bound in a moment, or free again without an event that anybody hears of. What is held
    /// for longer is as good as given.
    pub fn only_promised<N: AsRef<str>>(
        &mut self,
        request: &Request,
        names: &[N],
        now_ns: u64,
        soon_ns: u64,
    ) -> Result<bool, InvalidValue> {
        check::request(request)?;
        let mut effort = self.spending.question(&request.pod.namespace, now_ns);
        let found = self.is_only_promised(request, names, soon_ns, &mut effort);
        self.spending.count(&request.pod.namespace, &effort, now_ns);
        Ok(found)
    }

    fn is_only_promised<N: AsRef<str>>(
        &self,
        request: &Request,
        names: &[N],
        soon_ns: u64,
        effort: &mut Effort,
    ) -> bool {
        let others =
            || self.book.promised(soon_ns).filter(|other| other.pod.uid != request.pod.uid);
        let gone: Vec<&str> = others().map(|other| other.pod.uid.as_str()).collect();
        if gone.is_empty() {
            return false;
        }
        let mut class = Class::of(request);
        class.meet_models(&self.models);
        let names: HashSet<&str> = names.iter().map(AsRef::as_ref).collect();
        let mut nodes: Vec<u32> = others().map(|other| other.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.retain(|node| names.contains(&*self.node(*node).name));
        // A namespace's quota may be promised on nodes that would not do, and stands in the way on all.
        let quota = |gone: &[&str]| self.room(request, gone).and_then(|room| over(&class, &room));
        if quota(&[]).is_some() && quota(&gone).is_none() {
            return true;
        }
        let mut entries = Vec::new();
        nodes.into_iter().any(|node| {
            !effort.is_spent()
                && self.with_view(request, node, &gone, |allocator, view| {
                    let (effort, entries) = (&mut *effort, &mut entries);
                    allocator.try_fit(&class, request, view, &gone, effort, entries).is_ok()
                })
        })
    }
}

/// What quotas say of a pod on a node, before its cards are chosen.
enum Bound {
    /// Yes, whichever they are.
    Allows,
    /// No, whichever they are.
    Forbids(NodeReason),
    /// They say it of some.
    Depends,
}

impl Allocator {
    /// The cards of a node are mostly alike, and then which of them a share is of makes no difference.
    fn bound(&self, class: &Class, room: &Room<'_>, number: u32) -> Bound {
        let node = self.node(number);
        if node.mode == Mode::Mig {
            return Bound::Depends;
        }
        let limit = |facts, ask: &Ask| demand::limit(&ask.memory, facts);
        let most = |ask: &Ask| node.facts.iter().map(|facts| limit(facts, ask)).max().unwrap_or(0);
        let least = |ask: &Ask| node.facts.iter().map(|facts| limit(facts, ask)).min().unwrap_or(0);
        if room.over(&Spent::with(&class.asks, most)).is_none() {
            return Bound::Allows;
        }
        let over = room.over(&Spent::with(&class.asks, least));
        over.map_or(Bound::Depends, |over| Bound::Forbids(NodeReason::Quota(Box::new(over))))
    }
}

/// The quota that forbids such pods on whatever card.
fn over(class: &Class, room: &Room<'_>) -> Option<NodeReason> {
    let over = room.over(&Spent::of(&class.asks, |_| &[], false))?;
    Some(NodeReason::Quota(Box::new(over)))
}

/// Works verdicts out.
struct Looker<'a> {
    allocator: &'a Allocator,
    class: &'a Class,
    entries: Vec<Entry>,
    /// Nodes often have the same reason; it is put into words once.
    texts: Map<NodeReason, Arc<str>>,
    /// The same where it is nothing but the cards, by what stands in the way of the nearest one; the last
    /// is for none.
    obstacles: [Option<Arc<str>>; KINDS + 1],
    loads: Vec<(u8, crate::card::Use)>,
    scales: Scales,
    effort: &'a mut Effort,
}

impl Looker<'_> {
    /// Makes a verdict that of the node as it is; whether it is that now.
    fn refresh(
        &mut self,
        lenses: &Lenses<'_>,
        number: u32,
        (generation, verdict): &mut (u64, Verdict),
    ) -> bool {
        let now = self.allocator.generations[number as usize];
        if *generation == now {
            return true;
        }
        let glance = self.allocator.shelf.get(number);
        let lens = lenses.get(glance.mode, glance.placement);
        *verdict = if let Some(lens) = lens.filter(|_| !glance.cards.is_empty()) {
            self.glance(lens, &glance)
        } else if self.effort.is_spent() {
            return false;
        } else {
            self.look(&self.allocator.node(number).view(), None)
        };
        *generation = now;
        true
    }

    fn look(&mut self, view: &View<'_>, room: Option<&Room<'_>>) -> Verdict {
        let Self { class, effort, entries, .. } = self;
        match search::find(class, view, room, effort, entries) {
            Ok(()) => {
                score::loads(self.class, view, &self.entries, &mut self.loads);
                Verdict::Fits(score::score(self.class, view, &self.entries, &self.loads))
            }
            Err(reason) => self.refuse(view, reason),
        }
    }

    fn glance(&mut self, lens: &Lens<'_>, node: &Glance<'_>) -> Verdict {
        if let Some(score) = lens.look(node, &mut self.scales) {
            return Verdict::Fits(score);
        }
        let obstacle = lens.obstacle(node);
        let text = &mut self.obstacles[obstacle.unwrap_or(KINDS)];
        let text = text.get_or_insert_with(|| tally::brief(obstacle).into()).clone();
        if lens.never(node) { Verdict::Never(text) } else { Verdict::Full(text) }
    }

    fn refuse(&mut self, view: &View<'_>, reason: NodeReason) -> Verdict {
        let never =
            reason.is_lasting() || search::never(self.class, view, self.effort, &mut self.entries);
        let text = self.say(reason);
        if never { Verdict::Never(text) } else { Verdict::Full(text) }
    }

    fn say(&mut self, reason: NodeReason) -> Arc<str> {
        let text = |reason: &NodeReason| Arc::from(reason.brief());
        self.texts.entry(reason).or_insert_with_key(text).clone()
    }
}
