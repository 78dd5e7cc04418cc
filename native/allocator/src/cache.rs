//! What was found out about nodes, by class of request, for as long as the node stays as it is.
//!
//! Between two requests of a class one node has changed, or a few. Everything else is read here. Where there are too
//! many classes one goes of the namespace that has brought the most: nobody pushes out what others have brought.

use crate::allowance::Answers;
use crate::class::{Class, Key};
use crate::hash::Map;
use crate::verdict::Verdicts;
use crate::wire::Request;
use std::cmp::Reverse;
use std::sync::Arc;

/// Classes that are remembered; with 5,000 nodes each takes 40 KB, and half a MB more where what a quota says of those
/// nodes depends on the cards.
const CLASSES: usize = 64;

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
    /// The namespace that it was met in first.
    namespace: Box<str>,
    used_at: u64,
}

/// The classes met last.
#[derive(Default)]
pub struct Cache {
    classes: Map<Arc<Key>, Cached>,
    clock: u64,
}

impl Cache {
    /// Takes the request's class out, so that the rest of the allocator can be read meanwhile.
    pub fn take(&mut self, request: &Request) -> (Arc<Key>, Cached) {
        self.clock += 1;
        let key = Key::of(request);
        if let Some((key, cached)) = self.classes.remove_entry(&key) {
            return (key, Cached { used_at: self.clock, ..cached });
        }
        let mut verdicts = self.make_room();
        verdicts.clear();
        let class = Class::of(request);
        let namespace = request.pod.namespace.as_str().into();
        let used_at = self.clock;
        (
            Arc::new(key),
            Cached { class, verdicts, within: Vec::new(), judged_at: 0, namespace, used_at },
        )
    }

    /// Puts it back.
    pub fn put(&mut self, key: Arc<Key>, cached: Cached) {
        self.classes.insert(key, cached);
    }

    /// If there are too many, of the namespace that has the most the class goes that was not used for longest; its
    /// memory can be used again.
    fn make_room(&mut self) -> Verdicts {
        if self.classes.len() < CLASSES {
            return Verdicts::default();
        }
        let mut counts: Map<&str, usize> = Map::default();
        for cached in self.classes.values() {
            *counts.entry(&cached.namespace).or_default() += 1;
        }
        let place = |cached: &Cached| (Reverse(counts[&*cached.namespace]), cached.used_at);
        let oldest = self.classes.iter().min_by_key(|(_, cached)| place(cached));
        let oldest = oldest.map(|(key, _)| key.clone());
        let gone = oldest.and_then(|key| self.classes.remove(&key));
        gone.map_or_else(Verdicts::default, |cached| cached.verdicts)
    }
}
