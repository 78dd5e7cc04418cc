//! The batches in flight on a card, by stream.
//!
//! Streams run at the same time if their kernels leave room, which cannot be predicted. So a stream
//! is charged for its own batches only. Time in which several streams worked is known when the
//! batches have been measured.

use std::collections::VecDeque;

use crate::budget::costs;
use crate::launch::Queue;

/// The batches that have begun and are not billed yet.
#[derive(Debug, Default)]
pub(super) struct Outstanding {
    /// The streams that have a batch.
    streams: Vec<OnStream>,
}

#[derive(Debug)]
struct OnStream {
    queue: Queue,
    /// The kind of the first launch of each batch, by its key, oldest first.
    kinds: VecDeque<u64>,
    ns: u64,
}

impl OnStream {
    fn batches(&self) -> u32 {
        self.kinds.len() as u32
    }
}

impl Outstanding {
    /// A batch begins that is predicted to take `ns`, with a launch of this kind.
    pub(super) fn add(&mut self, queue: Queue, ns: u64, kind: u64) {
        match self.streams.iter_mut().find(|stream| stream.queue == queue) {
            Some(stream) => {
                stream.kinds.push_back(kind);
                stream.ns += ns;
            }
            None => self.streams.push(OnStream { queue, kinds: [kind].into(), ns }),
        }
    }

    /// The prediction for a batch has changed.
    pub(super) fn change(&mut self, queue: Queue, before: u64, after: u64) {
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.queue == queue) {
            stream.ns = stream.ns.saturating_sub(before) + after;
        }
    }

    /// The last batch of a stream, which was predicted to take `ns`, becomes part of the one before
    /// it.
    pub(super) fn join_batches(&mut self, queue: Queue, ns: u64) {
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.queue == queue) {
            stream.kinds.pop_back();
            stream.ns = stream.ns.saturating_sub(ns);
        }
    }

    /// A batch ends that was predicted to take `ns`.
    pub(super) fn end(&mut self, queue: Queue, ns: u64) {
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.queue == queue) {
            stream.kinds.pop_front();
            stream.ns = stream.ns.saturating_sub(ns);
        }
        self.streams.retain(|stream| !stream.kinds.is_empty());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// How many batches a stream has, and how long they are predicted to take.
    pub(super) fn on(&self, queue: Queue) -> (u32, u64) {
        let stream = self.streams.iter().find(|stream| stream.queue == queue);
        stream.map_or((0, 0), |stream| (stream.batches(), stream.ns))
    }

    /// Whether the oldest batch of a stream, which runs, is of this kind.
    pub(super) fn runs(&self, queue: Queue, kind: u64) -> bool {
        let stream = self.streams.iter().find(|stream| stream.queue == queue);
        stream.is_some_and(|stream| stream.kinds.front() == Some(&kind))
    }

    /// Whether the oldest batch of a stream is of a kind that was never measured.
    pub(super) fn is_unknown(&self, queue: Queue) -> bool {
        let stream = self.streams.iter().find(|stream| stream.queue == queue);
        let kind = stream.and_then(|stream| stream.kinds.front());
        kind.is_some_and(|kind| costs::cost_of(*kind).is_none())
    }

    /// How long the next batches of all streams are predicted to take, one after the other.
    pub(super) fn next_batches(&self) -> u64 {
        let next = |stream: &OnStream| {
            let mean = stream.ns / u64::from(stream.batches().max(1));
            // Its cost may have become known since it began.
            let known = stream.kinds.front().and_then(|kind| costs::cost_of(*kind));
            mean.max(known.unwrap_or(0))
        };
        self.streams.iter().map(next).sum()
    }

    /// How long the batches of the stream with the longest ones are predicted to take.
    pub(super) fn longest(&self) -> u64 {
        self.streams.iter().map(|stream| stream.ns).max().unwrap_or(0)
    }

    /// How many streams have a batch.
    pub(super) fn streams(&self) -> usize {
        self.streams.len()
    }

    /// How long all batches take if no two run at the same time.
    pub(super) fn total(&self) -> u64 {
        self.streams.iter().map(|stream| stream.ns).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_counted_apart_and_together() {
        let mut card = Outstanding::default();
        card.add(1, 5, 70);
        card.add(1, 6, 71);
        card.add(2, 7, 70);
        assert_eq!((card.on(1), card.on(2), card.on(3)), ((2, 11), (1, 7), (0, 0)));
        assert_eq!((card.streams(), card.total()), (2, 18));
        card.change(2, 7, 20);
        assert_eq!((card.on(2), card.total()), ((1, 20), 31));
        assert!(card.runs(1, 70) && !card.runs(1, 71) && card.runs(2, 70) && !card.runs(3, 70));
        card.end(1, 5);
        assert!(card.runs(1, 71) && !card.runs(1, 70));
        card.end(1, 6);
        card.end(2, 20);
        assert!(card.is_empty());
    }
}
