"""Publish the node's cards: the annotation ``hami.io/cards``, and two extended resources.

The kubelet publishes the number of devices. Memory and cores are published here, in the node's
status, as the sums over all cards: they let kube-scheduler exclude full nodes and preempt pods.
A write happens only where the API server reports something else. On a node of others nothing is
published: they publish the cards.
"""

import logging

from hami_py.agent.node import OwnNode
from hami_py.agent.state import NodeState
from hami_py.kube import ApiServer, patch_metadata, patch_status
from hami_py.model.pods import encode_cards
from hami_py.model.pods.annotations import CARDS
from hami_py.model.pods.names import NameProfile
from hami_py.node.decision import peak

_log = logging.getLogger(__name__)

_DEADLINE_S = 10.0


def publish(api: ApiServer, state: NodeState, profile: NameProfile) -> None:
    """Write what the API server does not show yet, if it has shown the node and its pods.

    Raises:
        KubeError: it could not be written.
    """
    node = state.node.node
    if node is None or not state.pods.is_listed:
        return
    path = f"/api/v1/nodes/{node.name}"
    if state.owner != "hami":
        _withdraw(api, node, path, profile)
        return
    cards = state.published_cards()
    text = encode_cards(cards)
    if node.annotations.get(CARDS) != text:
        patch_metadata(api, path, annotations={CARDS: text}, deadline_s=_DEADLINE_S)
        _log.info("published %d cards", len(cards))
    # Of the healthy cards, but never less than what is allocated: a kubelet that restarts would
    # otherwise refuse pods that run.
    healthy = [card for card in cards if card.healthy]
    pods = state.view().pods.values()
    peaks = [peak(bound.assignment.containers, bound.kinds, None) for bound in pods]
    memory_mib = max(sum(card.memory_mib for card in healthy), sum(each[0] for each in peaks))
    cores = max(sum(card.cores for card in healthy), sum(each[1] for each in peaks))
    amounts = {profile.memory: memory_mib // profile.memory_unit_mib, profile.cores: cores}
    if not node.shows(amounts):
        patch_status(api, path, amounts, deadline_s=_DEADLINE_S)
        _log.info("published %s", ", ".join(f"{name} {n}" for name, n in amounts.items()))


def _withdraw(api: ApiServer, node: OwnNode, path: str, profile: NameProfile) -> None:
    """Remove what was published when the owner was another one."""
    if CARDS in node.annotations:
        patch_metadata(api, path, annotations={CARDS: None}, deadline_s=_DEADLINE_S)
    shown = (node.status.capacity or {}).keys() | (node.status.allocatable or {}).keys()
    left = shown & {profile.memory, profile.cores}
    if left:
        patch_status(api, path, dict.fromkeys(left), deadline_s=_DEADLINE_S)
