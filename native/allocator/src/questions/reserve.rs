//! Reserve: allocates the cards of a pod when it is bound, or holds them for a moment after it was
//! scored.

use crate::engine::Allocator;
use crate::questions::judge;
use crate::rules::card::CardState;
use crate::rules::node_reason::NodeReason;
use crate::search::chosen;
use crate::search::effort::Effort;
use crate::state::allocations::{PodAllocation, State};
use crate::wire::check;
use crate::wire::{Assignment, PodRequest};
use hami_limits::InvalidValue;

/// Why nothing was reserved.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The request is invalid.
    Invalid(InvalidValue),
    /// The node does not fit.
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
    /// Reserves cards on a node. Repeating it for the same pod and node returns the same
    /// assignment, as long as its cards take new pods.
    pub fn reserve(
        &mut self,
        request: &PodRequest,
        name: &str,
        now_ns: u64,
    ) -> Result<Assignment, Refusal> {
        check::request(request)?;
        self.expire(now_ns);
        if let Some(allocation) = self.allocations.find(&request.pod.uid) {
            let there = self.node(allocation.node).name.clone();
            let stands = match allocation.state {
                State::Held { .. } => false,
                State::Reserved => self.takes_new_pods(allocation),
                State::Placed => true,
            };
            if *there == *name && stands {
                return Ok(allocation.assignment(name));
            }
            if allocation.state == State::Placed {
                return Err(NodeReason::Elsewhere(there).into());
            }
        }
        let node = self.number(name).ok_or(NodeReason::NoCards)?;
        let container_cards = self.plan(request, node, &[], now_ns)?;
        let number = self.add(request, container_cards, node, State::Reserved, false);
        Ok(self.allocations.get(number).assignment(name))
    }

    /// Whether the cards still take new pods: one may have failed since it was reserved.
    fn takes_new_pods(&self, allocation: &PodAllocation) -> bool {
        let node = self.node(allocation.node);
        let is_healthy = |uuid: &str| {
            node.card_index(uuid)
                .is_some_and(|card| node.facts[usize::from(card)].state == CardState::Schedulable)
        };
        node.present
            && allocation.container_cards.iter().flatten().all(|card| is_healthy(&card.card))
    }

    pub(crate) fn hold(&mut self, request: &PodRequest, node: u32, now_ns: u64, hold_ns: u64) {
        let held = self.allocations.find(&request.pod.uid).map(|allocation| allocation.state);
        if matches!(held, Some(State::Reserved | State::Placed)) {
            return;
        }
        if let Ok(container_cards) = self.plan(request, node, &[], now_ns) {
            let until_ns = now_ns.saturating_add(hold_ns);
            self.add(request, container_cards, node, State::Held { until_ns }, false);
        }
    }

    /// Holds the cards that a pod gets on a node without its victims, until the hold is ended. While
    /// the victims are there, more is allocated than the cards have. A pod that has an allocation
    /// keeps it.
    pub fn hold_freed<N: AsRef<str>>(
        &mut self,
        request: &PodRequest,
        name: &str,
        victims: &[N],
        now_ns: u64,
    ) -> Result<(), InvalidValue> {
        check::request(request)?;
        let has = self.allocations.number(&request.pod.uid).is_some();
        let Some(node) = self.number(name).filter(|_| !has) else { return Ok(()) };
        let victims: Vec<&str> = victims.iter().map(AsRef::as_ref).collect();
        if let Ok(container_cards) = self.plan(request, node, &victims, now_ns) {
            self.add(request, container_cards, node, State::Held { until_ns: u64::MAX }, false);
        }
        Ok(())
    }

    /// The cards of each container on this node, without the pods in `removed`.
    fn plan(
        &mut self,
        request: &PodRequest,
        node: u32,
        removed: &[&str],
        now_ns: u64,
    ) -> Result<crate::ContainerCards, NodeReason> {
        let (key, mut cached) = self.cache.take(request, now_ns);
        cached.class.meet_models(&self.models);
        let mut chosen = std::mem::take(&mut self.chosen);
        let room = self.room(request, removed);
        let plan = self.with_view(request, node, removed, |view| {
            let effort = &mut Effort::for_node();
            judge::try_fit(&cached.class, view, room.as_ref(), effort, &mut chosen)?;
            let container_cards = chosen::container_cards(&cached.class, view, &chosen);
            Ok(container_cards.into_iter().map(Into::into).collect())
        });
        self.chosen = chosen;
        self.cache.put(key, cached);
        plan
    }
}
