//! The batches in flight on a card, by stream.
//!
//! Streams run at the same time as far as their kernels leave room, which cannot be predicted. So a
//! stream is charged for its own batches only; what streams took from each other is billed when it
//! has been measured.

use crate::launch::Queue;

/// The batches that have begun and are not billed yet.
#[derive(Debug, Default)]
pub(super) struct Outstanding {
    /// The streams that have a batch.
    streams: Vec<OnStream>,
}

#[derive(Clone, Copy, Debug)]
struct OnStream {
    queue: Queue,
    batches: u32,
    ns: u64,
}

impl Outstanding {
    /// A batch begins that is predicted to take so long.
    pub(super) fn add(&mut self, queue: Queue, ns: u64) {
        match self.streams.iter_mut().find(|stream| stream.queue == queue) {
            Some(stream) => {
                stream.batches += 1;
                stream.ns += ns;
            }
            None => self.streams.push(OnStream { queue, batches: 1, ns }),
        }
    }

    /// The prediction for a batch has changed.
    pub(super) fn change(&mut self, queue: Queue, before: u64, after: u64) {
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.queue == queue) {
            stream.ns = stream.ns.saturating_sub(before) + after;
        }
    }

    /// A batch ends that was predicted to take so long.
    pub(super) fn end(&mut self, queue: Queue, ns: u64) {
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.queue == queue) {
            stream.batches -= 1;
            stream.ns = stream.ns.saturating_sub(ns);
        }
        self.streams.retain(|stream| stream.batches > 0);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// How many batches a stream has, and how long they are predicted to take.
    pub(super) fn on(&self, queue: Queue) -> (u32, u64) {
        let stream = self.streams.iter().find(|stream| stream.queue == queue);
        stream.map_or((0, 0), |stream| (stream.batches, stream.ns))
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
        card.add(1, 5);
        card.add(1, 6);
        card.add(2, 7);
        assert_eq!((card.on(1), card.on(2), card.on(3)), ((2, 11), (1, 7), (0, 0)));
        assert_eq!((card.streams(), card.total()), (2, 18));
        card.change(2, 7, 20);
        assert_eq!((card.on(2), card.total()), ((1, 20), 31));
        card.end(1, 5);
        card.end(1, 6);
        card.end(2, 20);
        assert!(card.is_empty());
    }
}
