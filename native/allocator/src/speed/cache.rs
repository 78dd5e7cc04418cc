//! What was found out about nodes, by class of request, for as long as the node stays as it is.
//!
//! Between two requests of a class one node has changed, or a few. Everything else is read here. Where there are too
//! many classes one goes of the namespace that has brought the most: nobody pushes out what others have brought.
//!
//! Where a question has ended before all nodes were looked at, the next one goes on where it ended. If more such classes were
//! asked about by turns than are remembered, and the one not used for longest went, each would be gone before its turn. So
//! they stay until they are done, all but the last one: it has lost the least.

use crate::rules::class::{Class, Key};
use crate::speed::answers::Answers;
use crate::speed::verdict::Verdicts;
use crate::wire::Request;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Classes that are remembered; with 5,000 nodes each takes 40 KB, and half a MB more where what a quota says of those
/// nodes depends on the cards.
const CLASSES: usize = 64;

/// Who was told that nodes are left is asked about again within half of this time, as kube-scheduler does in any case;
/// then nobody waits for the rest.
const WAITING_NS: u64 = 600_000_000_000;

/// A class and what is known of nodes.
pub struct Cached {
    /// The class.
    pub class: Class,
    /// What nodes are to it.
    pub verdicts: Verdicts,
    /// The same where a quota's answer depends on the cards, by what it leaves; empty where that never was so.
    pub within: Vec<Answers>,
    /// The allocator's generation when nodes were judged last; 0: never.
    pub judged_at: u32,
    /// When a question ended before all nodes were looked at, if the last one did.
    pub left_at_ns: Option<u64>,
    /// The namespace that it was met in first.
    namespace: Box<str>,
    used_at: u64,
}

impl Cached {
    fn is_left(&self, now_ns: u64) -> bool {
        self.left_at_ns.is_some_and(|at| now_ns.saturating_sub(at) <= WAITING_NS)
    }
}

/// The classes met last.
#[derive(Default)]
pub struct Cache {
    classes: FxHashMap<Arc<Key>, Cached>,
    clock: u64,
}

impl Cache {
    /// Takes the request's class out, so that the rest of the allocator can be read meanwhile.
    pub fn take(&mut self, request: &Request, now_ns: u64) -> (Arc<Key>, Cached) {
        self.clock += 1;
        let key = Key::of(request);
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

    /// Puts it back.
    pub fn put(&mut self, key: Arc<Key>, cached: Cached) {
        self.classes.insert(key, cached);
    }

    /// If there are too many, of the namespace that has the most the class goes that was not used for longest; of those
    /// that are left, which go if they are more than half of its classes, the one that was used last. Its memory can be
    /// used again.
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
        let (left, done): (Vec<_>, Vec<_>) = of_most.partition(|(_, one)| one.is_left(now_ns));
        let gone = if left.len() > done.len() {
            left.into_iter().max_by_key(|(_, one)| one.used_at)
        } else {
            done.into_iter().min_by_key(|(_, one)| one.used_at)
        };
        let gone = gone.map(|(key, _)| key.clone());
        let gone = gone.and_then(|key| self.classes.remove(&key));
        gone.map_or_else(Verdicts::default, |cached| cached.verdicts)
    }
}

#[cfg(test)]
mod tests;
