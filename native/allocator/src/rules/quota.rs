//! `ResourceQuota` objects with HAMi's `limits.` names: cards, MiB times cards, percent times cards.
//!
//! The API server does not count these, and what it does count it counts per container, not per card.
//! All objects of a namespace hold together; each counts all of the namespace's pods. Memory
//! asked for as a share counts as what it comes to on the card that was chosen, which only a plan knows.

use crate::rules::card::Facts;
use crate::rules::class::Class;
use crate::rules::demand;
use crate::rules::node_reason::{NodeReason, QuotaReason};
use crate::wire::{Ask, Grant, Kind, Memory, Mode, Quota};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;

/// What counts against quotas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Cards.
    pub cards: u64,
    /// MiB times cards.
    pub memory_mib: u64,
    /// Percent times cards.
    pub cores: u64,
}

impl Spent {
    /// What a pod counts: at the peak of its phases, or, once `started`, without its init containers.
    pub fn of<'a>(asks: &[Ask], grants: impl Fn(usize) -> &'a [Grant], started: bool) -> Self {
        Self::sum(asks, |at| grants(at).iter().map(|grant| grant.memory_mib).sum(), started)
    }

    /// The same where each card gives so much to an ask for a share.
    pub fn with(asks: &[Ask], share: impl Fn(&Ask) -> u64) -> Self {
        Self::sum(asks, |at| share(&asks[at]) * u64::from(asks[at].cards), false)
    }

    fn sum(asks: &[Ask], share: impl Fn(usize) -> u64, started: bool) -> Self {
        let (mut steady, mut peak) = (Self::default(), Self::default());
        for (at, ask) in asks.iter().enumerate() {
            let cards = u64::from(ask.cards);
            let memory_mib = match ask.memory {
                Memory::Mib(mib) => mib * cards,
                Memory::Percent(_) | Memory::Whole => share(at),
            };
            let one = Self { cards, memory_mib, cores: u64::from(ask.cores) * cards };
            if ask.kind != Kind::Init {
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

/// A namespace's quotas and what is spent of them.
#[derive(Debug, Default)]
struct Namespace {
    /// By the objects' names.
    quotas: BTreeMap<String, Quota>,
    spent: Spent,
    pods: usize,
}

/// All namespaces that have quotas or pods.
#[derive(Debug, Default)]
pub struct Quotas {
    namespaces: BTreeMap<String, Namespace>,
}

/// What is left to one pod.
pub struct Room<'a> {
    namespace: &'a Namespace,
    spent: Spent,
}

impl Quotas {
    /// A new or changed object.
    pub fn set(&mut self, quota: Quota) {
        let namespace = self.namespaces.entry(quota.namespace.clone()).or_default();
        namespace.quotas.insert(quota.name.clone(), quota);
    }

    /// An object that is gone.
    pub fn remove(&mut self, namespace: &str, name: &str) {
        if let Some(there) = self.namespaces.get_mut(namespace) {
            there.quotas.remove(name);
        }
        self.forget(namespace);
    }

    /// One more pod.
    pub fn spend(&mut self, namespace: &str, spent: &Spent) {
        // Nearly always there; a key is made only where not.
        if !self.namespaces.contains_key(namespace) {
            self.namespaces.insert(namespace.to_owned(), Namespace::default());
        }
        if let Some(there) = self.namespaces.get_mut(namespace) {
            there.spent = there.spent.plus(spent);
            there.pods += 1;
        }
    }

    /// A pod that [`Self::spend`] counted is gone.
    pub fn refund(&mut self, namespace: &str, spent: &Spent) {
        if let Some(there) = self.namespaces.get_mut(namespace) {
            there.spent = there.spent.less(spent);
            there.pods -= 1;
        }
        self.forget(namespace);
    }

    /// What is left in a namespace if those were not there; `None`: it has no quotas.
    pub fn room<'a>(
        &self,
        namespace: &str,
        without: impl Iterator<Item = &'a Spent>,
    ) -> Option<Room<'_>> {
        let namespace = self.namespaces.get(namespace).filter(|there| !there.quotas.is_empty())?;
        let spent = without.fold(namespace.spent, |spent, gone| spent.less(gone));
        Some(Room { namespace, spent })
    }

    /// All objects, by namespace and name.
    pub fn all(&self) -> impl Iterator<Item = &Quota> {
        self.namespaces.values().flat_map(|namespace| namespace.quotas.values())
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

impl Room<'_> {
    /// The most MiB that all quotas allow more.
    pub fn left_mib(&self) -> u64 {
        let limits = self.namespace.quotas.values().filter_map(|quota| quota.memory_mib);
        limits.map(|limit| limit.saturating_sub(self.spent.memory_mib)).min().unwrap_or(u64::MAX)
    }

    /// What the first quota says that does not allow so much more.
    pub fn over(&self, more: &Spent) -> Option<QuotaReason> {
        let measures = |quota: &Quota| {
            [
                ("cards", quota.gpu, self.spent.cards, more.cards),
                ("MiB", quota.memory_mib, self.spent.memory_mib, more.memory_mib),
                ("% of cores", quota.cores, self.spent.cores, more.cores),
            ]
        };
        self.namespace.quotas.values().find_map(|quota| {
            measures(quota).into_iter().find_map(|(unit, allowed, used, asked)| {
                let allowed = allowed.filter(|allowed| asked > 0 && used + asked > *allowed)?;
                Some(QuotaReason {
                    namespace: quota.namespace.clone(),
                    quota: quota.name.clone(),
                    unit,
                    figures: (allowed, used, asked),
                })
            })
        })
    }
}

/// What a namespace's quotas leave, and how often that was in the way of a choice of cards.
pub struct Allowance<'a> {
    room: &'a Room<'a>,
    /// MiB of the choice that was allowed.
    allowed: Cell<u64>,
    /// The fewest MiB of those that were not.
    too_much: Cell<u64>,
    /// The last one that was not.
    refused: Cell<Option<Spent>>,
}

impl<'a> Allowance<'a> {
    /// Before any choice.
    pub fn of(room: &'a Room<'a>) -> Self {
        let (allowed, too_much) = (Cell::new(0), Cell::new(u64::MAX));
        Self { room, allowed, too_much, refused: Cell::new(None) }
    }

    /// Whether this choice may be.
    pub fn allows(&self, choice: &Spent) -> bool {
        let is_over = self.room.over(choice).is_some();
        if is_over {
            self.too_much.set(self.too_much.get().min(choice.memory_mib));
            self.refused.set(Some(*choice));
        } else {
            self.allowed.set(choice.memory_mib);
        }
        !is_over
    }

    /// What was in the way of the last choice that was not allowed.
    pub fn over(&self) -> Option<QuotaReason> {
        self.refused.get().and_then(|choice| self.room.over(&choice))
    }

    /// For how many MiB that are left the same would be found.
    pub fn span(&self) -> Range<u64> {
        self.allowed.get()..self.too_much.get()
    }

    /// The last choice that was not allowed.
    pub fn refused(&self) -> Option<Spent> {
        self.refused.get()
    }
}

/// What they say.
pub enum Bound {
    /// Yes, whichever cards are chosen.
    Allows,
    /// No, whichever they are.
    Forbids(NodeReason),
    /// They say it of some.
    Depends,
}

impl Bound {
    /// Of this node.
    pub fn of(class: &Class, room: &Room<'_>, mode: Mode, cards: &[Facts]) -> Self {
        if mode == Mode::Mig {
            return Self::Depends;
        }
        let limit = |facts, ask: &Ask| demand::limit(&ask.memory, facts);
        let most = |ask: &Ask| cards.iter().map(|facts| limit(facts, ask)).max().unwrap_or(0);
        let least = |ask: &Ask| cards.iter().map(|facts| limit(facts, ask)).min().unwrap_or(0);
        if room.over(&Spent::with(&class.asks, most)).is_none() {
            return Self::Allows;
        }
        let over = room.over(&Spent::with(&class.asks, least));
        over.map_or(Self::Depends, |over| Self::Forbids(NodeReason::Quota(Box::new(over))))
    }
}

/// The quota that forbids such pods on whatever card.
pub fn over(class: &Class, room: &Room<'_>) -> Option<NodeReason> {
    let over = room.over(&Spent::of(&class.asks, |_| &[], false))?;
    Some(NodeReason::Quota(Box::new(over)))
}
