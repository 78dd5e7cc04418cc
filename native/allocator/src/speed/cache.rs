//! Caches the verdicts on nodes by class of request, as long as the node does not change.
//!
//! Between two requests of a class only a few nodes change; the verdicts on all others come from
//! this cache. If there are too many classes, a class of the namespace with the most classes is
//! evicted, so that no namespace can evict the classes of others.
//!
//! A question can end before it has searched all nodes, and the next one of the class continues
//! there. If more such classes took turns than the cache holds, evicting the least recently used
//! one would evict each class before its turn. So unfinished classes are kept, except for the most
//! recent one, which has lost the least.

use crate::rules::class::{Class, ClassKey};
use crate::speed::answers::Answers;
use crate::speed::verdict::Verdicts;
use crate::wire::PodRequest;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The number of classes in the cache. With 5,000 nodes each takes 120 KB, and half a MB more if
/// verdicts depend on a quota and the cards.
const CLASSES: usize = 64;

/// An unfinished class is evicted like the others after this time. kube-scheduler retries a pod
/// within half of it, so by then its pod no longer exists.
const WAITING_NS: u64 = 600_000_000_000;

/// A class and its verdicts.
pub struct Cached {
    /// The class.
    pub class: Class,
    /// The verdicts on nodes.
    pub verdicts: Verdicts,
    /// The verdicts that depend on a quota, by node; empty if there never was one.
    pub within: Vec<Answers>,
    /// The allocator's generation when nodes were last judged; 0 if never.
    pub judged_at: u32,
    /// When the last question ended, if it did not reach all nodes.
    pub left_at_ns: Option<u64>,
    /// The namespace of the first request of the class.
    namespace: Box<str>,
    used_at: u64,
}

impl Cached {
    fn fits(&self, now_ns: u64) -> bool {
        self.left_at_ns.is_some_and(|at| now_ns.saturating_sub(at) <= WAITING_NS)
    }
}

/// The most recent classes.
#[derive(Default)]
pub struct Cache {
    classes: FxHashMap<Arc<ClassKey>, Cached>,
    clock: u64,
}

impl Cache {
    /// Takes the class of the request out of the cache, so that it can change while the allocator
    /// is read.
    pub fn take(&mut self, request: &PodRequest, now_ns: u64) -> (Arc<ClassKey>, Cached) {
        self.clock += 1;
        let key = ClassKey::of(request);
        if let Some((key, cached)) = self.classes.remove_entry(&key) {
            return (key, Cached { used_at: self.clock, ..cached });
        }
        let mut verdicts = self.make_room(now_ns);
        verdicts.clear();
        let class = Class::of(request);
        let namespace = request.pod.namespace.as_str().into();
        let used_at = self.clock;
        let (within, left_at_ns) = (Vec::new(), None);
        let judged_at = 0;
        let cached = Cached { class, verdicts, within, judged_at, left_at_ns, namespace, used_at };
        (Arc::new(key), cached)
    }

    /// Puts the class back.
    pub fn put(&mut self, key: Arc<ClassKey>, cached: Cached) {
        self.classes.insert(key, cached);
    }

    /// Evicts a class if the cache is full, and returns its verdicts, whose memory can be reused.
    /// It is a class of the namespace with the most classes: the least recently used one that is
    /// finished, or the most recently used unfinished one if more than half of its classes are
    /// unfinished.
    fn make_room(&mut self, now_ns: u64) -> Verdicts {
        if self.classes.len() < CLASSES {
            return Verdicts::default();
        }
        let mut counts: FxHashMap<&str, usize> = FxHashMap::default();
        for cached in self.classes.values() {
            *counts.entry(&cached.namespace).or_default() += 1;
        }
        let most = counts.values().max().copied();
        let of_most =
            self.classes.iter().filter(|(_, one)| counts.get(&*one.namespace) == most.as_ref());
        let (left, done): (Vec<_>, Vec<_>) = of_most.partition(|(_, one)| one.fits(now_ns));
        let evicted = if left.len() > done.len() {
            left.into_iter().max_by_key(|(_, one)| one.used_at)
        } else {
            done.into_iter().min_by_key(|(_, one)| one.used_at)
        };
        let evicted = evicted.map(|(key, _)| key.clone());
        let evicted = evicted.and_then(|key| self.classes.remove(&key));
        evicted.map_or_else(Verdicts::default, |cached| cached.verdicts)
    }
}

#[cfg(test)]
mod tests;
