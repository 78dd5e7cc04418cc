//! What the server has promised a client: marks, and before when they are not done.
//!
//! A program may ask for an event every few microseconds for as long as its kernels run, and each
//! message to the server is two switches between processes. Before the promised instant
//! ([`Progress::Pending`]) the answer is known here.

use crate::time::{Look, Mark, Progress, Question};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Promises that are kept: as many marks as somebody asks for by turns.
const KEPT: usize = 64;

#[derive(Clone, Copy, Debug, Default)]
struct Promise {
    mark: Mark,
    earliest: u64,
    /// Items of its lane that were done when it was given.
    lane_done: u64,
}

/// The last promises, each in the place that its mark's bits give.
#[derive(Debug)]
pub struct Promises(Mutex<[Promise; KEPT]>);

impl Default for Promises {
    fn default() -> Self {
        Self(Mutex::new([Promise::default(); KEPT]))
    }
}

fn place(mark: Mark) -> usize {
    (mark.place() as usize + mark.lane() as usize * 7) % KEPT
}

impl Promises {
    fn lock(&self) -> MutexGuard<'_, [Promise; KEPT]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer where no message is needed for it.
    pub fn answer(&self, question: &Question, now: u64) -> Option<Look> {
        let Promise { mark, earliest, lane_done } = self.lock()[place(question.mark)];
        let is_known = mark == question.mark && now < earliest && !question.looks_ahead;
        let progress = Progress::Pending { forecast: None, look_at: None, earliest };
        is_known.then_some(Look { progress, lane_done })
    }

    /// Remembers what an answer promised.
    pub fn keep(&self, mark: Mark, look: &Look) {
        if let Look { progress: Progress::Pending { earliest, .. }, lane_done } = *look {
            self.lock()[place(mark)] = Promise { mark, earliest, lane_done };
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
        let progress = Progress::Pending { forecast: Some(70), look_at: Some(60), earliest: 50 };
        promises.keep(mark, &Look { progress, lane_done: 5 });
        let ask = |mark, looks_ahead, now| {
            promises.answer(&Question { mark, event: Some(1), looks_ahead }, now)
        };
        let progress = Progress::Pending { forecast: None, look_at: None, earliest: 50 };
        assert_eq!(ask(mark, false, 49), Some(Look { progress, lane_done: 5 }));
        assert_eq!(ask(mark, false, 50), None, "it may be done");
        assert_eq!(ask(mark, true, 49), None, "nobody promised when it is");
        assert_eq!(ask(Mark::new(3, 9), false, 49), None);
        assert_eq!(ask(Mark::new(3, 8 + KEPT as u64), false, 49), None, "in the same place");
        let progress = Progress::Done(None);
        promises.keep(mark, &Look { progress, lane_done: 8 });
        assert_eq!(ask(mark, false, 60), None);
    }
}
