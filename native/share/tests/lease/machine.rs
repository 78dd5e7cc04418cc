//! The machine: cards, their processes, and the coordinator, in virtual time.

mod coordination;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use hami_limits::grants::{SILENCE_NS, UNBLOCKS_IDLE};
use hami_share::lease::{Leases, Report};
use hami_share::{Grant, Kind, Regime, timing};

use crate::engine::{Ended, Engine, Meetings};
use crate::pace::{Pace, permission};
use crate::program::{Action, Program, Thread};
use crate::{Prng, S, US};

const METER_NS: u64 = 50 * US;
/// The time until a process or the coordinator runs after it was woken.
const WAKE_NS: u64 = 60 * US;
const LAUNCH_NS: u64 = 3 * US;
/// The queue of a program without a limit.
const QUEUE: u64 = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Engine,
    Host(usize, usize),
    Meter(usize),
    Stall(usize),
    Coordinate,
    Tick,
    Stop(usize),
    Continue(usize),
    Kill(usize),
    /// The coordinator is killed; another one starts after this time.
    Replace(u64),
    /// Grants do not count any more.
    Silence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Host {
    Runs,
    /// A launch waits.
    Waits,
    /// For its own work.
    Synchronizes,
    Sleeps,
    Ended,
}

/// False reports of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lie {
    #[default]
    None,
    Runs,
    Waits,
    Toggles,
    Stalled,
    RunsAndWaits,
}

#[derive(Debug)]
pub struct HostThread {
    pub thread: Thread,
    host: Host,
    action: Option<Action>,
    streams: usize,
}

/// The files of a slice.
#[derive(Debug)]
struct Slice {
    gang: Option<u128>,
    /// The card of each row, how the slice shares it, and its grant.
    rows: Vec<(usize, Regime, Grant)>,
}

/// A process on one card.
#[derive(Debug)]
pub struct Process {
    pub slice: usize,
    row: usize,
    card: usize,
    pub threads: Vec<HostThread>,
    pace: Pace,
    /// Unfinished kernels by stream, with whether an event is behind each.
    queued: BTreeMap<usize, VecDeque<bool>>,
    seen_ends: Vec<(Ended, bool, bool)>,
    reported: Report,
    /// The number of the last grant that it has read, and the last round of [`Grant::unblock`].
    seen_number: u32,
    unblocked: u64,
    heartbeat: u64,
    pub lie: Lie,
    stopped: bool,
    killed_at: Option<u64>,
    missed: Vec<Event>,
    began_at: BTreeMap<usize, u64>,
}

pub struct Machine {
    pub now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    engines: Vec<Engine>,
    meetings: Meetings,
    engine_at: u64,
    pub processes: Vec<Process>,
    slices: Vec<Slice>,
    leases: Leases,
    /// When the coordinator last decided.
    pulse: u64,
    coordinator_starts: u64,
    coordinate_at: u64,
    prng: Prng,
    pub seconds: Vec<Vec<u64>>,
    pub native: bool,
    starts: Vec<u64>,
}

impl Machine {
    pub fn new(native: bool) -> Self {
        let mut machine = Self {
            now: 0,
            events: BinaryHeap::new(),
            sequence: 0,
            engines: Vec::new(),
            meetings: Meetings::default(),
            engine_at: u64::MAX,
            processes: Vec::new(),
            slices: Vec::new(),
            leases: Leases::new(),
            pulse: 0,
            coordinator_starts: 0,
            coordinate_at: u64::MAX,
            prng: Prng(1),
            seconds: Vec::new(),
            native,
            starts: Vec::new(),
        };
        machine.push(S, Event::Tick);
        machine
    }

    /// A slice of card 0.
    pub fn slice(&mut self, regime: Regime) -> usize {
        self.slice_on(None, &[(0, regime)])
    }

    pub fn slice_on(&mut self, gang: Option<u128>, rows: &[(usize, Regime)]) -> usize {
        for (card, _) in rows {
            while self.engines.len() <= *card {
                self.engines.push(Engine::new(self.meetings.clone()));
            }
        }
        let row = |(card, regime): &(usize, Regime)| {
            // As beside a neighbour that is active: the program starts without admission.
            let is_limited = (1..100).contains(&regime.share);
            let kind = if is_limited { Kind::Lease } else { Kind::Own };
            (*card, *regime, Grant { kind, ..Grant::default() })
        };
        let rows = rows.iter().map(row).collect();
        self.slices.push(Slice { gang, rows });
        self.slices.len() - 1
    }

    pub fn process(&mut self, slice: usize, programs: &[Program], start: u64) -> usize {
        self.process_on(slice, 0, programs, start)
    }

    pub fn process_on(
        &mut self,
        slice: usize,
        row: usize,
        programs: &[Program],
        start: u64,
    ) -> usize {
        let p = self.processes.len();
        let threads = programs.iter().enumerate().map(|(t, program)| HostThread {
            thread: Thread::new(program.clone(), (p * 64 + t + 1) as u64),
            host: Host::Runs,
            action: None,
            streams: t * 1_000,
        });
        let threads: Vec<HostThread> = threads.collect();
        for t in 0..threads.len() {
            self.push(start, Event::Host(p, t));
        }
        self.starts.push(start);
        self.processes.push(Process {
            slice,
            row,
            card: self.slices[slice].rows[row].0,
            threads,
            pace: Pace::new(),
            queued: BTreeMap::new(),
            seen_ends: Vec::new(),
            reported: Report::default(),
            seen_number: 0,
            unblocked: 0,
            heartbeat: 0,
            lie: Lie::None,
            stopped: false,
            killed_at: None,
            missed: Vec::new(),
            began_at: BTreeMap::new(),
        });
        p
    }

    /// Stops a process for `stop` of each `period`.
    pub fn stop_and_continue(&mut self, p: usize, stop: u64, period: u64, until: u64) {
        let mut at = period;
        while at < until {
            self.push(at, Event::Stop(p));
            self.push(at + stop, Event::Continue(p));
            at += period;
        }
    }

    pub fn kill(&mut self, p: usize, at: u64) {
        self.push(at, Event::Kill(p));
    }

    /// Kills the coordinator, and starts another one after `gap`.
    pub fn replace_coordinator(&mut self, at: u64, gap: u64) {
        self.push(at, Event::Replace(gap));
    }

    /// How a slice shares card 0 from now on.
    pub fn share(&mut self, slice: usize, regime: Regime) {
        self.slices[slice].rows[0].1 = regime;
    }

    pub fn work(&self, p: usize) -> u64 {
        *self.engines[self.processes[p].card].work.get(&p).unwrap_or(&0)
    }

    pub fn run(&mut self, until: u64) {
        self.wake(self.now);
        while self.events.peek().is_some_and(|next| next.0.0 <= until)
            && let Some(Reverse((time, _, event))) = self.events.pop()
        {
            self.now = time;
            self.handle(event);
        }
        self.now = until;
        self.advance();
    }

    fn push(&mut self, time: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((time, self.sequence, event)));
    }

    fn late(&mut self, ns: u64) -> u64 {
        self.now + ns / 2 + self.prng.below(ns)
    }

    fn handle(&mut self, event: Event) {
        let process = match event {
            Event::Host(p, _) | Event::Meter(p) | Event::Stall(p) => Some(p),
            _ => None,
        };
        if let Some(p) = process
            && self.processes[p].stopped
        {
            self.processes[p].missed.push(event);
            return;
        }
        match event {
            Event::Engine if self.engine_at == self.now => self.advance(),
            Event::Host(p, t) => self.host(p, t),
            Event::Meter(p) => self.meter(p),
            Event::Stall(p) => self.stall(p),
            Event::Coordinate if self.coordinate_at == self.now => self.coordinate(),
            // Its time has been set anew.
            Event::Engine | Event::Coordinate => {}
            Event::Tick => {
                self.advance();
                self.seconds.push((0..self.processes.len()).map(|p| self.work(p)).collect());
                self.push(self.now + S, Event::Tick);
            }
            Event::Stop(p) => self.processes[p].stopped = true,
            Event::Continue(p) => {
                self.processes[p].stopped = false;
                for event in std::mem::take(&mut self.processes[p].missed) {
                    self.push(self.now, event);
                }
            }
            Event::Kill(p) => {
                self.advance();
                (self.processes[p].stopped, self.processes[p].killed_at) = (true, Some(self.now));
                self.engines[self.processes[p].card].kill(self.now, p);
                self.advance();
            }
            Event::Replace(gap) => {
                self.leases = Leases::new();
                self.coordinator_starts = self.now + gap;
                self.coordinate_at = self.coordinator_starts;
                self.push(self.coordinate_at, Event::Coordinate);
                self.push(self.pulse + SILENCE_NS + US, Event::Silence);
            }
            Event::Silence if self.grants_count() => {}
            Event::Silence => self.wake_waiting(|_| true),
        }
    }

    fn advance(&mut self) {
        let now = self.now;
        let ends: Vec<Ended> = self.engines.iter_mut().flat_map(|it| it.advance(now)).collect();
        for end in ends {
            let it = &mut self.processes[end.context];
            let queue = it.queued.get_mut(&end.stream).expect("it was launched");
            let marked = queue.pop_front().expect("it was launched");
            let empty = queue.is_empty();
            let began = *it.began_at.entry(end.stream).or_insert(end.began);
            if marked || empty {
                it.began_at.remove(&end.stream);
                it.seen_ends.push((Ended { began, ..end }, marked, empty));
                let at = self.late(METER_NS);
                self.push(at, Event::Meter(end.context));
            }
            let p = end.context;
            for t in 0..self.processes[p].threads.len() {
                let it = &self.processes[p];
                if it.threads[t].host == Host::Synchronizes && self.is_done(p, t) {
                    self.push(self.now + 5 * US, Event::Host(p, t));
                }
            }
            if self.native {
                for t in 0..self.processes[p].threads.len() {
                    if self.processes[p].threads[t].host == Host::Waits {
                        self.push(self.now, Event::Host(p, t));
                    }
                }
            }
        }
        let next = self.engines.iter().map(Engine::next_change).min().unwrap_or(u64::MAX);
        if next < u64::MAX && next != self.engine_at {
            self.push(next, Event::Engine);
        }
        self.engine_at = next;
    }

    fn is_done(&self, p: usize, t: usize) -> bool {
        let it = &self.processes[p];
        let base = it.threads[t].streams;
        it.queued.range(base..base + 1_000).all(|(_, queue)| queue.is_empty())
    }

    /// The processes for which this holds, and that wait, look at their grants again.
    fn wake_waiting(&mut self, which: impl Fn(&Process) -> bool) {
        for p in 0..self.processes.len() {
            for t in 0..self.processes[p].threads.len() {
                let it = &self.processes[p];
                if which(it) && it.threads[t].host == Host::Waits {
                    let at = self.late(WAKE_NS);
                    self.push(at, Event::Host(p, t));
                }
            }
        }
    }

    fn grants_count(&self) -> bool {
        self.now <= self.pulse + SILENCE_NS
    }

    /// The grant of a process; the default one without a coordinator.
    fn grant(&self, p: usize) -> Grant {
        let (slice, row) = (self.processes[p].slice, self.processes[p].row);
        let grant = self.slices[slice].rows[row].2;
        if self.grants_count() { grant } else { Grant { number: grant.number, ..Grant::default() } }
    }

    /// The thread runs until it has to wait.
    fn host(&mut self, p: usize, t: usize) {
        self.advance();
        loop {
            let now = self.now;
            let it = &mut self.processes[p].threads[t];
            let action = match it.action.take() {
                Some(action) => action,
                None => it.thread.next(now),
            };
            it.host = Host::Runs;
            match action {
                Action::End => {
                    it.host = Host::Ended;
                    it.action = Some(Action::End);
                    return;
                }
                Action::SleepUntil(time) if time > now => {
                    it.host = Host::Sleeps;
                    it.action = Some(Action::SleepUntil(time));
                    self.push(time, Event::Host(p, t));
                    return;
                }
                Action::SleepUntil(_) => {}
                Action::Open(meeting) => {
                    let card = self.processes[p].card;
                    self.engines[card].open(now, meeting);
                    self.advance();
                }
                Action::Wait => {
                    if !self.is_done(p, t) {
                        self.processes[p].threads[t].host = Host::Synchronizes;
                        self.processes[p].threads[t].action = Some(Action::Wait);
                        return;
                    }
                    self.see(p);
                }
                Action::Launch { stream, kernel } => {
                    let stream = stream + it.streams;
                    let launch = (stream, kernel.function());
                    if let Err(again) = self.may_launch(p, launch) {
                        let it = &mut self.processes[p].threads[t];
                        it.host = Host::Waits;
                        let stream = stream - it.streams;
                        it.action = Some(Action::Launch { stream, kernel });
                        if let Some(again) = again {
                            self.push(again.max(now + US), Event::Host(p, t));
                        }
                        self.report(p);
                        return;
                    }
                    let depth = self.grant(p).depth.max(timing::SHALLOW);
                    let it = &mut self.processes[p];
                    let was_idle = it.pace.is_idle();
                    let marked = it.pace.launched(now, launch, depth);
                    it.queued.entry(stream).or_default().push_back(marked);
                    let card = it.card;
                    self.engines[card].submit(now, p, stream, kernel);
                    self.advance();
                    if was_idle {
                        self.report(p);
                        let at = self.processes[p].pace.stalls_at();
                        self.push(at, Event::Stall(p));
                    }
                    self.push(now + LAUNCH_NS, Event::Host(p, t));
                    return;
                }
            }
        }
    }

    fn may_launch(&mut self, p: usize, launch: (usize, usize)) -> Result<(), Option<u64>> {
        let (stream, _) = launch;
        if self.native {
            let queued: usize = self.processes[p].queued.get(&stream).map_or(0, VecDeque::len);
            return if (queued as u64) < QUEUE { Ok(()) } else { Err(None) };
        }
        let grant = self.grant(p);
        let now = self.now;
        let it = &mut self.processes[p];
        it.seen_number = grant.number;
        let queued = it.queued.get(&stream).map_or(0, VecDeque::len);
        if grant.unblock != it.unblocked {
            it.unblocked = grant.unblock;
            let only_idle = grant.unblock & UNBLOCKS_IDLE != 0;
            if grant.unblock != 0 && (!only_idle || it.pace.is_idle()) {
                it.pace.unblock(now, grant.unblock & (UNBLOCKS_IDLE - 1));
            }
        }
        if queued as u64 >= QUEUE {
            return Err(None);
        }
        let regime = self.slices[it.slice].rows[it.row].1;
        let permission = permission(&grant, p as u16, regime);
        it.pace.may_launch(now, launch, (permission, &grant))
    }

    /// The process sees which of its work has ended.
    fn see(&mut self, p: usize) {
        self.advance();
        let now = self.now;
        let it = &mut self.processes[p];
        for (end, marked, empty) in std::mem::take(&mut it.seen_ends) {
            let empty = empty && it.queued[&end.stream].is_empty();
            if marked || empty {
                it.pace.ended(now, end.stream, end.began, end.at, empty);
            }
        }
        self.report(p);
    }

    fn meter(&mut self, p: usize) {
        self.see(p);
        for t in 0..self.processes[p].threads.len() {
            if self.processes[p].threads[t].host == Host::Waits {
                self.host(p, t);
            }
        }
        if !self.native && !self.processes[p].pace.is_idle() {
            let at = self.processes[p].pace.stalls_at();
            self.push(at, Event::Stall(p));
        }
    }

    fn stall(&mut self, p: usize) {
        if self.native || self.processes[p].pace.stalls_at() != self.now {
            return;
        }
        let now = self.now;
        self.processes[p].pace.stalled(now);
        self.report(p);
        let at = self.processes[p].pace.stalls_at();
        self.push(at, Event::Stall(p));
        for t in 0..self.processes[p].threads.len() {
            if self.processes[p].threads[t].host == Host::Waits {
                self.host(p, t);
            }
        }
    }
}

impl HostThread {
    pub fn has_ended(&self) -> bool {
        self.host == Host::Ended
    }
}
