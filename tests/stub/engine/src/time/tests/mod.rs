//! The machine, driven by hand: every number here can be worked out on paper.

mod collectives;
mod earliest;
mod lanes;
mod turns;

use super::*;

const US: u64 = 1000;
const MS: u64 = 1_000_000;

/// A machine and how its clients' lanes are numbered.
struct Desk {
    machine: Machine,
    next_lane: u32,
}

/// A lane of a client: context 1 on a card.
struct Handle {
    client: usize,
    context: u32,
    card: u32,
    lane: Lane,
}

impl Desk {
    fn new(cards: usize) -> Self {
        Self { machine: Machine::new(cards), next_lane: 0 }
    }

    /// A new lane of a client on card 0.
    fn lane(client: usize) -> Handle {
        Handle { client, context: 1, card: 0, lane: Lane::default() }
    }

    fn submit(&mut self, on: &Handle, work: Work, at: u64) -> Mark {
        let mark = on.lane.add(&mut self.next_lane);
        let item = Item { at, mark, context: on.context, card: on.card, work };
        self.machine.submit(on.client, &item);
        mark
    }

    /// A kernel that fills the card.
    fn launch(&mut self, on: &Handle, name: &str, ns: u64, at: u64) -> Mark {
        self.launch_part(on, name, ns, FULL, at)
    }

    fn launch_part(&mut self, on: &Handle, name: &str, ns: u64, demand: u32, at: u64) -> Mark {
        let name = self.machine.kernel(name);
        self.submit(on, Work::Kernel { name, ns, demand }, at)
    }

    fn record(&mut self, on: &Handle, event: u32, at: u64) -> Mark {
        self.submit(on, Work::Record { event }, at)
    }

    fn status(&mut self, client: usize, mark: Mark, event: Option<u32>) -> Status {
        self.machine.status(client, &Query { mark, event, has_forecast: true })
    }

    fn is_done(&mut self, client: usize, mark: Mark) -> bool {
        matches!(self.status(client, mark, None).progress, Progress::Done(_))
    }

    /// When an event was reached.
    fn reached(&mut self, client: usize, event: u32, mark: Mark) -> u64 {
        match self.status(client, mark, Some(event)).progress {
            Progress::Done(at) => at.expect("recorded there"),
            pending @ Progress::Pending { .. } => panic!("not reached: {pending:?}"),
        }
    }

    /// Goes to when a mark is done as forecast, and checks that it is done then and not before.
    fn finish(&mut self, client: usize, mark: Mark) -> u64 {
        let at = self.machine.forecast(client, mark).expect("it comes to an end");
        self.machine.advance(at - 1);
        assert!(!self.is_done(client, mark), "a nanosecond before {at}");
        self.machine.advance(at);
        assert!(self.is_done(client, mark), "at {at}");
        at
    }

    fn busy(&self, client: usize) -> u64 {
        self.machine.busy_ns(client, 0)
    }
}
