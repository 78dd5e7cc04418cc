//! What was answered, as someone knows who only listened: counted from nothing, it must never be more
//! than there is.

use hami_allocator::wire::{Ask, Assignment, Kind, Node, Quota, Request};
use std::collections::BTreeMap;

/// What a watcher of the answers knows.
#[derive(Default)]
pub struct Ledger {
    /// By name.
    pub nodes: BTreeMap<String, Node>,
    /// By name; all of one namespace.
    pub quotas: BTreeMap<String, Quota>,
    /// By UID: request, answer, whether started, whether the API has it.
    pub pods: BTreeMap<String, (Request, Assignment, bool, bool)>,
}

impl Ledger {
    /// The cards of a new answer: all that was answered for them, counted from nothing.
    pub fn check(&self, request: &Request, assignment: &Assignment) {
        let node = &self.nodes[&assignment.node];
        let granted: Vec<&str> =
            assignment.containers.values().flatten().map(|grant| grant.card.as_str()).collect();
        for card in node.cards.iter().filter(|card| granted.contains(&card.uuid.as_str())) {
            let on = self.pods.values().filter(|(_, answer, ..)| answer.node == node.name);
            let (mut memory, mut cores, mut pods) = (0, 0, 0);
            for (request, answer, started, _) in on {
                let (more, most) = peak(request, answer, *started, &card.uuid, card.overhead_mib);
                memory += more;
                cores += most;
                pods += u32::from(more > 0);
            }
            assert!(memory + card.foreign_mib <= card.memory_mib, "{memory} MiB on {card:?}");
            assert!(cores <= card.cores, "{cores} % on {card:?}");
            assert!(pods <= card.slots);
            assert!(card.healthy && !card.cordoned && !request.wish.avoid.contains(&card.uuid));
        }
        let containers =
            request.asks.iter().map(|ask| (ask, &assignment.containers[&ask.container]));
        for (ask, grants) in containers {
            assert_eq!(grants.len(), ask.cards as usize);
            let mut cards: Vec<&str> = grants.iter().map(|grant| grant.card.as_str()).collect();
            cards.sort_unstable();
            cards.dedup();
            assert_eq!(cards.len(), ask.cards as usize, "different cards: {grants:?}");
        }
        for quota in self.quotas.values() {
            // One may be set when more is in use already.
            let spent = self.spent(None).into_iter().zip(self.spent(Some(request)));
            for (most, (now, before)) in
                [quota.gpu, quota.memory_mib, quota.cores].iter().zip(spent)
            {
                let holds = most.is_none_or(|most| now <= most || before > most);
                assert!(holds, "{now} of {most:?} in {quota:?}");
            }
        }
    }

    /// Cards, MiB and percent of all pods, or of all but one.
    fn spent(&self, but: Option<&Request>) -> [u64; 3] {
        let mut spent = [0; 3];
        for (request, answer, started, _) in self.pods.values() {
            if but.is_some_and(|but| but.pod == request.pod) {
                continue;
            }
            let memory_mib = |ask: &Ask| {
                answer.containers[&ask.container].iter().map(|grant| grant.memory_mib).sum()
            };
            spent[0] += most(request, *started, |ask| u64::from(ask.cards));
            spent[1] += most(request, *started, memory_mib);
            // As asked for: a MIG device has more, and who counts no cores is granted none.
            spent[2] += most(request, *started, |ask| u64::from(ask.cores * ask.cards));
        }
        spent
    }
}

/// MiB and percent of one pod on one card in its heaviest phase.
fn peak(
    request: &Request,
    answer: &Assignment,
    started: bool,
    card: &str,
    overhead: u64,
) -> (u64, u32) {
    let (mut steady, mut peak) = ((0, 0), (0, 0));
    for ask in &request.asks {
        let mine = answer.containers[&ask.container].iter().filter(|grant| grant.card == card);
        let one = mine
            .fold((0, 0), |sum, grant| (sum.0 + grant.memory_mib + overhead, sum.1 + grant.cores));
        let now = (steady.0 + one.0, steady.1 + one.1);
        if ask.kind != Kind::Init {
            steady = now;
        }
        if ask.kind != Kind::Init || !started {
            peak = (peak.0.max(now.0), peak.1.max(now.1));
        }
    }
    peak
}

/// What a pod has of something at its most: an init container beside the sidecars before it, or those
/// beside the apps.
fn most(request: &Request, started: bool, of: impl Fn(&Ask) -> u64) -> u64 {
    let steady = |before: usize| {
        request.asks[..before].iter().filter(|ask| ask.kind != Kind::Init).map(&of).sum::<u64>()
    };
    let init =
        request.asks.iter().enumerate().filter(|(_, ask)| ask.kind == Kind::Init && !started);
    init.map(|(at, ask)| steady(at) + of(ask)).max().unwrap_or(0).max(steady(request.asks.len()))
}
