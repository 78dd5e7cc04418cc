//! The machine's interface: its owner adds items, sets the time and queries marks.

use super::billing::{Bill, Billing, Bills};
use super::program::{ClientItems, ContextOwner, LaneItems, Program, Task};
use super::state::{Card, Discard, State};
use super::{
    BUCKET_NS, FULL, Item, KernelUse, LONGEST_NS, Mark, PERIOD_NS, Progress, Query, Slicing,
    Status, Work,
};

/// The most events that a forecast looks ahead. A query of something farther away has to be
/// repeated.
const FORECAST_EVENTS: u32 = 20_000;

/// How long a caller may wait before it queries again, in nanoseconds, while another process has
/// work: when that process ends, everything is done sooner.
const PATIENCE_NS: u64 = 10_000_000;

/// The cards and all work on them.
#[derive(Debug)]
pub struct Machine {
    program: Program,
    state: State,
    bills: Bills,
    /// The names of the groups, by number.
    groups: Vec<String>,
    free_lanes: Vec<usize>,
    free_contexts: Vec<usize>,
}

impl Machine {
    /// Creates a machine with so many idle cards, at instant 0.
    pub fn new(cards: usize) -> Self {
        let mut state = State::default();
        state.cards.resize(cards, Card::default());
        Self {
            program: Program::default(),
            state,
            bills: Bills::default(),
            groups: Vec::new(),
            free_lanes: Vec::new(),
            free_contexts: Vec::new(),
        }
    }

    /// Has so many cards at least.
    pub fn grow(&mut self, cards: usize) {
        let cards = cards.max(self.state.cards.len());
        self.state.cards.resize(cards, Card::default());
        self.bills.pages.iter_mut().for_each(|page| page.resize(cards, Bill::default()));
    }

    /// The machine's time: everything up to it has happened.
    pub fn now(&self) -> u64 {
        self.state.now
    }

    /// Adds a process; clients are numbered from 0. The participants of a collective are of one
    /// group.
    pub fn attach(&mut self, group: &str) -> usize {
        let known = self.groups.iter().position(|name| name == group);
        let group = known.unwrap_or_else(|| {
            self.groups.push(group.to_owned());
            self.groups.len() - 1
        });
        self.program.clients.push(ClientItems { group, ..ClientItems::default() });
        self.bills.pages.push(vec![Bill::default(); self.state.cards.len()]);
        self.program.clients.len() - 1
    }

    /// The number of a kernel's name.
    pub fn kernel(&mut self, name: &str) -> u32 {
        self.program.names.number(name)
    }

    /// Changes how contexts take turns, from an instant on.
    pub fn set_slicing(&mut self, slicing: Slicing, at: u64) {
        self.advance(at);
        let slice_ns = slicing.slice_ns.max(1);
        self.program.slicing = Slicing { slice_ns, ..slicing };
    }

    /// Adds an item. One whose time is in the machine's past counts from now. An invalid item (a
    /// position that is not the next of its lane, an unknown card or kernel name) is dropped: its
    /// process is broken, the others are not.
    pub fn submit(&mut self, client: usize, item: &Item) {
        self.advance(item.at);
        let card = item.card as usize;
        if card >= self.state.cards.len() || client >= self.program.clients.len() {
            return;
        }
        let Some(lane) = self.lane_for(client, item.mark) else { return };
        let context = self.context_for(client, item.context, card);
        let Some(task) = self.task_of(client, card, lane, item) else { return };
        let program = &mut self.program;
        let Some(items) = &mut program.lanes[lane] else { return };
        match task {
            Task::Kernel { .. } => items.is_copying = false,
            Task::Copy { .. } => items.is_copying = true,
            Task::Record { event, .. } => {
                program.clients[client].events.insert(event, (item.mark, None));
            }
            Task::Wait(_) | Task::End => {}
        }
        let done = self.state.done[lane];
        items.trim(done);
        items.push(context, task);
        if items.last() == done + 1 {
            self.state.wake(lane);
        }
    }

    fn task_of(&mut self, client: usize, card: usize, lane: usize, item: &Item) -> Option<Task> {
        let program = &mut self.program;
        Some(match item.work {
            Work::Kernel { name, ns, demand } => {
                let known = program.names.get(name)?;
                let (is_collective, by_stream) = (known.meets > 0, known.by_stream);
                let mut turn = 0;
                if is_collective {
                    let taker = if by_stream { item.mark.lane() as usize } else { card };
                    let turns = program.clients[client].turns.entry((name, taker)).or_default();
                    *turns += 1;
                    turn = *turns;
                }
                let used = self.bills.pages[client][card].by_kernel.entry(name).or_default();
                used.launched += 1;
                Task::Kernel { name, ns: ns.min(LONGEST_NS), demand: demand.clamp(1, FULL), turn }
            }
            Work::Copy { direction, ns } => Task::Copy { direction, ns: ns.min(LONGEST_NS) },
            Work::Record { event } => {
                let needs_engine =
                    program.lanes[lane].as_ref().is_some_and(|items| !items.is_copying);
                Task::Record { event, needs_engine }
            }
            Work::Wait(mark) => Task::Wait(mark),
            Work::End => Task::End,
        })
    }

    /// The index of the lane in which this mark is the next one.
    fn lane_for(&mut self, client: usize, mark: Mark) -> Option<usize> {
        if let Some(lane) = self.program.lane(client, mark) {
            let items = self.program.lanes[lane].as_ref()?;
            return (items.last() + 1 == mark.position()).then_some(lane);
        }
        if mark.lane() == 0 || mark.position() != 1 {
            return None;
        }
        let items = Some(LaneItems::new(client, mark.lane()));
        let lane = self.free_lanes.pop().unwrap_or(self.program.lanes.len());
        if lane == self.program.lanes.len() {
            self.program.lanes.push(items);
            self.state.done.push(0);
        } else {
            self.program.lanes[lane] = items;
            self.state.done[lane] = 0;
        }
        self.program.clients[client].lanes.insert(mark.lane(), lane);
        Some(lane)
    }

    fn context_for(&mut self, client: usize, number: u32, card: usize) -> usize {
        let known = self.program.clients[client].contexts.get(&(number, card));
        if let Some(known) = known {
            return *known;
        }
        let owner = ContextOwner { client, card };
        let context = self.free_contexts.pop().unwrap_or(self.program.contexts.len());
        if context == self.program.contexts.len() {
            self.program.contexts.push(owner);
            self.state.contexts.push(super::state::Context::default());
        } else {
            self.program.contexts[context] = owner;
        }
        self.program.clients[client].contexts.insert((number, card), context);
        context
    }

    /// Advances up to an instant. An instant in the past changes nothing.
    pub fn advance(&mut self, to: u64) {
        let mut sink = Billing::new(&mut self.bills, &self.program);
        self.state.advance(&self.program, to, &mut sink);
        let Billing { reached, ended, .. } = sink;
        for (client, event, mark, at) in reached {
            // Where the event was recorded again in another lane, the new record counts.
            if let Some(last) = self.program.clients[client].events.get_mut(&event)
                && last.0 == mark
            {
                last.1 = Some(at);
            }
        }
        for lane in ended {
            self.drop_lane(lane);
        }
    }

    fn drop_lane(&mut self, lane: usize) {
        if let Some(items) = self.program.lanes[lane].take() {
            self.program.clients[items.client].lanes.remove(&items.number);
            self.free_lanes.push(lane);
        }
    }

    /// Ends a process and its work.
    pub fn client_ended(&mut self, client: usize, at: u64) {
        self.advance(at);
        let found = &mut self.program.clients[client];
        let contexts: Vec<_> = std::mem::take(&mut found.contexts).into_values().collect();
        let lanes: Vec<_> = found.lanes.values().copied().collect();
        found.events.clear();
        self.state.forget(&self.program, &lanes, &contexts);
        for lane in lanes {
            self.drop_lane(lane);
        }
        self.free_contexts.extend(contexts);
    }

    /// The status of a mark now.
    pub fn status(&mut self, client: usize, query: &Query) -> Status {
        let Query { mark, event, has_forecast } = *query;
        self.advance(self.state.now);
        let lane = self.program.lane(client, mark);
        let lane_done = lane.map_or(Mark::LAST_POSITION, |lane| self.state.done[lane]);
        let progress = if lane_done >= mark.position() {
            Progress::Done(event.and_then(|event| self.done_at(client, event, mark)))
        } else {
            let forecast = if has_forecast { self.forecast(client, mark) } else { None };
            let is_shared = self.state.is_shared(&self.program, client);
            let patience = if is_shared { PATIENCE_NS } else { u64::MAX };
            let check_at = forecast.map(|at| at.min(self.state.now.saturating_add(patience)));
            let earliest = self.state.earliest(&self.program, client, mark);
            Progress::Pending { forecast, check_at, earliest }
        };
        Status { progress, lane_done }
    }

    /// When the engine reached an event that was last recorded at this mark.
    fn done_at(&self, client: usize, event: u32, mark: Mark) -> Option<u64> {
        let (last, at) = self.program.clients[client].events.get(&event)?;
        (*last == mark).then_some(*at)?
    }

    /// When a mark will be done if no work is added and no process ends; `None` when it waits for
    /// work that may never be submitted. Beyond the limit of forecasts, an instant before which it
    /// is not done.
    pub fn forecast(&self, client: usize, mark: Mark) -> Option<u64> {
        let mut ahead = self.state.clone();
        let mut left = FORECAST_EVENTS;
        ahead.run_instant(&self.program, &mut Discard);
        while !ahead.is_done(&self.program, client, mark) {
            let next = ahead.next_event(&self.program)?;
            if left == 0 {
                return Some(next);
            }
            left -= 1;
            ahead.advance(&self.program, next, &mut Discard);
        }
        Some(ahead.now)
    }

    fn page(&self, client: usize, card: usize) -> Option<&Bill> {
        self.bills.pages.get(client)?.get(card)
    }

    /// Engine time of a client on a card so far, in nanoseconds.
    pub fn busy_ns(&self, client: usize, card: usize) -> u64 {
        self.page(client, card).map_or(0, |page| page.busy_ns)
    }

    /// How busy a client kept a card lately, in percent: the mean of the last [`PERIOD_NS`].
    pub fn percent(&self, client: usize, card: usize) -> u32 {
        let recent = self.page(client, card).map_or(0, |page| page.recent(self.state.now));
        (recent * 100 / PERIOD_NS) as u32
    }

    /// How busy a card was lately, in percent, with the work of all clients.
    pub fn card_percent(&self, card: usize) -> u32 {
        let pages = self.bills.pages.iter().filter_map(|cards| cards.get(card));
        let recent: u64 = pages.map(|page| page.recent(self.state.now)).sum();
        (recent * 100 / PERIOD_NS) as u32
    }

    /// The use of a card by each kernel of a client, by name.
    pub fn by_kernel(&self, client: usize, card: usize) -> impl Iterator<Item = (&str, KernelUse)> {
        let used = self.page(client, card).into_iter().flat_map(|page| &page.by_kernel);
        used.filter_map(|(name, used)| Some((self.program.names.get(*name)?.text.as_str(), *used)))
    }

    /// When a client was on a card's engine: the start of a bucket of [`BUCKET_NS`] and the engine
    /// time in it, both in nanoseconds, without empty buckets; the last 44 minutes of them.
    pub fn history(&self, client: usize, card: usize) -> impl Iterator<Item = (u64, u64)> {
        let buckets = self.page(client, card).into_iter().flat_map(|page| &page.history);
        buckets.map(|(bucket, ns)| (bucket * BUCKET_NS, *ns))
    }
}
