//! Requests that differ only in names are one class: what can be known without a node is worked out
//! once for it.

use crate::rules::demand::Demand;
use crate::rules::fullness::Scale;
use crate::rules::node_reason::NodeReason;
use crate::rules::shape::Shape;
use crate::wire::{Ask, Kind, Memory, Mode, Order, Request, Sharing, Topology, Wish};

/// What makes two requests the same to a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    asks: Vec<(Kind, u32, Memory, u32)>,
    wish: Wish,
}

impl Key {
    /// The key of a request.
    pub fn of(request: &Request) -> Self {
        let ask = |ask: &Ask| (ask.kind, ask.cards, ask.memory, ask.cores);
        Self { asks: request.asks.iter().map(ask).collect(), wish: request.wish.clone() }
    }
}

/// All that is known of such requests without a node.
#[derive(Clone, Debug)]
pub struct Class {
    /// In the pod's order. Their names are those of the first request.
    pub asks: Vec<Ask>,
    /// Of all of them.
    pub wish: Wish,
    /// How the kubelet hands cards out.
    pub shape: Shape,
    /// By group and phase.
    pub demands: Vec<Vec<Demand>>,
    /// By group, over all phases.
    pub peaks: Vec<Demand>,
    /// Whether only idle cards will do.
    pub idle_only: bool,
    /// Whether memory depends on the card.
    pub shares: bool,
    /// By model: whether the wish allows it.
    models: Vec<bool>,
}

impl Class {
    /// What is known of this request.
    pub fn of(request: &Request) -> Self {
        let asks = request.asks.clone();
        let shape = Shape::of(&asks);
        let by_phase =
            |holders: &Vec<u64>| holders.iter().map(|set| Demand::of(&asks, *set)).collect();
        let ever =
            |holders: &Vec<u64>| Demand::of(&asks, holders.iter().fold(0, |all, set| all | set));
        Self {
            demands: shape.groups.iter().map(|group| by_phase(&group.holders)).collect(),
            peaks: shape.groups.iter().map(|group| ever(&group.holders)).collect(),
            idle_only: request.wish.mutex || request.wish.order.contains(&Order::Mutex),
            shares: asks.iter().any(|ask| !matches!(ask.memory, Memory::Mib(_))),
            wish: request.wish.clone(),
            models: Vec::new(),
            shape,
            asks,
        }
    }

    /// Looks at models that it has not met yet; `names` are lower-case and only ever grow.
    pub fn meet_models(&mut self, names: &[Box<str>]) {
        let holds = |name: &str, parts: &[String]| {
            parts.iter().any(|part| name.contains(part.to_lowercase().as_str()))
        };
        for name in &names[self.models.len()..] {
            let wished = self.wish.types.is_empty() || holds(name, &self.wish.types);
            self.models.push(wished && !holds(name, &self.wish.avoid_types));
        }
    }

    /// Whether a card of this model will do.
    pub fn takes_model(&self, model: u16) -> bool {
        self.models.get(usize::from(model)).copied().unwrap_or(false)
    }

    /// Whether a node of this mode will do.
    fn takes_mode(&self, mode: Mode) -> bool {
        match self.wish.mode {
            None => true,
            Some(Sharing::HamiCore) => !matches!(mode, Mode::Mig | Mode::Mps),
            Some(Sharing::Mig) => mode == Mode::Mig,
            Some(Sharing::Mps) => mode == Mode::Mps,
        }
    }

    /// What is true of all nodes of this mode, whatever their cards.
    pub fn suits(&self, mode: Mode) -> Result<(), NodeReason> {
        if !self.takes_mode(mode) {
            return Err(NodeReason::Mode(mode));
        }
        if mode == Mode::Exclusive && self.peaks.iter().any(|peak| peak.partial) {
            return Err(NodeReason::WholeOnly);
        }
        Ok(())
    }

    /// Whether each card of a node of this mode does by itself or not, whatever the others.
    pub fn cards_are_independent(&self, mode: Mode) -> bool {
        let wish = &self.wish;
        self.shape.groups.len() == 1
            && mode != Mode::Mig
            && !wish.numa
            && !wish.order.contains(&Order::Numa)
            && self.topology(mode) == Topology::None
            && wish.uuids.is_empty()
            && wish.avoid.is_empty()
    }

    /// How full cards and nodes are to such pods.
    pub fn scale(&self) -> Scale {
        Scale::by(self.wish.weights.unwrap_or_default())
    }

    /// How much links matter on a node of this mode.
    pub fn topology(&self, mode: Mode) -> Topology {
        match self.wish.topology {
            Topology::None if mode == Mode::Mig => Topology::None,
            Topology::None
                if mode == Mode::Topology || self.wish.order.contains(&Order::Topology) =>
            {
                Topology::BestEffort
            }
            wished => wished,
        }
    }
}
