//! The machine: all events, in the order of time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use hami_share::turns::Turns;
use hami_share::{Grant, Regime};

use super::engine::{Engine, Occurred};
use super::lane::{Host, Lane};
use super::program::{Program, Running};
use super::{MS, Prng, S, US};

pub const LATE_NS: u64 = 60 * US;
const METER_NS: u64 = 50 * US;
pub const GIVE_UP_NS: u64 = 50 * US;
pub const SILENCE_NS: u64 = 50 * MS;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    Engine(usize),
    Host(usize),
    Retry(usize),
    Meter(usize),
    GiveUp(usize),
    Coordinate,
    Tick,
    Do(Spec),
}

/// The actions of a test on the running machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spec {
    Start(usize),
    Stop(usize),
    Continue(usize),
    Kill(usize),
    KillCoordinator,
    StartCoordinator,
    Share(usize, u32),
}

#[derive(Debug)]
pub struct Slice {
    pub rows: Vec<(usize, Regime)>,
    pub grants: Vec<Grant>,
    pub gang: Option<u128>,
    pub regulated: bool,
}

/// The state of the machine, and its future events.
pub struct Machine {
    pub now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    pub(super) engines: Vec<Engine>,
    /// When each engine has its next event.
    changes_at: Vec<u64>,
    pub lanes: Vec<Lane>,
    pub(super) slices: Vec<Slice>,
    pub(super) turns: Option<Turns>,
    pub(super) coordinate_at: u64,
    pub(super) pulse: u64,
    /// The events of a stopped lane.
    missed: Vec<Vec<Event>>,
    pub(super) prng: Prng,
    meetings: BTreeMap<u64, usize>,
    pub(super) sizes: BTreeMap<u64, usize>,
    /// Engine time by lane at the end of each second.
    pub seconds: Vec<Vec<u64>>,
    /// No limits and no coordinator.
    pub native: bool,
}

impl Machine {
    pub fn new(cards: usize) -> Self {
        let mut machine = Self {
            now: 0,
            events: BinaryHeap::new(),
            sequence: 0,
            engines: (0..cards).map(|_| Engine::default()).collect(),
            changes_at: vec![u64::MAX; cards],
            lanes: Vec::new(),
            slices: Vec::new(),
            turns: Some(Turns::new()),
            coordinate_at: u64::MAX,
            pulse: 0,
            missed: Vec::new(),
            prng: Prng(1),
            meetings: BTreeMap::new(),
            sizes: BTreeMap::new(),
            seconds: Vec::new(),
            native: false,
        };
        machine.push(S, Event::Tick);
        machine
    }

    /// A slice with a row for each of these cards.
    pub fn slice(&mut self, rows: &[(usize, Regime)]) -> usize {
        let grants = vec![Grant::default(); rows.len()];
        self.slices.push(Slice { rows: rows.to_vec(), grants, gang: None, regulated: false });
        self.slices.len() - 1
    }

    /// A process of a slice on one of its rows, from `start` on.
    pub fn lane(&mut self, slice: usize, row: usize, program: Program, start: u64) -> usize {
        let slot = self.lanes.iter().filter(|lane| lane.slice == slice).count() as u16;
        let card = self.slices[slice].rows[row].0;
        self.lanes.push(Lane::new(slice, row, card, slot, Running::new(program)));
        self.missed.push(Vec::new());
        self.at(start, Spec::Start(self.lanes.len() - 1));
        self.lanes.len() - 1
    }

    pub fn at(&mut self, time: u64, spec: Spec) {
        self.push(time, Event::Do(spec));
    }

    pub fn work(&self, lane: usize) -> u64 {
        *self.engines[self.lanes[lane].card].work.get(&lane).unwrap_or(&0)
    }

    pub fn run(&mut self, until: u64) {
        while self.events.peek().is_some_and(|next| next.0.0 <= until)
            && let Some(Reverse((time, _, event))) = self.events.pop()
        {
            self.now = time;
            self.handle(event);
        }
        self.now = until;
        for card in 0..self.engines.len() {
            self.advance(card);
        }
    }

    pub(super) fn push(&mut self, time: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((time, self.sequence, event)));
    }

    pub(super) fn late(&mut self) -> u64 {
        self.now + LATE_NS / 2 + self.prng.below(LATE_NS)
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Engine(card) if self.changes_at[card] == self.now => self.advance(card),
            Event::Host(lane) | Event::Retry(lane) | Event::Meter(lane) | Event::GiveUp(lane)
                if self.lanes[lane].view.dead || self.lanes[lane].stopped =>
            {
                self.missed[lane].push(event);
            }
            Event::Host(lane) => self.host(lane),
            Event::Retry(lane) if self.lanes[lane].retry_at == self.now => self.host(lane),
            // The time has been set anew.
            Event::Engine(_) | Event::Retry(_) => {}
            Event::Meter(lane) => self.meter(lane),
            Event::GiveUp(lane) => self.give_up(lane),
            Event::Coordinate => self.coordinate(),
            Event::Tick => {
                for card in 0..self.engines.len() {
                    self.advance(card);
                }
                self.seconds.push((0..self.lanes.len()).map(|lane| self.work(lane)).collect());
                self.push(self.now + S, Event::Tick);
            }
            Event::Do(spec) => self.apply(spec),
        }
    }

    fn apply(&mut self, spec: Spec) {
        match spec {
            Spec::Start(lane) => {
                self.lanes[lane].started = true;
                self.lanes[lane].host = Host::Runs;
                self.host(lane);
            }
            Spec::Stop(lane) => self.lanes[lane].stopped = true,
            Spec::Continue(lane) => {
                self.lanes[lane].stopped = false;
                for event in std::mem::take(&mut self.missed[lane]) {
                    let again =
                        if let Event::Retry(lane) = event { Event::Host(lane) } else { event };
                    self.push(self.now, again);
                }
            }
            Spec::Kill(lane) => {
                self.lanes[lane].view.dead = true;
                let card = self.lanes[lane].card;
                let events = self.engines[card].forget(self.now, lane);
                self.take(card, events);
            }
            Spec::KillCoordinator => {
                self.turns = None;
                for lane in 0..self.lanes.len() {
                    self.push(self.now + SILENCE_NS + 10 * MS, Event::Host(lane));
                }
            }
            Spec::StartCoordinator => {
                self.turns = Some(Turns::new());
                self.coordinate_at = u64::MAX;
                self.wake(self.now);
            }
            Spec::Share(slice, share) => {
                for row in &mut self.slices[slice].rows {
                    row.1.share = share;
                }
            }
        }
    }

    pub(super) fn advance(&mut self, card: usize) {
        let events = self.engines[card].advance(self.now);
        self.take(card, events);
    }

    pub(super) fn take(&mut self, card: usize, events: Vec<Occurred>) {
        for event in events {
            match event {
                Occurred::Began { meets } => self.meet(meets),
                Occurred::Ended { context, began, ended } => {
                    self.kernel_ended(context, began, ended);
                }
            }
        }
        let next = self.engines[card].next_change();
        if next < u64::MAX && next != self.changes_at[card] {
            self.push(next, Event::Engine(card));
        }
        self.changes_at[card] = next;
    }

    fn meet(&mut self, meeting: u64) {
        let here = self.meetings.entry(meeting).or_default();
        *here += 1;
        if *here < self.sizes[&meeting] {
            return;
        }
        self.meetings.remove(&meeting);
        self.sizes.remove(&meeting);
        for card in 0..self.engines.len() {
            let events = self.engines[card].met(self.now, meeting);
            self.take(card, events);
        }
    }

    fn kernel_ended(&mut self, lane: usize, began: u64, ended: u64) {
        if self.lanes[lane].view.dead || !self.lanes[lane].kernel_ended(began, ended) {
            return;
        }
        let waits = self.lanes[lane].host == Host::WaitsForAll;
        if waits && self.lanes[lane].in_flight.iter().all(|batch| batch.kernels == 0) {
            self.push(self.now + 5 * US, Event::Host(lane));
        }
        let seen = self.now + METER_NS / 2 + self.prng.below(METER_NS);
        self.push(seen, Event::Meter(lane));
    }
}
