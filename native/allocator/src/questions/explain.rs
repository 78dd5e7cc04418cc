//! Why, card by card: for `hami explain pod` and for people who wait.

use crate::engine::Allocator;
use crate::questions::judge;
use crate::rules::class::Class;
use crate::rules::fit;
use crate::rules::node_reason::NodeReason;
use crate::rules::view::View;
use crate::search::chosen;
use crate::search::effort::Effort;
use crate::search::find;
use crate::search::score;
use crate::wire::check;
use crate::wire::{Assignment, Request};
use hami_limits::InvalidValue;
use serde::Serialize;

/// One node and one request.
#[derive(Debug, Serialize)]
pub struct Explanation {
    /// The node's name.
    pub node: String,
    /// Whether it does.
    pub fits: bool,
    /// Why not, in one line.
    pub reason: Option<String>,
    /// Whether it would not do either if it were empty.
    pub unresolvable: bool,
    /// Each of its cards.
    pub cards: Vec<CardExplanation>,
    /// What the pod would be given, if it fits.
    pub assignment: Option<Assignment>,
    /// 0 to 100, if it fits.
    pub score: Option<u8>,
}

/// One card of an [`Explanation`].
#[derive(Debug, Serialize)]
pub struct CardExplanation {
    /// Its UUID.
    pub uuid: String,
    /// Its place on the node.
    pub index: u32,
    /// Its model.
    pub model: String,
    /// MiB that are free.
    pub free_mib: u64,
    /// Percent that is free.
    pub free_cores: u32,
    /// Device IDs that are free.
    pub free_slots: u32,
    /// By container, in the pod's order, where it needs cards that no earlier one leaves it.
    pub containers: Vec<ContainerExplanation>,
}

/// One container on one card, before the pod's other containers.
#[derive(Debug, Serialize)]
pub struct ContainerExplanation {
    /// Its name.
    pub container: String,
    /// Whether the card has room for it.
    pub fits: bool,
    /// A word for programs, if not.
    pub code: Option<&'static str>,
    /// A few words for people, if not.
    pub reason: Option<String>,
}

impl Allocator {
    /// Every card of a node: room or the reason why not; the plan and its score if the pod fits.
    pub fn explain(&mut self, request: &Request, name: &str) -> Result<Explanation, InvalidValue> {
        check::request(request)?;
        let mut class = Class::of(request);
        class.meet_models(&self.models);
        let Some(node) = self.number(name) else {
            let reason = Some(NodeReason::NoCards.to_string());
            let (node, cards) = (name.to_owned(), Vec::new());
            let (assignment, score) = (None, None);
            return Ok(Explanation {
                node,
                fits: false,
                reason,
                unresolvable: true,
                cards,
                assignment,
                score,
            });
        };
        let room = self.room(request, &[]);
        Ok(self.with_view(request, node, &[], |view| {
            let (mut entries, mut effort) = (Vec::new(), Effort::for_node());
            let found = judge::try_fit(&class, view, room.as_ref(), &mut effort, &mut entries);
            let cards = (0..view.cards.len())
                .map(|card| explain_card(&class, request, view, card))
                .collect();
            let node = name.to_owned();
            match found {
                Ok(()) => {
                    let mut loads = Vec::new();
                    chosen::loads(&class, view, &entries, &mut loads);
                    let score = score::score(&class, &mut class.scale(), view, &entries, &loads);
                    let score = Some((score / (score::BEST / 100)) as u8);
                    let grants = chosen::grants(&class, view, &entries);
                    let containers =
                        request.asks.iter().map(|ask| ask.container.clone()).zip(grants).collect();
                    let (version, pod) = (Assignment::VERSION, request.pod.uid.clone());
                    let assignment =
                        Some(Assignment { version, pod, node: node.clone(), containers });
                    Explanation {
                        node,
                        fits: true,
                        reason: None,
                        unresolvable: false,
                        cards,
                        assignment,
                        score,
                    }
                }
                Err(reason) => {
                    let unresolvable = reason.is_lasting()
                        || find::unfit_when_empty(&class, view, &mut effort, &mut entries);
                    let reason = Some(reason.to_string());
                    let (assignment, score) = (None, None);
                    Explanation {
                        node,
                        fits: false,
                        reason,
                        unresolvable,
                        cards,
                        assignment,
                        score,
                    }
                }
            }
        }))
    }
}

fn explain_card(class: &Class, request: &Request, view: &View<'_>, card: usize) -> CardExplanation {
    let (wire, facts, used) = (&view.cards[card], &view.facts[card], &view.used[card]);
    let containers = class.shape.groups.iter().enumerate().map(|(group, shape)| {
        let reason = fit::named(class, view, card)
            .and_then(|()| fit::room(class, view, card, &[], group))
            .err();
        ContainerExplanation {
            container: request.asks[shape.ask].container.clone(),
            fits: reason.is_none(),
            code: reason.map(crate::rules::card_reason::CardReason::code),
            reason: reason.map(|reason| reason.to_string()),
        }
    });
    CardExplanation {
        uuid: wire.uuid.clone(),
        index: wire.index,
        model: wire.model.clone(),
        free_mib: facts.free_memory(used),
        free_cores: facts.free_cores(used),
        free_slots: facts.free_slots(used),
        containers: containers.collect(),
    }
}
