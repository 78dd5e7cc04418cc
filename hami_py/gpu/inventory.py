"""The cards of a node, as the scheduler gets to know them.

A MIG instance is a card of its own, and its GPU is none, unless the node agent makes instances on
it: then it is a card, and no instance of it is. A compute instance that shares the memory
of its GPU instance with others is left out: the container that has it would have no limit.

Numbers that NVML does not have for a card, such as its NUMA node, are left out. A card that does
not answer is left out and logged.
"""

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import pynvml  # type: ignore[import-untyped]

from hami_py.gpu.driver_memory import driver_memory
from hami_py.gpu.mig import MigDevice, device_of, profiles
from hami_py.gpu.nvml import cuda_total, in_mig_mode, read_each, reported_total, session
from hami_py.model.cards import DriverMemory, is_mig
from hami_py.model.pods.wire import Card

_log = logging.getLogger(__name__)

_MIB = 1 << 20

_WHOLE = 100

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
        mig_devices: where each MIG device is, by UUID.
        in_mig_mode: the GPUs in MIG mode as cards, with the instances that they can have.
    """

    cards: tuple[Card, ...]
    driver_memory: Mapping[str, DriverMemory]
    driver: str
    left_out: Mapping[int, str]
    mig_devices: Mapping[str, MigDevice] = field(default_factory=dict)
    in_mig_mode: tuple[Card, ...] = ()


@dataclass(frozen=True)
class _Found:
    """A card that answers.

    Attributes:
        memory: bytes.
        cores: percent of its GPU.
        gpu: the handle of its GPU; of a card that is no MIG instance, its own.
        gpu_index: NVML's index of its GPU.
        instance: of a MIG instance.
        is_shared: other compute instances use the same memory.
    """

    handle: object
    index: int
    uuid: str
    model: str
    memory: int
    cores: int
    gpu: object
    gpu_index: int
    instance: MigDevice | None = None
    is_shared: bool = False


def inventory(slots: int) -> Inventory:
    """The cards of this node.

    Raises:
        NoDriver: there is no driver, or it does not respond.
        DriverError: NVML failed, or no card answers.
    """
    with session():
        driver = str(pynvml.nvmlSystemGetDriverVersion())
        read, left_out = read_each(_read)
        divided, failed = _in_mig_mode(read)
        left_out |= failed
        found = [each for each in read if not each.is_shared and each.gpu_index not in failed]
        for each in read:
            if each.is_shared:
                _log.warning("%s is left out: other compute instances use its memory", each.uuid)
        gpus = [each for each in found if each.instance is None]
        cards = tuple(
            Card(
                each.uuid,
                each.index,
                each.model,
                each.memory // _MIB,
                cores=each.cores,
                slots=slots if each.instance is None else 1,
                numa=_numa(each.gpu),
                links=_links(each.handle, [other for other in gpus if other is not each])
                if each.instance is None
                else {},
            )
            for each in found
        )
    figures = {each.uuid: driver_memory(each.model) for each in found}
    devices = {each.uuid: each.instance for each in found if each.instance is not None}
    return Inventory(cards, figures, driver, left_out, devices, divided)


def _read(handle: object, index: int) -> _Found:
    uuid = str(pynvml.nvmlDeviceGetUUID(handle))
    model = str(pynvml.nvmlDeviceGetName(handle))
    memory = reported_total(handle) or cuda_total(uuid)
    if not is_mig(uuid):
        number = int(pynvml.nvmlDeviceGetIndex(handle))
        return _Found(handle, index, uuid, model, memory, _WHOLE, handle, number)
    gpu, instance = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle), device_of(handle)
    slices = pynvml.nvmlDeviceGetAttributes(handle)
    # A GPU has as many compute slices as it can have instances.
    cores = _WHOLE * slices.computeInstanceSliceCount // pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu)
    is_shared = slices.computeInstanceSliceCount < slices.gpuInstanceSliceCount
    number = int(pynvml.nvmlDeviceGetIndex(gpu))
    return _Found(handle, index, uuid, model, memory, cores, gpu, number, instance, is_shared)


def _in_mig_mode(read: Iterable[_Found]) -> tuple[tuple[Card, ...], dict[int, str]]:
    """The GPUs in MIG mode, and by index the errors of those that do not answer."""
    cards, failed = [], dict[int, str]()
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
            if not in_mig_mode(gpu):
                continue
            before = [each for each in read if each.gpu_index < index]
            cards.append(
                Card(
                    str(pynvml.nvmlDeviceGetUUID(gpu)),
                    len(before),
                    str(pynvml.nvmlDeviceGetName(gpu)),
                    int(pynvml.nvmlDeviceGetMemoryInfo(gpu).total) // _MIB,
                    slots=pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu),
                    numa=_numa(gpu),
                    mig=profiles(gpu),
                )
            )
        except pynvml.NVMLError as error:
            failed[index] = str(error)
    return tuple(cards), failed


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
