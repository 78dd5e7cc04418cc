//! `ResourceQuota` objects with HAMi's `limits.` names: cards, memory and cores.
//!
//! The API server does not enforce these names, and it would count containers instead of cards. So
//! the allocator counts all pods of a namespace against each quota of the namespace. Memory that is
//! requested as a share of a card counts as the limit on the allocated card, so it is only known
//! when the cards are chosen.

use crate::rules::card::Facts;
use crate::rules::class::Class;
use crate::rules::demand;
use crate::rules::node_reason::{NodeReason, QuotaReason};
use crate::wire::{CardAllocation, ContainerRequest, Kind, Memory, Quota};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;

/// The use of a quota by a pod, or by all pods of a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaUse {
    /// Cards, summed over containers.
    pub cards: u64,
    /// MiB, summed over the cards of all containers.
    pub memory_mib: u64,
    /// Percent, summed over the cards of all containers.
    pub cores: u64,
}

impl QuotaUse {
    /// The use of a pod: the peak over its phases, or without its init containers once it has
    /// `started`.
    pub fn of<'a>(
        containers: &[ContainerRequest],
        container_cards: impl Fn(usize) -> &'a [CardAllocation],
        started: bool,
    ) -> Self {
        Self::sum(
            containers,
            |at| container_cards(at).iter().map(|card| card.memory_mib).sum(),
            started,
        )
    }

    /// The use of a pod if each share is as large as `share` says.
    pub fn with(containers: &[ContainerRequest], share: impl Fn(&ContainerRequest) -> u64) -> Self {
        Self::sum(containers, |at| share(&containers[at]) * u64::from(containers[at].cards), false)
    }

    fn sum(containers: &[ContainerRequest], share: impl Fn(usize) -> u64, started: bool) -> Self {
        let (mut steady, mut peak) = (Self::default(), Self::default());
        for (at, container) in containers.iter().enumerate() {
            let cards = u64::from(container.cards);
            let memory_mib = match container.memory {
                Memory::Mib(mib) => mib * cards,
                Memory::Percent(_) | Memory::Whole => share(at),
            };
            let one = Self { cards, memory_mib, cores: u64::from(container.cores) * cards };
            if container.kind != Kind::Init {
                steady = steady.plus(&one);
                peak = peak.most(&steady);
            } else if !started {
                peak = peak.most(&steady.plus(&one));
            }
        }
        peak
    }

    fn plus(&self, other: &Self) -> Self {
        Self {
            cards: self.cards + other.cards,
            memory_mib: self.memory_mib + other.memory_mib,
            cores: self.cores + other.cores,
        }
    }

    fn less(&self, other: &Self) -> Self {
        Self {
            cards: self.cards.saturating_sub(other.cards),
            memory_mib: self.memory_mib.saturating_sub(other.memory_mib),
            cores: self.cores.saturating_sub(other.cores),
        }
    }

    fn most(&self, other: &Self) -> Self {
        Self {
            cards: self.cards.max(other.cards),
            memory_mib: self.memory_mib.max(other.memory_mib),
            cores: self.cores.max(other.cores),
        }
    }
}

/// The quotas of a namespace, and what its pods use of them.
#[derive(Debug, Default)]
struct Namespace {
    /// By name.
    quotas: BTreeMap<String, Quota>,
    quota_use: QuotaUse,
    pods: usize,
}

/// The quotas of all namespaces.
#[derive(Debug, Default)]
pub struct Quotas {
    namespaces: BTreeMap<String, Namespace>,
}

/// The room that the quotas of a namespace leave for one pod.
pub struct QuotaRoom<'a> {
    namespace: &'a Namespace,
    quota_use: QuotaUse,
}

impl Quotas {
    /// Adds or replaces a quota.
    pub fn set(&mut self, quota: Quota) {
        let namespace = self.namespaces.entry(quota.namespace.clone()).or_default();
        namespace.quotas.insert(quota.name.clone(), quota);
    }

    /// Removes a quota.
    pub fn remove(&mut self, namespace: &str, name: &str) {
        if let Some(there) = self.namespaces.get_mut(namespace) {
            there.quotas.remove(name);
        }
        self.forget(namespace);
    }

    /// Adds the use of a pod.
    pub fn charge(&mut self, namespace: &str, quota_use: &QuotaUse) {
        // The entry nearly always exists; do not allocate a key for it.
        if !self.namespaces.contains_key(namespace) {
            self.namespaces.insert(namespace.to_owned(), Namespace::default());
        }
        if let Some(there) = self.namespaces.get_mut(namespace) {
            there.quota_use = there.quota_use.plus(quota_use);
            there.pods += 1;
        }
    }

    /// Removes the use of a pod.
    pub fn uncharge(&mut self, namespace: &str, quota_use: &QuotaUse) {
        if let Some(there) = self.namespaces.get_mut(namespace) {
            there.quota_use = there.quota_use.less(quota_use);
            there.pods -= 1;
        }
        self.forget(namespace);
    }

    /// The room that the quotas leave without the pods with these uses; `None` if the namespace has
    /// no quotas.
    pub fn room<'a>(
        &self,
        namespace: &str,
        without: impl Iterator<Item = &'a QuotaUse>,
    ) -> Option<QuotaRoom<'_>> {
        let namespace = self.namespaces.get(namespace).filter(|there| !there.quotas.is_empty())?;
        let quota_use =
            without.fold(namespace.quota_use, |quota_use, removed| quota_use.less(removed));
        Some(QuotaRoom { namespace, quota_use })
    }

    /// All quotas, by namespace and name.
    pub fn all(&self) -> impl Iterator<Item = &Quota> {
        self.namespaces.values().flat_map(|namespace| namespace.quotas.values())
    }

    /// Each namespace with quotas or pods, by name: its quotas, and what its pods use.
    pub fn namespaces(&self) -> impl Iterator<Item = (&str, Vec<&Quota>, QuotaUse)> {
        self.namespaces
            .iter()
            .map(|(name, there)| (&**name, there.quotas.values().collect(), there.quota_use))
    }

    fn forget(&mut self, namespace: &str) {
        if self
            .namespaces
            .get(namespace)
            .is_some_and(|there| there.pods == 0 && there.quotas.is_empty())
        {
            self.namespaces.remove(namespace);
        }
    }
}

impl QuotaRoom<'_> {
    /// The memory that all quotas still allow, in MiB.
    pub fn free_mib(&self) -> u64 {
        let limits = self.namespace.quotas.values().filter_map(|quota| quota.memory_mib);
        limits
            .map(|limit| limit.saturating_sub(self.quota_use.memory_mib))
            .min()
            .unwrap_or(u64::MAX)
    }

    /// The first quota that does not allow this use, if there is one.
    pub fn over(&self, more: &QuotaUse) -> Option<QuotaReason> {
        let measures = |quota: &Quota| {
            [
                ("cards", quota.gpu, self.quota_use.cards, more.cards),
                ("MiB", quota.memory_mib, self.quota_use.memory_mib, more.memory_mib),
                ("% of cores", quota.cores, self.quota_use.cores, more.cores),
            ]
        };
        self.namespace.quotas.values().find_map(|quota| {
            measures(quota).into_iter().find_map(|(unit, allowed, allocated, requested)| {
                let allowed =
                    allowed.filter(|allowed| requested > 0 && allocated + requested > *allowed)?;
                Some(QuotaReason {
                    namespace: quota.namespace.clone(),
                    quota: quota.name.clone(),
                    unit,
                    figures: (allowed, allocated, requested),
                })
            })
        })
    }
}

/// Checks choices of cards against quotas, and remembers for which remaining memory the outcome
/// would be the same.
pub struct QuotaCheck<'a> {
    room: &'a QuotaRoom<'a>,
    /// The memory of the last choice that was allowed, in MiB.
    allowed: Cell<u64>,
    /// The least memory of the choices that were rejected, in MiB.
    too_much: Cell<u64>,
    /// The last choice that was rejected.
    refused: Cell<Option<QuotaUse>>,
}

impl<'a> QuotaCheck<'a> {
    /// A check that has seen no choice.
    pub fn of(room: &'a QuotaRoom<'a>) -> Self {
        let (allowed, too_much) = (Cell::new(0), Cell::new(u64::MAX));
        Self { room, allowed, too_much, refused: Cell::new(None) }
    }

    /// Whether the quotas allow this choice.
    pub fn allows(&self, choice: &QuotaUse) -> bool {
        let is_over = self.room.over(choice).is_some();
        if is_over {
            self.too_much.set(self.too_much.get().min(choice.memory_mib));
            self.refused.set(Some(*choice));
        } else {
            self.allowed.set(choice.memory_mib);
        }
        !is_over
    }

    /// The quota that rejects the last rejected choice.
    pub fn over(&self) -> Option<QuotaReason> {
        self.refused.get().and_then(|choice| self.room.over(&choice))
    }

    /// The remaining memory for which the outcome would be the same.
    pub fn span(&self) -> Range<u64> {
        self.allowed.get()..self.too_much.get()
    }

    /// The last choice that was rejected.
    pub fn refused(&self) -> Option<QuotaUse> {
        self.refused.get()
    }
}

/// The decision of quotas about a node before its cards are chosen.
///
/// Mostly a share is equally large on all cards of the node, and then it does not matter which card
/// is chosen.
pub enum Bound {
    /// They allow every choice of cards.
    Allows,
    /// They reject every choice of cards.
    Forbids(NodeReason),
    /// It depends on the cards.
    Depends,
}

impl Bound {
    /// The decision about a node with these cards. `has_mig`: an instance may have more than its share
    /// of a card.
    pub fn of(class: &Class, room: &QuotaRoom<'_>, has_mig: bool, cards: &[Facts]) -> Self {
        if has_mig {
            return Self::Depends;
        }
        let limit = |facts, container: &ContainerRequest| demand::limit(&container.memory, facts);
        let most = |container: &ContainerRequest| {
            cards.iter().map(|facts| limit(facts, container)).max().unwrap_or(0)
        };
        let least = |container: &ContainerRequest| {
            cards.iter().map(|facts| limit(facts, container)).min().unwrap_or(0)
        };
        if room.over(&QuotaUse::with(&class.containers, most)).is_none() {
            return Self::Allows;
        }
        let over = room.over(&QuotaUse::with(&class.containers, least));
        over.map_or(Self::Depends, |over| Self::Forbids(NodeReason::Quota(Box::new(over))))
    }
}

/// The quota that rejects pods of the class on every card, if there is one.
pub fn over(class: &Class, room: &QuotaRoom<'_>) -> Option<NodeReason> {
    let over = room.over(&QuotaUse::of(&class.containers, |_| &[], false))?;
    Some(NodeReason::Quota(Box::new(over)))
}
