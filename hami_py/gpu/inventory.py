"""The cards of a node, as the scheduler gets to know them.

Numbers that NVML does not have for a card, such as its NUMA node, are left out. A card that does
not answer is left out and logged.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import pynvml  # type: ignore[import-untyped]

from hami_py.gpu.driver_memory import driver_memory
from hami_py.gpu.nvml import cuda_total, read_each, reported_total, session
from hami_py.model.cards import DriverMemory
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
        cards: the cards that answer. The index of a card that does not answer stays unused.
        driver_memory: by UUID, what the driver takes beyond what programs request.
        left_out: by NVML's index, the error of each GPU that does not answer; read the inventory
            again until there is none.
    """

    cards: tuple[Card, ...]
    driver_memory: Mapping[str, DriverMemory]
    driver: str
    left_out: Mapping[int, str]


@dataclass(frozen=True)
class _Found:
    """A card that answers; ``memory`` in bytes."""

    handle: object
    index: int
    uuid: str
    model: str
    memory: int


def inventory(slots: int) -> Inventory:
    """The cards of this node.

    Raises:
        NoDriver: there is no driver, or it does not respond.
        DriverError: NVML failed, or no card answers.
    """
    with session():
        driver = str(pynvml.nvmlSystemGetDriverVersion())
        found, left_out = read_each(_read)
        cards = tuple(
            Card(
                each.uuid,
                each.index,
                each.model,
                each.memory // _MIB,
                slots=slots,
                numa=_numa(each.handle),
                links=_links(each.handle, [other for other in found if other is not each]),
            )
            for each in found
        )
    figures = {each.uuid: driver_memory(each.model) for each in found}
    return Inventory(cards, figures, driver, left_out)


def _read(handle: object, index: int) -> _Found:
    uuid = str(pynvml.nvmlDeviceGetUUID(handle))
    model = str(pynvml.nvmlDeviceGetName(handle))
    return _Found(handle, index, uuid, model, reported_total(handle) or cuda_total(uuid))


def _numa(handle: object) -> int | None:
    with suppress(pynvml.NVMLError):
        scope = pynvml.NVML_AFFINITY_SCOPE_NODE
        (nodes,) = pynvml.nvmlDeviceGetMemoryAffinity(handle, _NUMA_NODES // 64, scope)
        if nodes:
            # The lowest bit that is set.
            return (int(nodes) & -int(nodes)).bit_length() - 1
    return None


def _links(handle: object, others: Iterable[_Found]) -> dict[str, int]:
    """How good the path to each other card is; empty = unknown."""
    found: dict[str, int] = {}
    by_bus = _nvlinks(handle)
    with suppress(pynvml.NVMLError):
        for other in others:
            level = pynvml.nvmlDeviceGetTopologyCommonAncestor(handle, other.handle)
            bus = str(pynvml.nvmlDeviceGetPciInfo(other.handle).busId).lower()
            found[other.uuid] = _LINKS.get(level, 0) + _NVLINK * by_bus.get(bus, 0)
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
