//! Filter, score, reserve: a pod's way to its node.
//!
//! Filter looks at nodes and remembers verdicts. It ends expired holds and changes nothing else.
//! Score answers from the same verdicts and holds the best node's cards for a moment, because kube-scheduler
//! binds asynchronously and filters the next pod meanwhile. Reserve is the promise at bind. A pod never stands in its
//! own way: on a node where it has an entry, it is judged as if it were not there.

use crate::book::{Holding, State};
use crate::card::Standing;
use crate::check;
use crate::effort::Effort;
use crate::engine::Allocator;
use crate::judge;
use crate::list::List;
use crate::names::Numbers;
use crate::plan;
use crate::rated::Rated;
use crate::reason::NodeReason;
use crate::verdict::Told;
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
        let numbers = self.names.get_all(names);
        Ok(self.filter_now(request, &numbers, now_ns))
    }

    /// The same of a JSON list.
    pub fn filter_list<'a>(
        &mut self,
        request: &Request,
        json: &'a [u8],
        now_ns: u64,
    ) -> Result<(List<'a>, Filtered), InvalidValue> {
        check::request(request)?;
        self.expire(now_ns);
        let list = List::read(json, &mut self.names)?;
        let filtered = self.filter_now(request, list.numbers(), now_ns);
        Ok((list, filtered))
    }

    /// The same of all nodes, by name, at a desk: nobody else waits, so that all of them are looked at at once.
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
        let numbers = self.names.get_all(&names);
        let filtered = self.filter_within(request, &numbers, &mut Effort::for_desk(), now_ns);
        Ok((names, filtered))
    }

    fn filter_now(&mut self, request: &Request, numbers: &Numbers, now_ns: u64) -> Filtered {
        let mut effort = self.spending.question(&request.pod.namespace, now_ns);
        let filtered = self.filter_within(request, numbers, &mut effort, now_ns);
        self.spending.count(&request.pod.namespace, &effort, now_ns);
        filtered
    }

    fn filter_within(
        &mut self,
        request: &Request,
        numbers: &Numbers,
        effort: &mut Effort,
        now_ns: u64,
    ) -> Filtered {
        let mut filtered = Filtered::default();
        let whole =
            self.judge(request, numbers.each(), effort, now_ns, |at, verdict| match verdict {
                Told::Fits(_) => filtered.feasible.push(at),
                Told::Full(why) => filtered.failed.push((at, why.clone())),
                Told::Unresolvable(why) => filtered.unresolvable.push((at, why.clone())),
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
        check::request(request)?;
        self.expire(now_ns);
        let numbers = self.names.get_all(names);
        Ok(self.rate(request, &numbers, now_ns, hold_ns).scores)
    }

    /// The same of a JSON list, and which is the best. What is known of the list need not be read.
    pub fn score_list<'a>(
        &mut self,
        request: &Request,
        json: &'a [u8],
        known: Option<List<'a>>,
        now_ns: u64,
        hold_ns: u64,
    ) -> Result<(List<'a>, Rated), InvalidValue> {
        check::request(request)?;
        self.expire(now_ns);
        let list = match known.filter(|known| self.names.are_still(known.numbers())) {
            Some(list) => list,
            None => List::read(json, &mut self.names)?,
        };
        let rated = self.rate(request, list.numbers(), now_ns, hold_ns);
        Ok((list, rated))
    }

    fn rate(&mut self, request: &Request, numbers: &Numbers, now_ns: u64, hold_ns: u64) -> Rated {
        let numbers = numbers.each();
        let mut scores = vec![0; numbers.len()];
        let (mut highest, mut equals) = (0, Vec::new());
        let mut effort = self.spending.question(&request.pod.namespace, now_ns);
        self.judge(request, numbers, &mut effort, now_ns, |at, verdict| {
            let Told::Fits(score) = verdict else { return };
            scores[at as usize] = score;
            if score > highest {
                highest = score;
                equals.clear();
            }
            if score == highest {
                equals.push(at);
            }
        });
        self.spending.count(&request.pod.namespace, &effort, now_ns);
        let known = |at: u32| Some((self.names.at(numbers[at as usize]?), at));
        let best = equals.into_iter().filter_map(known).min().map(|(_, at)| at as usize);
        if let Some(number) = best.and_then(|at| numbers[at]).filter(|_| hold_ns > 0) {
            self.hold(request, number, now_ns, hold_ns);
        }
        Rated { scores, best }
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
        let grants = self.plan(request, node, now_ns)?;
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

    fn hold(&mut self, request: &Request, node: u32, now_ns: u64, hold_ns: u64) {
        let held = self.book.find(&request.pod.uid).map(|holding| holding.state);
        if matches!(held, Some(State::Reserved | State::Placed)) {
            return;
        }
        if let Ok(grants) = self.plan(request, node, now_ns) {
            let until_ns = now_ns.saturating_add(hold_ns);
            self.enter(request, grants, node, State::Held { until_ns }, false);
        }
    }

    /// What each ask would be given on that node.
    fn plan(
        &mut self,
        request: &Request,
        node: u32,
        now_ns: u64,
    ) -> Result<crate::Grants, NodeReason> {
        let (key, mut cached) = self.cache.take(request, now_ns);
        cached.class.meet_models(&self.models);
        let mut entries = std::mem::take(&mut self.entries);
        let room = self.room(request, &[]);
        let plan = self.with_view(request, node, &[], |view| {
            let effort = &mut Effort::for_node();
            judge::try_fit(&cached.class, view, room.as_ref(), effort, &mut entries)?;
            let grants = plan::grants(&cached.class, view, &entries);
            Ok(grants.into_iter().map(Into::into).collect())
        });
        self.entries = entries;
        self.cache.put(key, cached);
        plan
    }
}
