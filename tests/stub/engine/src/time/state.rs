//! The progress of all work: the simulation itself.
//!
//! It moves from event to event. Between two events the kernels on each compute engine run at one
//! rate. At an event, everything without a duration happens until nothing is left to do: kernels
//! and copies end, lanes reach their next item, contexts take turns.
//!
//! The same code runs for real and, on a copy, for a forecast. It reports what happens to a
//! [`Sink`].

use super::Mark;
use super::engine::{CopyEngine, Running, Turn, rate_of};
use super::program::{Program, Task};
use std::collections::{BTreeMap, VecDeque};

/// The receiver of what happens.
pub(super) trait Sink {
    /// These kernels of a context ran on the engine from one instant to another.
    fn ran(&mut self, context: usize, running: &[Running], from: u64, to: u64);
    /// The engine reached the record of an event.
    fn reached(&mut self, client: usize, event: u32, mark: Mark, at: u64);
    /// A lane has ended.
    fn ended(&mut self, lane: usize);
}

/// Discards everything, for a forecast.
pub(super) struct Discard;

impl Sink for Discard {
    fn ran(&mut self, _: usize, _: &[Running], _: u64, _: u64) {}
    fn reached(&mut self, _: usize, _: u32, _: Mark, _: u64) {}
    fn ended(&mut self, _: usize) {}
}

#[derive(Clone, Debug, Default)]
pub(super) struct Card {
    pub turn: Turn,
    /// The context that ran on the engine last.
    pub loaded: Option<usize>,
    /// The instant at which its kernels' `left` is valid. It moves only when something changes, so
    /// that rounding errors do not add up with the number of queries.
    pub anchor: u64,
    /// The contexts that wait for it, in order of arrival.
    pub queue: VecDeque<usize>,
    /// To the card, and from it.
    pub copies: [CopyEngine; 2],
}

#[derive(Clone, Debug, Default)]
pub(super) struct Context {
    /// The heads of its lanes that are at the compute engine.
    pub heads: Vec<Running>,
    /// Whether it is on the engine or in its queue.
    pub is_queued: bool,
}

/// The launch of a collective: which participants have arrived and which have left. By group, name
/// and number of the launch.
pub(super) type Meetings = BTreeMap<(usize, u32, u64), Meeting>;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Meeting {
    pub arrived: u32,
    pub left: u32,
}

#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub now: u64,
    pub cards: Vec<Card>,
    /// By context index.
    pub contexts: Vec<Context>,
    /// How many items of each lane are done, by lane index.
    pub done: Vec<u64>,
    /// Lanes whose next item waits for a mark, behind the lane that it is in.
    waiting: Vec<(usize, usize)>,
    /// Lanes whose next item has to be checked.
    pub moved: VecDeque<usize>,
    pub meetings: Meetings,
}

impl State {
    pub fn is_done(&self, program: &Program, client: usize, mark: Mark) -> bool {
        // A lane that does not exist any more has ended.
        program.lane(client, mark).is_none_or(|lane| self.done[lane] >= mark.position())
    }

    /// Reports that an idle lane has an item.
    pub fn wake(&mut self, lane: usize) {
        self.moved.push_back(lane);
    }

    /// Advances up to an instant.
    pub fn advance(&mut self, program: &Program, to: u64, sink: &mut impl Sink) {
        self.run_instant(program, sink);
        while self.now < to {
            let next = self.next_event(program).map_or(to, |next| next.min(to));
            self.run(next, sink);
            self.run_instant(program, sink);
        }
    }

    /// When something happens next, if no work is added.
    pub fn next_event(&self, program: &Program) -> Option<u64> {
        let next = |card: &Card| {
            let turn = match card.turn {
                Turn::Idle => None,
                Turn::Switching { until } => Some(until),
                Turn::Since(since) => {
                    let heads =
                        card.loaded.map_or(&[][..], |context| &self.contexts[context].heads);
                    let rate = rate_of(heads);
                    let left = heads.iter().filter(|head| self.counts(program, head));
                    let done = left.map(|head| card.anchor + rate.time_for(head.left)).min();
                    let slice = program.slicing.slice_ns;
                    let ends = since + ((self.now - since) / slice + 1) * slice;
                    done.into_iter().chain((!card.queue.is_empty()).then_some(ends)).min()
                }
            };
            let copies = card.copies.iter().filter_map(CopyEngine::next_event);
            turn.into_iter().chain(copies).min()
        };
        self.cards.iter().filter_map(next).min()
    }

    /// Advances through a time in which nothing happens.
    fn run(&mut self, to: u64, sink: &mut impl Sink) {
        for card in &self.cards {
            if let (Turn::Since(_), Some(context)) = (card.turn, card.loaded) {
                let heads = &self.contexts[context].heads;
                if !heads.is_empty() {
                    sink.ran(context, heads, self.now, to);
                }
            }
        }
        self.now = to;
    }

    /// Does everything that happens at this instant.
    pub fn run_instant(&mut self, program: &Program, sink: &mut impl Sink) {
        loop {
            while let Some(lane) = self.moved.pop_front() {
                self.check_at(program, lane, sink);
            }
            let mut has_moved = false;
            for card in 0..self.cards.len() {
                has_moved |= self.step_turn(program, card, sink);
                for copies in 0..2 {
                    has_moved |= self.step_copies(program, card, copies);
                }
            }
            if !has_moved {
                return;
            }
        }
    }

    /// Moves a lane to the next item that takes time or waits.
    fn check_at(&mut self, program: &Program, lane: usize, sink: &mut impl Sink) {
        loop {
            let position = self.done[lane] + 1;
            let (Some(items), Some(item)) = (&program.lanes[lane], program.item(lane, position))
            else {
                return;
            };
            let client = &program.clients[items.client];
            let mut head = Running { lane, ..Running::default() };
            match item.task {
                Task::Wait(mark) => {
                    // A lane that does not exist any more has ended.
                    if let Some(other) = program.lane(items.client, mark)
                        && self.done[other] < mark.position()
                    {
                        return self.waiting.push((other, lane));
                    }
                }
                Task::Record { event, needs_engine: false } => {
                    sink.reached(items.client, event, Mark::new(items.number, position), self.now);
                }
                Task::End => {
                    self.pass(lane);
                    return sink.ended(lane);
                }
                Task::Copy { direction, ns } => {
                    let card = program.contexts[item.context].card;
                    let engine = &mut self.cards[card].copies[direction as usize];
                    engine.push(lane, self.now, ns);
                    return;
                }
                Task::Record { event, needs_engine: true } => {
                    head.event = Some(event);
                    return self.want_engine(program, item.context, head);
                }
                Task::Kernel { name, ns, demand, turn } => {
                    let group = client.group;
                    head = Running { name, demand, turn, group, ..head };
                    head.left = super::engine::work_of(ns);
                    return self.want_engine(program, item.context, head);
                }
            }
            self.pass(lane);
        }
    }

    /// Marks a lane's next item as done; lanes that wait for the lane check again.
    pub fn pass(&mut self, lane: usize) {
        self.done[lane] += 1;
        let moved = &mut self.moved;
        self.waiting.retain(|(other, waiting)| {
            if *other == lane {
                moved.push_back(*waiting);
            }
            *other != lane
        });
    }

    fn want_engine(&mut self, program: &Program, context: usize, head: Running) {
        let card = program.contexts[context].card;
        if self.cards[card].loaded == Some(context) {
            self.anchor(program, card);
        }
        let found = &mut self.contexts[context];
        found.heads.push(head);
        if !found.is_queued {
            found.is_queued = true;
            self.cards[card].queue.push_back(context);
        }
    }

    fn step_copies(&mut self, program: &Program, card: usize, engine: usize) -> bool {
        let Some(lane) = self.cards[card].copies[engine].finished(self.now) else { return false };
        self.pass(lane);
        self.moved.push_back(lane);
        self.start_copy(program, card, engine);
        true
    }

    /// Starts the copy that is first in the queue of an engine.
    fn start_copy(&mut self, program: &Program, card: usize, engine: usize) {
        let Some(lane) = self.cards[card].copies[engine].first() else { return };
        let next = program.item(lane, self.done[lane] + 1).map(|item| item.task);
        let ns = if let Some(Task::Copy { ns, .. }) = next { ns } else { 0 };
        self.cards[card].copies[engine].start(self.now, ns);
    }

    /// Removes lanes and contexts that are about to end.
    pub fn forget(&mut self, program: &Program, lanes: &[usize], contexts: &[usize]) {
        let is_gone = |lane: &usize| lanes.contains(lane);
        self.waiting.retain(|(_, lane)| !is_gone(lane));
        self.moved.retain(|lane| !is_gone(lane));
        for card in 0..self.cards.len() {
            self.anchor(program, card);
            let found = &mut self.cards[card];
            found.queue.retain(|context| !contexts.contains(context));
            if found.loaded.is_some_and(|loaded| contexts.contains(&loaded)) {
                found.loaded = None;
                found.turn = Turn::Idle;
            }
            for engine in 0..2 {
                if self.cards[card].copies[engine].forget(is_gone) {
                    self.start_copy(program, card, engine);
                }
            }
        }
        for context in contexts {
            self.contexts[*context] = Context::default();
        }
    }

    /// Whether a card's engine has work of another client, too.
    pub fn is_shared(&self, program: &Program, client: usize) -> bool {
        let all = self.contexts.iter().zip(&program.contexts);
        all.filter(|(_, context)| context.client != client)
            .any(|(context, _)| !context.heads.is_empty())
    }
}
