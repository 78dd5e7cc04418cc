"""How strongly limits are enforced, by the mode of a node and its cards. A pure table.

A MIG instance enforces the limits of its container by itself, in every mode.

The node agent publishes the level of each card. The scheduler compares it with the least level that
a pod accepts, and all views show what a container got.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from hami_py.model.limits import Level, TimeLevel
from hami_py.model.pods.settings import CorePolicy
from hami_py.model.pods.wire import Node, NodeMode

_LEVELS: Mapping[NodeMode, tuple[Level, TimeLevel]] = {
    "full": ("preload", "lease"),
    "topology": ("preload", "lease"),
    "memory": ("preload", "none"),
    "exclusive": ("preload", "none"),
    "share": ("none", "none"),
    "mig": ("preload", "lease"),
    "mps": ("none", "none"),
}
_NAMES = {"none": "nothing"}

NOTHING_STRONGER = "the node offers nothing stronger"


@dataclass(frozen=True)
class Enforcement:
    """How strongly the limits of a container are enforced, on memory and on time.

    Attributes:
        reason: why nothing stronger does.
    """

    level: Level
    time_level: TimeLevel
    reason: str

    def __str__(self) -> str:
        memory, time = (_NAMES.get(each, each) for each in (self.level, self.time_level))
        return f"memory is enforced by {memory} and time by {time}, because {self.reason}"


def enforcement(
    mode: NodeMode,
    core_policy: CorePolicy = "default",
    no_kernel: str | None = NOTHING_STRONGER,
    *,
    mig: Iterable[bool] = (),
) -> Enforcement:
    """How strongly limits are enforced on a node of this mode.

    Args:
        mode: of the node.
        core_policy: the setting.
        no_kernel: why the driver does not limit the memory of containers; None = it does, but not
            on MIG instances.
        mig: of each card of the container, whether it is a MIG instance; none = no card is.
    """
    instances = {*mig}
    if instances == {True}:
        return Enforcement("mig", "mig", "its cards are MIG instances")
    level, time_level = _LEVELS[mode]
    reason = no_kernel or NOTHING_STRONGER
    if level == "preload" and no_kernel is None and True not in instances:
        level = "kernel"
    if level == "none":
        reason = f"hami-py limits nothing on nodes of mode {mode}"
    elif time_level == "none":
        reason = f"nodes of mode {mode} do not limit time"
    elif core_policy == "disable":
        time_level, reason = "none", "the setting core_policy is disable"
    return Enforcement(level, time_level, reason)


def with_levels(node: Node) -> Node:
    """The node with the level of each card, also if its agent is too old to publish it."""
    if all(card.level is not None for card in node.cards):
        return node
    cards = (
        card
        if card.level is not None
        else msgspec.structs.replace(card, level=enforcement(node.mode, mig=[card.is_mig]).level)
        for card in node.cards
    )
    return msgspec.structs.replace(node, cards=tuple(cards))
