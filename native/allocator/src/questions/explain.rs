//! Explain: why a pod fits a node or not, card by card, for `hami explain pod`.

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
use crate::wire::{Assignment, PodRequest};
use hami_limits::InvalidValue;
use serde::Serialize;

/// The explanation of a request on one node.
#[derive(Debug, Serialize)]
pub struct Explanation {
    /// The name of the node.
    pub node: String,
    /// Whether the pod fits.
    pub fits: bool,
    /// Why it does not fit, in one line.
    pub reason: Option<String>,
    /// Whether it would not fit even without other pods.
    pub unresolvable: bool,
    /// The cards of the node.
    pub cards: Vec<CardExplanation>,
    /// The assignment of the pod, if it fits.
    pub assignment: Option<Assignment>,
    /// The score from 0 to 100, if it fits.
    pub score: Option<u8>,
}

/// One card of an [`Explanation`].
#[derive(Debug, Serialize)]
pub struct CardExplanation {
    /// The UUID.
    pub uuid: String,
    /// The index of the card on the node.
    pub index: u32,
    /// The model.
    pub model: String,
    /// The free memory in MiB.
    pub free_mib: u64,
    /// The free cores in percent.
    pub free_cores: u32,
    /// The free device IDs.
    pub free_slots: u32,
    /// Whether each container gets a MIG instance that the node agent makes.
    pub mig: bool,
    /// The containers that need new device IDs, in the order of the pod.
    pub containers: Vec<ContainerExplanation>,
}

/// One container on one card, without the other containers of the pod.
#[derive(Debug, Serialize)]
pub struct ContainerExplanation {
    /// The name of the container.
    pub container: String,
    /// Whether the card has room for it.
    pub fits: bool,
    /// The code of the reason, for programs.
    pub code: Option<&'static str>,
    /// The reason as text.
    pub reason: Option<String>,
}

impl Allocator {
    /// Explains each card of a node, with the assignment and the score if the pod fits.
    pub fn explain(
        &mut self,
        request: &PodRequest,
        name: &str,
    ) -> Result<Explanation, InvalidValue> {
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
            let (mut chosen, mut effort) = (Vec::new(), Effort::for_node());
            let found = judge::try_fit(&class, view, room.as_ref(), &mut effort, &mut chosen);
            let cards = (0..view.cards.len())
                .map(|card| explain_card(&class, request, view, card))
                .collect();
            let node = name.to_owned();
            match found {
                Ok(()) => {
                    let mut loads = Vec::new();
                    chosen::loads(&class, view, &chosen, &mut loads);
                    let score = score::score(&class, &mut class.scale(), view, &chosen, &loads);
                    let score = Some((score / (score::BEST / 100)) as u8);
                    let container_cards = chosen::container_cards(&class, view, &chosen);
                    let containers = request
                        .containers
                        .iter()
                        .map(|container| container.name.clone())
                        .zip(container_cards)
                        .collect();
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
                    let (reason, unresolvable) =
                        find::lasting(&class, view, reason, &mut effort, &mut chosen);
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

fn explain_card(
    class: &Class,
    request: &PodRequest,
    view: &View<'_>,
    card: usize,
) -> CardExplanation {
    let (wire, facts, allocated) = (&view.cards[card], &view.facts[card], &view.allocated[card]);
    let containers = class.shape.groups.iter().enumerate().map(|(group, shape)| {
        let reason = fit::fits(class, view, card, group).err();
        ContainerExplanation {
            container: request.containers[shape.container].name.clone(),
            fits: reason.is_none(),
            code: reason.map(crate::rules::card_reason::CardReason::code),
            reason: reason.map(|reason| reason.to_string()),
        }
    });
    CardExplanation {
        uuid: wire.uuid.clone(),
        index: wire.index,
        model: wire.model.clone(),
        free_mib: facts.free_memory(allocated),
        free_cores: facts.free_cores(allocated),
        free_slots: facts.free_slots(allocated),
        mig: wire.mig.is_some(),
        containers: containers.collect(),
    }
}
