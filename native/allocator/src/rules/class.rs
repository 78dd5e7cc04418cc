//! Classes of requests. Requests that differ only in names are one class: whatever follows from a
//! request alone, without a node, is computed once for the class.

use crate::rules::demand::Demand;
use crate::rules::fullness::Scale;
use crate::rules::node_reason::NodeReason;
use crate::rules::shape::Shape;
use crate::wire::{
    CardRequest, ContainerRequest, Kind, Level, Memory, Mode, Order, PodRequest, Sharing, Topology,
};

/// The parts of a request that decide where it fits. Requests with equal keys are one class.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClassKey {
    containers: Vec<(Kind, u32, Memory, u32)>,
    card_request: CardRequest,
}

impl ClassKey {
    /// The key of a request.
    pub fn of(request: &PodRequest) -> Self {
        let container = |container: &ContainerRequest| {
            (container.kind, container.cards, container.memory, container.cores)
        };
        Self {
            containers: request.containers.iter().map(container).collect(),
            card_request: request.card_request.clone(),
        }
    }
}

/// The properties that follow from a request alone.
#[derive(Clone, Debug)]
pub struct Class {
    /// The containers in the order of the pod, with the names of the first request of the class.
    pub containers: Vec<ContainerRequest>,
    /// Which cards the pod requests.
    pub card_request: CardRequest,
    /// How the kubelet will distribute the device IDs.
    pub shape: Shape,
    /// The demand of each group in each phase.
    pub demands: Vec<Vec<Demand>>,
    /// The demand of each group over all phases.
    pub peaks: Vec<Demand>,
    /// Whether the pod requests idle cards.
    pub idle_only: bool,
    /// Whether a container requests memory as a share of the card.
    pub shares: bool,
    /// The least and the strongest level that the pod allows.
    levels: (Level, Level),
    /// Whether the pod allows each model.
    models: Vec<bool>,
}

impl Class {
    /// The class of this request.
    pub fn of(request: &PodRequest) -> Self {
        let containers = request.containers.clone();
        let shape = Shape::of(&containers);
        let by_phase =
            |holders: &Vec<u64>| holders.iter().map(|set| Demand::of(&containers, *set)).collect();
        let ever = |holders: &Vec<u64>| {
            Demand::of(&containers, holders.iter().fold(0, |all, set| all | set))
        };
        Self {
            demands: shape.groups.iter().map(|group| by_phase(&group.holders)).collect(),
            peaks: shape.groups.iter().map(|group| ever(&group.holders)).collect(),
            idle_only: request.card_request.mutex
                || request.card_request.order.contains(&Order::Mutex),
            shares: containers.iter().any(|container| !matches!(container.memory, Memory::Mib(_))),
            levels: levels(&request.card_request),
            card_request: request.card_request.clone(),
            models: Vec::new(),
            shape,
            containers,
        }
    }

    /// Decides on models that the class does not know yet. `names` are all models in lower case;
    /// the list only grows.
    pub fn meet_models(&mut self, names: &[Box<str>]) {
        let holds = |name: &str, parts: &[String]| {
            parts.iter().any(|part| name.contains(part.to_lowercase().as_str()))
        };
        for name in &names[self.models.len()..] {
            let requested =
                self.card_request.types.is_empty() || holds(name, &self.card_request.types);
            self.models.push(requested && !holds(name, &self.card_request.avoid_types));
        }
    }

    /// Whether the pod allows cards of this model.
    pub fn takes_model(&self, model: u16) -> bool {
        self.models.get(usize::from(model)).copied().unwrap_or(false)
    }

    /// Whether the pod allows cards that offer this level at most.
    #[inline]
    pub fn takes_level(&self, level: Level) -> bool {
        let (least, most) = self.levels;
        least <= level && level <= most
    }

    /// Whether the pod allows nodes of this mode.
    fn takes_mode(&self, mode: Mode) -> bool {
        match self.card_request.mode {
            None | Some(Sharing::Mig) => true,
            Some(Sharing::HamiCore) => mode != Mode::Mps,
            Some(Sharing::Mps) => mode == Mode::Mps,
        }
    }

    /// Rejects nodes of a mode that the pod does not allow, or that cannot serve it.
    pub fn suits(&self, mode: Mode) -> Result<(), NodeReason> {
        if !self.takes_mode(mode) {
            return Err(NodeReason::Mode(mode));
        }
        if mode == Mode::Exclusive && self.peaks.iter().any(|peak| peak.partial) {
            return Err(NodeReason::WholeOnly);
        }
        Ok(())
    }

    /// Whether each card of a node of this mode can be judged without the others. Not for cards with
    /// several instances.
    pub fn cards_are_independent(&self, mode: Mode) -> bool {
        let card_request = &self.card_request;
        self.shape.groups.len() == 1
            && !card_request.numa
            && !card_request.order.contains(&Order::Numa)
            && self.topology(mode) == Topology::None
            && card_request.uuids.is_empty()
            && card_request.avoid.is_empty()
    }

    /// The scale for fullness, by the weights of the pod.
    pub fn scale(&self) -> Scale {
        Scale::by(self.card_request.weights.unwrap_or_default())
    }

    /// Whether links between cards matter on a node of this mode.
    pub fn topology(&self, mode: Mode) -> Topology {
        match self.card_request.topology {
            Topology::None
                if mode == Mode::Topology || self.card_request.order.contains(&Order::Topology) =>
            {
                Topology::BestEffort
            }
            requested => requested,
        }
    }
}

/// The least and the strongest level of the cards that a pod allows.
fn levels(card_request: &CardRequest) -> (Level, Level) {
    match card_request.mode {
        Some(Sharing::HamiCore) => (card_request.isolation, Level::Kernel),
        Some(Sharing::Mig) => (Level::Mig, Level::Mig),
        None | Some(Sharing::Mps) => (card_request.isolation, Level::Mig),
    }
}
