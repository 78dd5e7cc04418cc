//! Filter, score, reserve: a pod's way to its node.
//!
//! Filter looks at nodes and remembers verdicts. It ends expired holds and changes nothing else.
//! Score answers from the same verdicts and holds the best node's cards for a moment, because kube-scheduler
//! binds asynchronously and filters the next pod meanwhile. Reserve is the promise at bind. A pod never stands in its
//! own way: on a node where it has an entry, it is judged as if it were not there.

use crate::book::{Holding, State};
use crate::cache::Verdict;
use crate::card::Standing;
use crate::check;
use crate::effort::Effort;
use crate::engine::Allocator;
use crate::names::Numbers;
use crate::plan;
use crate::reason::NodeReason;
use crate::wire::{Assignment, Request};
use hami_limits::InvalidValue;
use std::sync::Arc;

/// Where a pod could go. Nodes are positions in the names that were given, in their order.
#[derive(Debug, Default)]
pub struct Filtered {
    /// Nodes that do.
    pub feasible: Vec<u32>,
    /// Nodes that are full, and why.
    pub failed: Vec<(u32, Arc<str>)>,
    /// Nodes where no eviction would help, and why: they would not do if they were empty either, a quota is
    /// used up, or the namespace's time for looking is.
    pub unresolvable: Vec<(u32, Arc<str>)>,
    /// Some of those that are called full were not looked at: the next time more will be known.
    pub is_partial: bool,
    /// Of the nodes that do.
    pub numbers: Numbers,
}

/// How good nodes are. Nodes are positions in the names that were given.
#[derive(Debug, Default)]
pub struct Rated {
    /// 0 to 10,000 for each, 0 where the pod does not fit.
    pub scores: Vec<u16>,
    /// The best one: of equal ones the first by name.
    pub best: Option<usize>,
}

/// Why nothing was reserved.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The request cannot be.
    Invalid(InvalidValue),
    /// The node does not do.
    Unfit(NodeReason),
}

impl From<InvalidValue> for Refusal {
    fn from(error: InvalidValue) -> Self {
        Self::Invalid(error)
    }
}

impl From<NodeReason> for Refusal {
    fn from(reason: NodeReason) -> Self {
        Self::Unfit(reason)
    }
}

impl Allocator {
    /// Which of these nodes do, and why the others do not.
    pub fn filter<N: AsRef<str>>(
        &mut self,
        request: &Request,
        names: &[N],
        now_ns: u64,
    ) -> Result<Filtered, InvalidValue> {
        check::request(request)?;
        self.expire(now_ns);
        let mut effort = self.spending.question(&request.pod.namespace, now_ns);
        let filtered = self.filter_within(request, names, &mut effort);
        self.spending.count(&request.pod.namespace, &effort, now_ns);
        Ok(filtered)
    }

    /// The same of all nodes, by name, at a desk: nobody else waits, so that more of a hard choice is looked at.
    #[allow(clippy::type_complexity, reason = "all names, and where the pod could go")]
    pub fn filter_all(
        &mut self,
        request: &Request,
        now_ns: u64,
    ) -> Result<(Vec<Arc<str>>, Filtered), InvalidValue> {
        check::request(request)?;
        self.expire(now_ns);
        let names: Vec<Arc<str>> =
            self.present().iter().map(|number| self.node(*number).name.clone()).collect();
        let filtered = self.filter_within(request, &names, &mut Effort::for_desk());
        Ok((names, filtered))
    }

    fn filter_within<N: AsRef<str>>(
        &mut self,
        request: &Request,
        names: &[N],
        effort: &mut Effort,
    ) -> Filtered {
        let mut filtered = Filtered::default();
        let numbers = self.names.get_all(names, &mut self.filtered_names);
        let whole = self.judge(request, numbers.each(), effort, |at, verdict| match verdict {
            Verdict::Fits(_) => filtered.feasible.push(at),
            Verdict::Full(why) => filtered.failed.push((at, why.clone())),
            Verdict::Never(why) => filtered.unresolvable.push((at, why.clone())),
        });
        filtered.is_partial = !whole;
        filtered.numbers = numbers.of(&filtered.feasible);
        filtered
    }

    /// 0 to 10,000 for each of these nodes, and cards held on the best one for so long.
    pub fn score<N: AsRef<str>>(
        &mut self,
        request: &Request,
        names: &[N],
        now_ns: u64,
        hold_ns: u64,
    ) -> Result<Vec<u16>, InvalidValue> {
        Ok(self.rate(request, names, None, now_ns, hold_ns)?.scores)
    }

    /// The same, and which is the best. Numbers that are known from a filter need not be looked up.
    pub fn rate<N: AsRef<str>>(
        &mut self,
        request: &Request,
        names: &[N],
        known: Option<&Numbers>,
        now_ns: u64,
        hold_ns: u64,
    ) -> Result<Rated, InvalidValue> {
        check::request(request)?;
        self.expire(now_ns);
        let known = known.filter(|known| self.names.are_still(known));
        let looked_up;
        let numbers = if let Some(known) = known {
            known.each()
        } else {
            looked_up = self.names.get_all(names, &mut self.scored_names);
            looked_up.each()
        };
        let mut scores = vec![0; names.len()];
        let mut best: Option<(u16, usize)> = None;
        let mut effort = self.spending.question(&request.pod.namespace, now_ns);
        self.judge(request, numbers, &mut effort, |at, verdict| {
            let Verdict::Fits(score) = verdict else { return };
            let at = at as usize;
            scores[at] = *score;
            let better = best.is_none_or(|(most, first)| {
                *score > most || (*score == most && names[at].as_ref() < names[first].as_ref())
            });
            if better {
                best = Some((*score, at));
            }
        });
        self.spending.count(&request.pod.namespace, &effort, now_ns);
        let best = best.map(|(_, at)| at);
        if let Some(at) = best.filter(|_| hold_ns > 0) {
            self.hold(request, names[at].as_ref(), now_ns.saturating_add(hold_ns));
        }
        Ok(Rated { scores, best })
    }

    /// Promises cards on this node. The same again for the same pod and node is the same answer, as long
    /// as its cards may be given.
    pub fn reserve(
        &mut self,
        request: &Request,
        name: &str,
        now_ns: u64,
    ) -> Result<Assignment, Refusal> {
        check::request(request)?;
        self.expire(now_ns);
        if let Some(holding) = self.book.find(&request.pod.uid) {
            let there = self.node(holding.node).name.clone();
            let stands = match holding.state {
                State::Held { .. } => false,
                State::Reserved => self.is_open(holding),
                State::Placed => true,
            };
            if *there == *name && stands {
                return Ok(holding.assignment(name));
            }
            if holding.state == State::Placed {
                return Err(NodeReason::Elsewhere(there).into());
            }
        }
        let node = self.number(name).ok_or(NodeReason::NoCards)?;
        let grants = self.plan(request, node)?;
        let number = self.enter(request, grants, node, State::Reserved, false);
        Ok(self.book.get(number).assignment(name))
    }

    /// Whether the cards may still be given: one may have failed since they were promised.
    fn is_open(&self, holding: &Holding) -> bool {
        let node = self.node(holding.node);
        let open = |uuid: &str| {
            node.place(uuid)
                .is_some_and(|card| node.facts[usize::from(card)].standing == Standing::Open)
        };
        node.present && holding.grants.iter().flatten().all(|grant| open(&grant.card))
    }

    fn hold(&mut self, request: &Request, name: &str, until_ns: u64) {
        let held = self.book.find(&request.pod.uid).map(|holding| holding.state);
        if matches!(held, Some(State::Reserved | State::Placed)) {
            return;
        }
        let Some(node) = self.number(name) else { return };
        if let Ok(grants) = self.plan(request, node) {
            self.enter(request, grants, node, State::Held { until_ns }, false);
        }
    }

    /// What each ask would be given on that node.
    fn plan(&mut self, request: &Request, node: u32) -> Result<crate::Grants, NodeReason> {
        let (key, mut cached) = self.cache.take(request);
        cached.class.meet_models(&self.models);
        let mut entries = std::mem::take(&mut self.entries);
        let plan = self.with_view(request, node, &[], |allocator, view| {
            let effort = &mut Effort::for_node();
            allocator.try_fit(&cached.class, request, view, &[], effort, &mut entries)?;
            let grants = plan::grants(&cached.class, view, &entries);
            Ok(grants.into_iter().map(Into::into).collect())
        });
        self.entries = entries;
        self.cache.put(key, cached);
        plan
    }
}
