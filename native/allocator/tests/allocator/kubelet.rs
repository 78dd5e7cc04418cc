//! The kubelet's allocation of devices, step by step, with every choice that it can make.
//!
//! This is the oracle for plans. It knows cards, what other pods take of them, and how
//! `devicesToReuse` works. It does not know groups or peaks.

use hami_allocator::wire::{Card, ContainerRequest, Kind, Memory, Mode, PodRequest};
use std::cell::RefCell;

/// The part of a card that other pods take.
#[derive(Clone, Copy, Default, Debug)]
pub struct Others {
    pub memory: u64,
    pub cores: u32,
    pub slots: u32,
}

pub struct Machine<'a> {
    pub cards: &'a [Card],
    pub others: &'a [Others],
    pub mode: Mode,
    pub numa: bool,
    pub request: &'a PodRequest,
    /// The most that ran on each card at a time, over all tried choices.
    pub worst: RefCell<Vec<Others>>,
}

/// The new cards of each container, besides those that it reuses.
pub type Plan = Vec<Vec<usize>>;

#[derive(Clone, Default)]
struct State {
    /// The cards of the IDs that the next container can reuse.
    waiting: Vec<usize>,
    /// The running containers and their cards.
    running: Vec<(usize, usize)>,
    ids: Vec<usize>,
}

impl Machine<'_> {
    /// How many new cards each container needs.
    pub fn needs(&self) -> Vec<usize> {
        let mut waiting = 0;
        let need = |container: &ContainerRequest| {
            let count = container.cards as usize;
            let reused = count.min(waiting);
            match container.kind {
                Kind::Init => waiting = waiting.max(count),
                Kind::Sidecar | Kind::App => waiting -= reused,
            }
            count - reused
        };
        self.request.containers.iter().map(need).collect()
    }

    /// Whether a plan works whatever the kubelet picks.
    pub fn is_feasible(&self) -> bool {
        self.some_plan(&self.needs(), &mut Vec::new())
    }

    fn some_plan(&self, needs: &[usize], plan: &mut Plan) -> bool {
        if plan.len() == needs.len() {
            return self.holds(plan);
        }
        subsets(self.cards.len(), needs[plan.len()]).into_iter().any(|cards| {
            plan.push(cards);
            let found = self.some_plan(needs, plan);
            plan.pop();
            found
        })
    }

    /// Whether this plan works whatever the kubelet picks.
    pub fn holds(&self, plan: &Plan) -> bool {
        self.hand_out(0, plan, &State::default())
    }

    fn hand_out(&self, at: usize, plan: &Plan, state: &State) -> bool {
        let Some(container) = self.request.containers.get(at) else {
            return self.runs(&state.running, &state.ids);
        };
        let reused = container.cards as usize - plan[at].len();
        subsets(state.waiting.len(), reused).into_iter().all(|chosen| {
            let mut next = state.clone();
            let taken: Vec<usize> = chosen.iter().map(|at| state.waiting[*at]).collect();
            let hand: Vec<usize> = taken.iter().chain(&plan[at]).copied().collect();
            if !self.may_be_together(&hand) {
                return false;
            }
            next.ids.extend(&plan[at]);
            let mut running = state.running.clone();
            running.extend(hand.iter().map(|card| (at, *card)));
            match container.kind {
                Kind::Init => {
                    if !self.runs(&running, &next.ids) {
                        return false;
                    }
                    next.waiting.extend(&plan[at]);
                }
                Kind::Sidecar | Kind::App => {
                    next.running = running;
                    for at in chosen.iter().rev() {
                        next.waiting.remove(*at);
                    }
                }
            }
            self.hand_out(at + 1, plan, &next)
        })
    }

    fn may_be_together(&self, hand: &[usize]) -> bool {
        let differ = (1..hand.len()).all(|at| !hand[..at].contains(&hand[at]));
        let numa = |card: usize| self.cards[card].numa;
        let near = hand.len() < 2
            || (numa(hand[0]).is_some() && hand.iter().all(|card| numa(*card) == numa(hand[0])));
        differ && (near || !self.numa)
    }

    /// Whether these containers can run at the same time.
    fn runs(&self, running: &[(usize, usize)], ids: &[usize]) -> bool {
        (0..self.cards.len()).all(|card| {
            let (has, others) = (&self.cards[card], self.others[card]);
            let here = || {
                running
                    .iter()
                    .filter(|(_, on)| *on == card)
                    .map(|(at, _)| &self.request.containers[*at])
            };
            let slots = ids.iter().filter(|on| **on == card).count() as u32;
            if slots == 0 {
                return true;
            }
            let memory: u64 = here().map(|container| weight(container, has)).sum();
            let cores: u32 = here().map(|container| self.cores(container)).sum();
            let worst = &mut self.worst.borrow_mut()[card];
            worst.memory = worst.memory.max(memory);
            worst.cores = worst.cores.max(cores);
            worst.slots = worst.slots.max(slots);
            let starved = here()
                .any(|container| self.cores(container) == 0 && others.cores + cores >= has.cores);
            let alone = here().all(|container| container.cores < 100 || others.slots == 0);
            has.healthy
                && !has.cordoned
                && others.memory + memory + has.foreign_mib <= has.memory_mib
                && others.cores + cores <= has.cores
                && others.slots + slots <= has.slots
                && alone
                && !starved
        })
    }

    fn cores(&self, container: &ContainerRequest) -> u32 {
        if self.mode == Mode::Memory && container.cores < 100 { 0 } else { container.cores }
    }
}

/// The MiB that a container takes of a card.
pub fn weight(container: &ContainerRequest, card: &Card) -> u64 {
    match container.memory {
        Memory::Mib(mib) => mib,
        Memory::Percent(percent) => card.memory_mib * u64::from(percent) / 100,
        Memory::Whole => card.memory_mib,
    }
}

/// All subsets of `0..end` of this size.
pub fn subsets(end: usize, count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let with_last = |last: usize| {
        subsets(last, count - 1).into_iter().map(move |mut first| {
            first.push(last);
            first
        })
    };
    (0..end).flat_map(with_last).collect()
}
