//! Counts allocations from the answers alone. They must never exceed a card.

use hami_allocator::wire::{Assignment, ContainerRequest, Kind, Node, PodRequest, Quota};
use std::collections::BTreeMap;

/// The state that follows from the answers alone.
#[derive(Default)]
pub struct Ledger {
    /// The nodes by name.
    pub nodes: BTreeMap<String, Node>,
    /// The quotas by name, all of one namespace.
    pub quotas: BTreeMap<String, Quota>,
    /// By UID: the request, the assignment, whether it has started, and whether it is bound.
    pub pods: BTreeMap<String, (PodRequest, Assignment, bool, bool)>,
}

impl Ledger {
    /// Checks the cards of a new assignment, counted from all answers.
    pub fn check(&self, request: &PodRequest, assignment: &Assignment) {
        let node = &self.nodes[&assignment.node];
        let granted: Vec<&str> =
            assignment.containers.values().flatten().map(|grant| grant.card.as_str()).collect();
        for card in node.cards.iter().filter(|card| granted.contains(&card.uuid.as_str())) {
            let on = self.pods.values().filter(|(_, answer, ..)| answer.node == node.name);
            let (mut memory, mut cores, mut pods) = (0, 0, 0);
            for (request, answer, started, _) in on {
                let (more, most) = peak(request, answer, *started, &card.uuid);
                memory += more;
                cores += most;
                pods += u32::from(more > 0);
            }
            assert!(memory + card.foreign_mib <= card.memory_mib, "{memory} MiB on {card:?}");
            assert!(cores <= card.cores, "{cores} % on {card:?}");
            assert!(pods <= card.slots);
            assert!(
                card.healthy && !card.cordoned && !request.card_request.avoid.contains(&card.uuid)
            );
        }
        let containers = request
            .containers
            .iter()
            .map(|container| (container, &assignment.containers[&container.name]));
        for (container, container_cards) in containers {
            assert_eq!(container_cards.len(), container.cards as usize);
            let mut cards: Vec<&str> =
                container_cards.iter().map(|grant| grant.card.as_str()).collect();
            cards.sort_unstable();
            cards.dedup();
            assert_eq!(
                cards.len(),
                container.cards as usize,
                "different cards: {container_cards:?}"
            );
        }
        for quota in self.quotas.values() {
            // A quota may be set when more is in use already.
            let spent = self.spent(None).into_iter().zip(self.spent(Some(request)));
            for (most, (now, before)) in
                [quota.gpu, quota.memory_mib, quota.cores].iter().zip(spent)
            {
                let holds = most.is_none_or(|most| now <= most || before > most);
                assert!(holds, "{now} of {most:?} in {quota:?}");
            }
        }
    }

    /// The cards, MiB and percent of all pods, or of all but one.
    fn spent(&self, but: Option<&PodRequest>) -> [u64; 3] {
        let mut spent = [0; 3];
        for (request, answer, started, _) in self.pods.values() {
            if but.is_some_and(|but| but.pod == request.pod) {
                continue;
            }
            let memory_mib = |container: &ContainerRequest| {
                answer.containers[&container.name].iter().map(|grant| grant.memory_mib).sum()
            };
            spent[0] += most(request, *started, |container| u64::from(container.cards));
            spent[1] += most(request, *started, memory_mib);
            // As requested: a MIG instance may have more, and a container without cores gets none.
            spent[2] +=
                most(request, *started, |container| u64::from(container.cores * container.cards));
        }
        spent
    }
}

/// The MiB and percent of one pod on one card in its largest phase.
fn peak(request: &PodRequest, answer: &Assignment, started: bool, card: &str) -> (u64, u32) {
    let (mut steady, mut peak) = ((0, 0), (0, 0));
    for container in &request.containers {
        let mine = answer.containers[&container.name].iter().filter(|grant| grant.card == card);
        let one = mine.fold((0, 0), |sum, grant| (sum.0 + grant.memory_mib, sum.1 + grant.cores));
        let now = (steady.0 + one.0, steady.1 + one.1);
        if container.kind != Kind::Init {
            steady = now;
        }
        if container.kind != Kind::Init || !started {
            peak = (peak.0.max(now.0), peak.1.max(now.1));
        }
    }
    peak
}

/// The peak of an amount over the phases of a pod: an init container with the sidecars before it,
/// or the sidecars and apps.
fn most(request: &PodRequest, started: bool, of: impl Fn(&ContainerRequest) -> u64) -> u64 {
    let steady = |before: usize| {
        request.containers[..before]
            .iter()
            .filter(|container| container.kind != Kind::Init)
            .map(&of)
            .sum::<u64>()
    };
    let init = request
        .containers
        .iter()
        .enumerate()
        .filter(|(_, container)| container.kind == Kind::Init && !started);
    init.map(|(at, container)| steady(at) + of(container))
        .max()
        .unwrap_or(0)
        .max(steady(request.containers.len()))
}
