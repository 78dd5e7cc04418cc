//! Judge: the verdicts on one node or thousands of nodes for one request.
//!
//! Verdicts come from the cache, except on a node where the pod itself has an allocation. If a
//! quota depends on the chosen card, verdicts are cached together with what the quota left
//! ([`crate::speed::answers`]).

use crate::engine::Allocator;
use crate::rules::card_reason::{self, KINDS};
use crate::rules::class::Class;
use crate::rules::fullness::Scale;
use crate::rules::node_reason::NodeReason;
use crate::rules::quota::{self, Bound, QuotaCheck, QuotaRoom};
use crate::rules::view::View;
use crate::search::chosen::{self, ChosenCard};
use crate::search::effort::Effort;
use crate::search::find;
use crate::search::score;
use crate::speed::answers::{Answer, Answers};
use crate::speed::cache::Cached;
use crate::speed::fast_path::{FastPath, Unfit};
use crate::speed::verdict::{Verdict, Verdicts};
use crate::state::allocations::PodAllocation;
use crate::state::node;
use crate::wire::PodRequest;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// If more nodes than this have changed since the class was judged, they are read in the order of
/// memory.
const MANY: u32 = 256;

impl Allocator {
    /// Calls `look` with the view of a node without this pod and the pods in `removed`.
    pub(crate) fn with_view<T>(
        &self,
        request: &PodRequest,
        number: u32,
        removed: &[&str],
        look: impl FnOnce(&View<'_>) -> T,
    ) -> T {
        let node = self.node(number);
        let here = |uid: &str| {
            self.allocations.find(uid).is_some_and(|allocation| allocation.node == number)
        };
        if removed.is_empty() && !here(&request.pod.uid) {
            return look(&node.view());
        }
        let stays = |allocation: &&PodAllocation| {
            let uid = allocation.pod.uid.as_str();
            uid != request.pod.uid && !removed.contains(&uid)
        };
        let pods = node.pods.iter().map(|pod| self.allocations.get(*pod)).filter(stays);
        let (mut allocated, mut rooms) = (Vec::new(), Vec::new());
        let charges = pods.flat_map(|allocation| &allocation.charges);
        let totals = node::sum(&mut allocated, &mut rooms, &node.facts, charges);
        look(&node.view_with(&rooms, &allocated, totals))
    }

    /// The room that the quotas leave for the pod, without the pod and the pods in `removed`;
    /// `None` if there are no quotas.
    pub(crate) fn room(&self, request: &PodRequest, removed: &[&str]) -> Option<QuotaRoom<'_>> {
        let out = removed
            .iter()
            .copied()
            .filter(|uid| *uid != request.pod.uid)
            .chain([request.pod.uid.as_str()]);
        let out = out.filter_map(|uid| self.allocations.find(uid));
        let mine = out.filter(|allocation| allocation.pod.namespace == request.pod.namespace);
        self.quotas.room(&request.pod.namespace, mine.map(|allocation| &allocation.quota_use))
    }

    /// Reports a verdict for each node. Returns whether judging again would report the same.
    pub(crate) fn judge(
        &mut self,
        request: &PodRequest,
        numbers: &[Option<u32>],
        effort: &mut Effort,
        now_ns: u64,
        mut tell: impl FnMut(u32, &Verdict),
    ) -> bool {
        let (key, mut cached) = self.cache.take(request, now_ns);
        cached.class.meet_models(&self.models);
        cached.verdicts.resize(self.nodes.len());
        let chosen = std::mem::take(&mut self.chosen);
        let own = self.allocations.find(&request.pod.uid).map(|allocation| allocation.node);
        let room = self.room(request, &[]);
        let of_all = room.as_ref().and_then(|room| quota::over(&cached.class, room));
        let of_all = of_all.map(|reason| Verdict::Unresolvable(reason.brief().into()));
        let unknown = Verdict::Unresolvable(NodeReason::NoCards.brief().into());
        // No pod must be evicted if there may be room without it.
        let not_reached = if effort.is_last() {
            Verdict::Unresolvable(NodeReason::Exhausted.brief().into())
        } else {
            Verdict::Full(NodeReason::NotReached.brief().into())
        };
        let mut all = true;
        // Cards and cores do not depend on the chosen card; only memory does.
        let room = room.filter(|room| cached.class.shares && room.free_mib() < u64::MAX);
        let left_mib = room.as_ref().map_or(u64::MAX, QuotaRoom::free_mib);
        let changes = self.generation - cached.judged_at;
        let Cached { class, verdicts, within, .. } = &mut cached;
        let mut judge = Judge::new(self, class, chosen, effort);
        if changes > MANY && of_all.is_none() && room.is_none() {
            in_order(numbers, verdicts.len(), |number| {
                if own != Some(number) {
                    judge.refresh(number, verdicts);
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
                let node = judge.allocator.node(number);
                Bound::of(judge.class, room, node.has_mig, &node.facts)
            };
            let found = match room.as_ref().map(|room| (room, bound(room))) {
                Some((_, Bound::Forbids(reason))) => Some(Verdict::Unresolvable(judge.say(reason))),
                // Such a verdict is for this pod, not for its class.
                _ if own == Some(number) => judge.without_itself(request, room.as_ref(), number),
                Some((room, Bound::Depends)) => {
                    within.resize_with(verdicts.len(), Answers::default);
                    judge.within(room, left_mib, number, &mut within[number as usize])
                }
                _ => {
                    let now = judge.allocator.generations[number as usize];
                    if verdicts.get(number, now).is_none() {
                        judge.refresh(number, verdicts);
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
        let Judge { chosen, evaluations, .. } = judge;
        (self.chosen, self.evaluations) = (chosen, self.evaluations + evaluations);
        cached.judged_at = self.generation;
        cached.left_at_ns = (!all).then_some(now_ns);
        self.cache.put(key, cached);
        all || effort.is_last()
    }
}

/// Calls `tell` with each of the numbers once, in ascending order, which is the order of the nodes
/// in memory.
fn in_order(numbers: &[Option<u32>], count: usize, mut tell: impl FnMut(u32)) {
    let mut requested = vec![0_u64; count.div_ceil(64)];
    for number in numbers.iter().flatten() {
        requested[*number as usize / 64] |= 1 << (number % 64);
    }
    for (at, mut word) in (0..).zip(requested) {
        while word != 0 {
            tell(at * 64 + word.trailing_zeros());
            word &= word - 1;
        }
    }
}

/// Finds cards for a class on a node within the quotas.
pub(crate) fn try_fit(
    class: &Class,
    view: &View<'_>,
    room: Option<&QuotaRoom<'_>>,
    effort: &mut Effort,
    chosen: &mut Vec<ChosenCard>,
) -> Result<(), NodeReason> {
    if let Some(over) = room.and_then(|room| quota::over(class, room)) {
        return Err(over);
    }
    let quota = room.filter(|_| class.shares).map(QuotaCheck::of);
    find::find(class, view, quota.as_ref(), effort, chosen)
}

/// Judges nodes for one question.
pub struct Judge<'a> {
    /// The state.
    pub allocator: &'a Allocator,
    /// The class of the request.
    pub class: &'a Class,
    /// The buffer of a search.
    pub chosen: Vec<ChosenCard>,
    /// The steps of the question.
    pub effort: &'a mut Effort,
    /// The number of evaluated nodes.
    pub evaluations: u64,
    /// The texts of reasons. Many nodes have the same reason.
    texts: FxHashMap<NodeReason, Arc<str>>,
    /// The texts of the fast path, by the kind of the card that is closest to fitting; the last one
    /// is for a node with too few cards.
    obstacles: [Option<Arc<str>>; KINDS + 1],
    loads: Vec<(u8, crate::rules::card::Allocated)>,
    fast: FastPath<'a>,
    scale: Scale,
}

impl<'a> Judge<'a> {
    /// A judge that has not evaluated any node.
    pub fn new(
        allocator: &'a Allocator,
        class: &'a Class,
        chosen: Vec<ChosenCard>,
        effort: &'a mut Effort,
    ) -> Self {
        let (texts, obstacles, loads) = (FxHashMap::default(), Default::default(), Vec::new());
        let (fast, scale) = (FastPath::of(class), class.scale());
        Self {
            allocator,
            class,
            chosen,
            effort,
            evaluations: 0,
            texts,
            obstacles,
            loads,
            fast,
            scale,
        }
    }

    /// Updates the verdict on a node. Returns false if there are no steps left for it.
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

    /// The verdict on a node if it depends on a quota; `None` if there are no steps left for it.
    pub fn within(
        &mut self,
        room: &QuotaRoom<'_>,
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
        let allowance = QuotaCheck::of(room);
        let verdict = self.look(&self.allocator.node(number).view(), Some(&allowance));
        known.add(now, Answer::of(&allowance, &verdict));
        Some(verdict)
    }

    /// The verdict on a node without the pod itself; `None` if there are no steps left for it.
    pub fn without_itself(
        &mut self,
        request: &PodRequest,
        room: Option<&QuotaRoom<'_>>,
        number: u32,
    ) -> Option<Verdict> {
        let quota = room.map(QuotaCheck::of);
        (!self.effort.is_spent()).then(|| {
            self.allocator.with_view(request, number, &[], |view| self.look(view, quota.as_ref()))
        })
    }

    /// The verdict on a view of a node, by a search.
    fn look(&mut self, view: &View<'_>, quota: Option<&QuotaCheck<'_>>) -> Verdict {
        self.evaluations += 1;
        let Self { class, effort, chosen, .. } = self;
        match find::find(class, view, quota, effort, chosen) {
            Ok(()) => {
                chosen::loads(self.class, view, &self.chosen, &mut self.loads);
                Verdict::Fits(score::score(
                    self.class,
                    &mut self.scale,
                    view,
                    &self.chosen,
                    &self.loads,
                ))
            }
            Err(reason) => self.unfit(view, reason),
        }
    }

    fn count(&mut self, verdict: Verdict) -> Verdict {
        self.evaluations += 1;
        verdict
    }

    fn full(&mut self, unfit: &Unfit) -> Verdict {
        let Unfit { nearest, when_empty } = *unfit;
        let text = &mut self.obstacles[nearest.unwrap_or(KINDS)];
        let text = text.get_or_insert_with(|| card_reason::brief(nearest).into()).clone();
        if when_empty { Verdict::Unresolvable(text) } else { Verdict::Full(text) }
    }

    fn unfit(&mut self, view: &View<'_>, reason: NodeReason) -> Verdict {
        let Self { class, effort, chosen, .. } = self;
        let (reason, unresolvable) = find::lasting(class, view, reason, effort, chosen);
        let text = self.say(reason);
        if unresolvable { Verdict::Unresolvable(text) } else { Verdict::Full(text) }
    }

    /// The text of a reason.
    pub fn say(&mut self, reason: NodeReason) -> Arc<str> {
        let text = |reason: &NodeReason| Arc::from(reason.brief());
        self.texts.entry(reason).or_insert_with_key(text).clone()
    }
}
