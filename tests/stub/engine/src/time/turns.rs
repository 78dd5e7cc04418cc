//! The compute engines' part of the simulation: the turns of contexts, and the progress of kernels.

use super::Mark;
use super::engine::{Running, Turn, rate_of};
use super::program::Program;
use super::state::{Card, Sink, State};

impl State {
    /// Updates `left` of the kernels on a compute engine, before something changes.
    pub(super) fn anchor(&mut self, program: &Program, card: usize) {
        let from = std::mem::replace(&mut self.cards[card].anchor, self.now);
        let Card { turn: Turn::Since(_), loaded: Some(context), .. } = self.cards[card] else {
            return;
        };
        if from == self.now {
            return;
        }
        let mut heads = std::mem::take(&mut self.contexts[context].heads);
        let rate = rate_of(&heads);
        for head in heads.iter_mut().filter(|head| self.counts(program, head)) {
            head.left = head.left.saturating_sub(rate.work_in(self.now - from));
        }
        self.contexts[context].heads = heads;
    }

    /// Whether a kernel on the engine progresses. A collective does once all participants have
    /// arrived.
    pub(super) fn counts(&self, program: &Program, head: &Running) -> bool {
        head.turn == 0
            || self
                .meetings
                .get(&(head.group, head.name, head.turn))
                .is_some_and(|meeting| meeting.arrived >= program.names.meets(head.name))
    }

    /// Does one step of a compute engine's turns; `false` when there is nothing to do now.
    pub(super) fn step_turn(
        &mut self,
        program: &Program,
        card: usize,
        sink: &mut impl Sink,
    ) -> bool {
        let slicing = program.slicing;
        match self.cards[card].turn {
            Turn::Switching { until } => {
                let is_over = until <= self.now;
                if is_over {
                    self.begin_turn(card);
                }
                is_over
            }
            Turn::Since(since) => {
                let Some(owner) = self.cards[card].loaded else { return false };
                if self.finish(program, card, owner, sink) {
                    return true;
                }
                if self.contexts[owner].heads.is_empty() {
                    self.contexts[owner].is_queued = false;
                    self.cards[card].turn = Turn::Idle;
                    return true;
                }
                let ran = self.now - since;
                let is_over = ran > 0 && ran.is_multiple_of(slicing.slice_ns);
                if !is_over || self.cards[card].queue.is_empty() {
                    return false;
                }
                self.anchor(program, card);
                self.cards[card].queue.push_back(owner);
                self.cards[card].turn = Turn::Idle;
                true
            }
            Turn::Idle => {
                let found = &mut self.cards[card];
                let Some(next) = found.queue.pop_front() else { return false };
                let is_switch = found.loaded.is_some_and(|loaded| loaded != next);
                found.loaded = Some(next);
                if is_switch {
                    found.turn = Turn::Switching { until: self.now + slicing.switch_ns };
                } else {
                    self.begin_turn(card);
                }
                true
            }
        }
    }

    fn begin_turn(&mut self, card: usize) {
        let found = &mut self.cards[card];
        (found.turn, found.anchor) = (Turn::Since(self.now), self.now);
    }

    /// Records arrivals at collectives, and ends finished kernels of the context on the engine.
    fn finish(
        &mut self,
        program: &Program,
        card: usize,
        owner: usize,
        sink: &mut impl Sink,
    ) -> bool {
        if self.contexts[owner].heads.iter().any(|head| head.turn != 0 && !head.has_arrived) {
            self.arrive(program, owner);
        }
        let heads = &self.contexts[owner].heads;
        let (rate, ran) = (rate_of(heads), self.now - self.cards[card].anchor);
        let is_through =
            |head: &Running| rate.time_for(head.left) <= ran && self.counts(program, head);
        if !heads.iter().any(is_through) {
            return false;
        }
        self.anchor(program, card);
        let mut heads = std::mem::take(&mut self.contexts[owner].heads);
        heads.retain(|head| {
            let is_through = head.left == 0 && self.counts(program, head);
            if is_through {
                self.end(program, head, sink);
            }
            !is_through
        });
        self.contexts[owner].heads = heads;
        true
    }

    /// Records that the collectives of a context that is now on the engine have arrived.
    fn arrive(&mut self, program: &Program, context: usize) {
        for card in 0..self.cards.len() {
            self.anchor(program, card);
        }
        for head in &mut self.contexts[context].heads {
            if head.turn != 0 && !head.has_arrived {
                head.has_arrived = true;
                self.meetings.entry((head.group, head.name, head.turn)).or_default().arrived += 1;
            }
        }
    }

    fn end(&mut self, program: &Program, head: &Running, sink: &mut impl Sink) {
        let lane = head.lane;
        self.pass(lane);
        self.moved.push_back(lane);
        if let (Some(event), Some(items)) = (head.event, &program.lanes[lane]) {
            let mark = Mark::new(items.number, self.done[lane]);
            sink.reached(items.client, event, mark, self.now);
        }
        let key = (head.group, head.name, head.turn);
        if head.turn != 0
            && let Some(meeting) = self.meetings.get_mut(&key)
        {
            meeting.left += 1;
            if meeting.left >= program.names.meets(head.name) {
                self.meetings.remove(&key);
            }
        }
    }
}
