"""The cards of a node, as the scheduler gets to know them.

Numbers that NVML does not have for a card, such as its NUMA node, are left out. A card that does
not answer is left out too: ``health`` reports it.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import pynvml  # type: ignore[import-untyped]

from hami_py.gpu.driver_memory import context_memory
from hami_py.gpu.nvml import handles, session
from hami_py.model.pods.wire import Card

_MIB = 1 << 20

_NUMA_NODES = 64
"""Bits of the set of NUMA nodes that NVML is asked for; no machine has more."""

_LINKS: Mapping[int, int] = {
    pynvml.NVML_TOPOLOGY_INTERNAL: 60,
    pynvml.NVML_TOPOLOGY_SINGLE: 50,
    pynvml.NVML_TOPOLOGY_MULTIPLE: 40,
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: 30,
    pynvml.NVML_TOPOLOGY_NODE: 20,
    pynvml.NVML_TOPOLOGY_SYSTEM: 10,
}
"""How good a path over PCI is; more is better."""

_NVLINK = 100
"""How much better each NVLink makes it."""


@dataclass(frozen=True)
class Inventory:
    """The cards of a node.

    Attributes:
        cards: the cards.
        context_memory: by UUID, the bytes that the driver takes for a context; None = unknown.
        driver: the driver's version.
    """

    cards: tuple[Card, ...]
    context_memory: Mapping[str, int | None]
    driver: str


def inventory(slots: int) -> Inventory:
    """The cards of this node.

    Args:
        slots: how many containers may share a card.

    Raises:
        NoDriver: there is no driver, or it does not respond.
        DriverError: NVML failed.
    """
    found: list[Card] = []
    contexts: dict[str, int | None] = {}
    with session():
        driver = str(pynvml.nvmlSystemGetDriverVersion())
        there = {str(pynvml.nvmlDeviceGetUUID(each)): each for each in handles()}
        for index, (uuid, handle) in enumerate(there.items()):
            model = str(pynvml.nvmlDeviceGetName(handle))
            total = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
            contexts[uuid] = context_memory(model, driver)
            others = {name: other for name, other in there.items() if name != uuid}
            found.append(
                Card(
                    uuid,
                    index,
                    model,
                    total // _MIB,
                    slots=slots,
                    numa=_numa(handle),
                    links=_links(handle, others),
                )
            )
    return Inventory(tuple(found), contexts, driver)


def _numa(handle: object) -> int | None:
    with suppress(pynvml.NVMLError):
        scope = pynvml.NVML_AFFINITY_SCOPE_NODE
        (nodes,) = pynvml.nvmlDeviceGetMemoryAffinity(handle, _NUMA_NODES // 64, scope)
        if nodes:
            # The lowest bit that is set.
            return (int(nodes) & -int(nodes)).bit_length() - 1
    return None


def _links(handle: object, others: Mapping[str, object]) -> dict[str, int]:
    """How good the path to each other card is; empty = unknown."""
    found: dict[str, int] = {}
    by_bus = _nvlinks(handle)
    with suppress(pynvml.NVMLError):
        for uuid, other in others.items():
            level = pynvml.nvmlDeviceGetTopologyCommonAncestor(handle, other)
            bus = str(pynvml.nvmlDeviceGetPciInfo(other).busId).lower()
            found[uuid] = _LINKS.get(level, 0) + _NVLINK * by_bus.get(bus, 0)
    return found


def _nvlinks(handle: object) -> dict[str, int]:
    """The number of active NVLinks to each other card, by its PCI bus id."""
    found: dict[str, int] = {}
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            if pynvml.nvmlDeviceGetNvLinkState(handle, link) != pynvml.NVML_FEATURE_ENABLED:
                continue
            bus = str(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId).lower()
        except pynvml.NVMLError:
            break
        found[bus] = found.get(bus, 0) + 1
    return found
