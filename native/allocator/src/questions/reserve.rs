//! Reserve: the promise of cards at bind; and holds, which keep the best node's cards until then.

use crate::engine::Allocator;
use crate::questions::judge;
use crate::rules::card::Standing;
use crate::rules::node_reason::NodeReason;
use crate::search::chosen;
use crate::search::effort::Effort;
use crate::state::book::{Holding, State};
use crate::wire::check;
use crate::wire::{Assignment, Request};
use hami_limits::InvalidValue;

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

    pub(crate) fn hold(&mut self, request: &Request, node: u32, now_ns: u64, hold_ns: u64) {
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
            let grants = chosen::grants(&cached.class, view, &entries);
            Ok(grants.into_iter().map(Into::into).collect())
        });
        self.entries = entries;
        self.cache.put(key, cached);
        plan
    }
}
