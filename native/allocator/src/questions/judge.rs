//! One request, one node or thousands: a verdict for each.
//!
//! Verdicts come from the cache where nothing about the pod itself matters: not on the node where it has an entry. Where
//! a quota counts what only the chosen card decides, they are remembered with what they were found for.

use crate::engine::Allocator;
use crate::rules::card_reason::{self, KINDS};
use crate::rules::class::Class;
use crate::rules::fullness::Scale;
use crate::rules::node_reason::NodeReason;
use crate::rules::quota::{self, Allowance, Bound, Room};
use crate::rules::view::View;
use crate::search::chosen::{self, Entry};
use crate::search::effort::Effort;
use crate::search::find;
use crate::search::score;
use crate::speed::answers::{Answer, Answers};
use crate::speed::cache::Cached;
use crate::speed::fast_path::{FastPath, Unfit};
use crate::speed::verdict::{Verdict, Verdicts};
use crate::state::book::Holding;
use crate::state::node;
use crate::wire::Request;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Where more has changed since a class was judged, nodes are looked at in the order of memory.
const MANY: u32 = 256;

impl Allocator {
    /// Looks at a node as it would be without this pod and those.
    pub(crate) fn with_view<T>(
        &self,
        request: &Request,
        number: u32,
        gone: &[&str],
        look: impl FnOnce(&View<'_>) -> T,
    ) -> T {
        let node = self.node(number);
        let here = |uid: &str| self.book.find(uid).is_some_and(|holding| holding.node == number);
        if gone.is_empty() && !here(&request.pod.uid) {
            return look(&node.view());
        }
        let stays = |holding: &&Holding| {
            let uid = holding.pod.uid.as_str();
            uid != request.pod.uid && !gone.contains(&uid)
        };
        let pods = node.pods.iter().map(|pod| self.book.get(*pod)).filter(stays);
        let (mut used, mut rooms) = (Vec::new(), Vec::new());
        let charges = pods.flat_map(|holding| &holding.charges);
        let totals = node::sum(&mut used, &mut rooms, &node.facts, charges);
        look(&node.view_with(&rooms, &used, totals))
    }

    /// What its namespace's quotas leave the pod without itself and those; `None`: there are none.
    pub(crate) fn room(&self, request: &Request, gone: &[&str]) -> Option<Room<'_>> {
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
        now_ns: u64,
        mut tell: impl FnMut(u32, &Verdict),
    ) -> bool {
        let (key, mut cached) = self.cache.take(request, now_ns);
        cached.class.meet_models(&self.models);
        cached.verdicts.resize(self.nodes.len());
        let entries = std::mem::take(&mut self.entries);
        let own = self.book.find(&request.pod.uid).map(|holding| holding.node);
        let room = self.room(request, &[]);
        let of_all = room.as_ref().and_then(|room| quota::over(&cached.class, room));
        let of_all = of_all.map(|reason| Verdict::Unresolvable(reason.brief().into()));
        let unknown = Verdict::Unresolvable(NodeReason::NoCards.brief().into());
        // Nobody is evicted where there may be room.
        let not_reached = if effort.is_last() {
            Verdict::Unresolvable(NodeReason::Exhausted.brief().into())
        } else {
            Verdict::Full(NodeReason::NotReached.brief().into())
        };
        let mut all = true;
        // What is counted besides memory does not depend on the cards.
        let room = room.filter(|room| cached.class.shares && room.left_mib() < u64::MAX);
        let left_mib = room.as_ref().map_or(u64::MAX, Room::left_mib);
        let changes = self.generation - cached.judged_at;
        let Cached { class, verdicts, within, .. } = &mut cached;
        let mut looked = Looker::new(self, class, entries, effort);
        if changes > MANY && of_all.is_none() && room.is_none() {
            in_order(numbers, verdicts.len(), |number| {
                if own != Some(number) {
                    looked.refresh(number, verdicts);
                }
            });
        }
        for (at, number) in numbers.iter().enumerate() {
            let at = at as u32;
            let Some(number) = number.filter(|_| of_all.is_none()) else {
                tell(at, of_all.as_ref().unwrap_or(&unknown));
                continue;
            };
            let bound = |room| {
                let node = looked.allocator.node(number);
                Bound::of(looked.class, room, node.mode, &node.facts)
            };
            let found = match room.as_ref().map(|room| (room, bound(room))) {
                Some((_, Bound::Forbids(reason))) => {
                    Some(Verdict::Unresolvable(looked.say(reason)))
                }
                // Such a verdict is of this pod, not of its class.
                _ if own == Some(number) => looked.without_itself(request, room.as_ref(), number),
                Some((room, Bound::Depends)) => {
                    within.resize_with(verdicts.len(), Answers::default);
                    looked.within(room, left_mib, number, &mut within[number as usize])
                }
                _ => {
                    let now = looked.allocator.generations[number as usize];
                    if verdicts.get(number, now).is_none() {
                        looked.refresh(number, verdicts);
                    }
                    if let Some(known) = verdicts.get(number, now) {
                        tell(at, known);
                        continue;
                    }
                    None
                }
            };
            all &= found.is_some();
            tell(at, found.as_ref().unwrap_or(&not_reached));
        }
        let Looker { entries, looks, .. } = looked;
        (self.entries, self.looks) = (entries, self.looks + looks);
        cached.judged_at = self.generation;
        cached.left_at_ns = (!all).then_some(now_ns);
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

/// Cards for pods of a class on a node, with what the namespace's quotas leave.
pub(crate) fn try_fit(
    class: &Class,
    view: &View<'_>,
    room: Option<&Room<'_>>,
    effort: &mut Effort,
    entries: &mut Vec<Entry>,
) -> Result<(), NodeReason> {
    if let Some(over) = room.and_then(|room| quota::over(class, room)) {
        return Err(over);
    }
    let quota = room.filter(|_| class.shares).map(Allowance::of);
    find::find(class, view, quota.as_ref(), effort, entries)
}

/// For one question.
pub struct Looker<'a> {
    /// The nodes.
    pub allocator: &'a Allocator,
    /// What they are looked at for.
    pub class: &'a Class,
    /// For searches.
    pub entries: Vec<Entry>,
    /// What the question has taken.
    pub effort: &'a mut Effort,
    /// At how many nodes.
    pub looks: u64,
    /// Nodes often have the same reason; it is put into words once.
    texts: FxHashMap<NodeReason, Arc<str>>,
    /// The same where it is nothing but the cards, by what stands in the way of the nearest one; the last
    /// is for none.
    obstacles: [Option<Arc<str>>; KINDS + 1],
    loads: Vec<(u8, crate::rules::card::Use)>,
    fast: FastPath<'a>,
    scale: Scale,
}

impl<'a> Looker<'a> {
    /// One that has not looked yet.
    pub fn new(
        allocator: &'a Allocator,
        class: &'a Class,
        entries: Vec<Entry>,
        effort: &'a mut Effort,
    ) -> Self {
        let (texts, obstacles, loads) = (FxHashMap::default(), Default::default(), Vec::new());
        let (fast, scale) = (FastPath::of(class), class.scale());
        Self { allocator, class, entries, effort, looks: 0, texts, obstacles, loads, fast, scale }
    }

    /// Makes a verdict that of the node as it is; whether it is that now.
    pub fn refresh(&mut self, number: u32, verdicts: &mut Verdicts) -> bool {
        let now = self.allocator.generations[number as usize];
        if verdicts.get(number, now).is_some() {
            return true;
        }
        let verdict = match self.fast.judge(&self.allocator.table.get(number)) {
            Some(Ok(score)) => self.count(Verdict::Fits(score)),
            Some(Err(unfit)) => {
                let full = self.full(&unfit);
                self.count(full)
            }
            None if self.effort.is_spent() => return false,
            None => self.look(&self.allocator.node(number).view(), None),
        };
        verdicts.set(number, now, verdict);
        true
    }

    /// The verdict of the node as it is where a quota's answer depends on the cards, if there is time to find it out.
    pub fn within(
        &mut self,
        room: &Room<'_>,
        left_mib: u64,
        number: u32,
        known: &mut Answers,
    ) -> Option<Verdict> {
        let now = self.allocator.generations[number as usize];
        if let Some(answer) = known.find(now, left_mib) {
            return Some(answer.verdict(room, |over| Verdict::Unresolvable(self.say(over))));
        }
        if self.effort.is_spent() {
            return None;
        }
        let allowance = Allowance::of(room);
        let verdict = self.look(&self.allocator.node(number).view(), Some(&allowance));
        known.add(now, Answer::of(&allowance, &verdict));
        Some(verdict)
    }

    /// The verdict of a node without the pod that is asked for, if there is time to find it out.
    pub fn without_itself(
        &mut self,
        request: &Request,
        room: Option<&Room<'_>>,
        number: u32,
    ) -> Option<Verdict> {
        let quota = room.map(Allowance::of);
        (!self.effort.is_spent()).then(|| {
            self.allocator.with_view(request, number, &[], |view| self.look(view, quota.as_ref()))
        })
    }

    /// The verdict of a node that looks so.
    fn look(&mut self, view: &View<'_>, quota: Option<&Allowance<'_>>) -> Verdict {
        self.looks += 1;
        let Self { class, effort, entries, .. } = self;
        match find::find(class, view, quota, effort, entries) {
            Ok(()) => {
                chosen::loads(self.class, view, &self.entries, &mut self.loads);
                Verdict::Fits(score::score(
                    self.class,
                    &mut self.scale,
                    view,
                    &self.entries,
                    &self.loads,
                ))
            }
            Err(reason) => self.unfit(view, reason),
        }
    }

    fn count(&mut self, verdict: Verdict) -> Verdict {
        self.looks += 1;
        verdict
    }

    fn full(&mut self, unfit: &Unfit) -> Verdict {
        let Unfit { nearest, when_empty } = *unfit;
        let text = &mut self.obstacles[nearest.unwrap_or(KINDS)];
        let text = text.get_or_insert_with(|| card_reason::brief(nearest).into()).clone();
        if when_empty { Verdict::Unresolvable(text) } else { Verdict::Full(text) }
    }

    fn unfit(&mut self, view: &View<'_>, reason: NodeReason) -> Verdict {
        let unresolvable = reason.is_lasting()
            || find::unfit_when_empty(self.class, view, self.effort, &mut self.entries);
        let text = self.say(reason);
        if unresolvable { Verdict::Unresolvable(text) } else { Verdict::Full(text) }
    }

    /// A reason in words.
    pub fn say(&mut self, reason: NodeReason) -> Arc<str> {
        let text = |reason: &NodeReason| Arc::from(reason.brief());
        self.texts.entry(reason).or_insert_with_key(text).clone()
    }
}
