//! The server's promises to a client: until which instant a mark is certainly not done.
//!
//! A program may query an event every few microseconds while its kernels run, and each message to
//! the server costs two switches between processes. Before the promised instant
//! ([`Progress::Pending`]) the client answers without a message.

use crate::time::{Mark, Progress, Query, Status};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many promises are kept: more marks than a program queries by turns.
const KEPT: usize = 64;

#[derive(Clone, Copy, Debug, Default)]
struct Promise {
    mark: Mark,
    earliest: u64,
    /// Items of its lane that were done when the promise was made.
    lane_done: u64,
}

/// The latest promises, each in the slot that its mark's bits select.
#[derive(Debug)]
pub struct Promises(Mutex<[Promise; KEPT]>);

impl Default for Promises {
    fn default() -> Self {
        Self(Mutex::new([Promise::default(); KEPT]))
    }
}

fn slot_of(mark: Mark) -> usize {
    (mark.position() as usize + mark.lane() as usize * 7) % KEPT
}

impl Promises {
    fn lock(&self) -> MutexGuard<'_, [Promise; KEPT]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The status, where it is known without a message.
    pub fn answer(&self, query: &Query, now: u64) -> Option<Status> {
        let Promise { mark, earliest, lane_done } = self.lock()[slot_of(query.mark)];
        let is_known = mark == query.mark && now < earliest && !query.has_forecast;
        let progress = Progress::Pending { forecast: None, check_at: None, earliest };
        is_known.then_some(Status { progress, lane_done })
    }

    /// Records the promise of a status.
    pub fn keep(&self, mark: Mark, status: &Status) {
        if let Status { progress: Progress::Pending { earliest, .. }, lane_done } = *status {
            self.lock()[slot_of(mark)] = Promise { mark, earliest, lane_done };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_holds_up_to_its_instant_and_for_its_mark_alone() {
        let promises = Promises::default();
        let mark = Mark::new(3, 8);
        let progress = Progress::Pending { forecast: Some(70), check_at: Some(60), earliest: 50 };
        promises.keep(mark, &Status { progress, lane_done: 5 });
        let answer = |mark, has_forecast, now| {
            promises.answer(&Query { mark, event: Some(1), has_forecast }, now)
        };
        let progress = Progress::Pending { forecast: None, check_at: None, earliest: 50 };
        assert_eq!(answer(mark, false, 49), Some(Status { progress, lane_done: 5 }));
        assert_eq!(answer(mark, false, 50), None, "it may be done");
        assert_eq!(answer(mark, true, 49), None, "no promise says when it is");
        assert_eq!(answer(Mark::new(3, 9), false, 49), None);
        assert_eq!(answer(Mark::new(3, 8 + KEPT as u64), false, 49), None, "in the same slot");
        let progress = Progress::Done(None);
        promises.keep(mark, &Status { progress, lane_done: 8 });
        assert_eq!(answer(mark, false, 60), None);
    }
}
