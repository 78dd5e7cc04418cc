"""What the agent knows of its node: cards, pods, the node's own object, ledger and slots."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from msgspec.structs import replace as replace_fields

from hami_py._native import AccountSnapshot, LimitRow
from hami_py.agent.node import NodeStore
from hami_py.agent.pods import NodePod, PodStore, bound_pod
from hami_py.config import INSIDE
from hami_py.errors import HamiError
from hami_py.gpu.health import ALL
from hami_py.gpu.inventory import Inventory
from hami_py.model import gang_of_namespace
from hami_py.model.cards import UNKNOWN, DriverMemory
from hami_py.model.pods import PodSettings, read_node
from hami_py.model.pods.wire import Card, CardAllocation, NodeMode
from hami_py.node import cdi, library, slot
from hami_py.node.decision import BoundPod, Capacity, NodeView
from hami_py.node.ledger import Entry, Ledger
from hami_py.node.paths import Paths
from hami_py.node.rows import limit_rows
from hami_py.node.slots import Slots

_FRESH_S = 1.0
"""Several parts look at all accounts once a second, and each account has hundreds of KiB."""


class Cards:
    """The node's cards, as they are known now.

    Attributes:
        are_complete: each GPU of the node has answered.
    """

    def __init__(self) -> None:
        self.are_complete = False
        self._measured: Mapping[str, DriverMemory] = {}
        self._cards: Mapping[str, Card] = {}
        self._driver_memory: Mapping[str, DriverMemory] = {}
        self._unhealthy: Mapping[str, str] = {}
        self._foreign_mib: Mapping[str, int] = {}

    def add(self, found: Inventory) -> bool:
        """Take the cards that answer now; whether there are new ones. Known ones stay."""
        new = {card.uuid: card for card in found.cards if card.uuid not in self._cards}
        self._cards = {**self._cards, **new}
        self._driver_memory = {**self._driver_memory, **found.driver_memory}
        self.are_complete = not found.left_out
        return bool(new)

    def set_measured(self, measured: Mapping[str, DriverMemory]) -> None:
        """Replace what was measured of the driver's memory, by model; others have estimates."""
        self._measured = dict(measured)

    def set_unhealthy(self, unhealthy: Mapping[str, str]) -> None:
        """Replace the reasons by which cards are unhealthy; ``ALL`` stands for all cards."""
        self._unhealthy = dict(unhealthy)

    def set_foreign(self, memory_mib: Mapping[str, int]) -> bool:
        """Replace the memory that no allocation covers, by UUID; whether that is a change."""
        changed = self._foreign_mib != memory_mib
        self._foreign_mib = dict(memory_mib)
        return changed

    def unhealthy(self) -> dict[str, str]:
        """The reasons by the UUIDs of the cards that are unhealthy."""
        of_all = self._unhealthy.get(ALL)
        found = {uuid: self._unhealthy.get(uuid, of_all) for uuid in self._cards}
        return {uuid: why for uuid, why in found.items() if why is not None}

    @property
    def all(self) -> tuple[Card, ...]:
        """All cards, with their health and foreign memory."""
        unhealthy = self.unhealthy()
        return tuple(
            replace_fields(
                card,
                healthy=card.uuid not in unhealthy,
                foreign_mib=self._foreign_mib.get(card.uuid, 0),
            )
            for card in self._cards.values()
        )

    def capacities(self) -> dict[str, Capacity]:
        """What may be allocated of each card."""
        unhealthy = self.unhealthy()
        return {
            card.uuid: Capacity(card.memory_mib, card.cores, unhealthy.get(card.uuid))
            for card in self.all
        }

    def driver_memory(self, uuid: str) -> DriverMemory:
        """What the driver takes of a card beyond what programs request."""
        card = self._cards.get(uuid)
        estimate = self._driver_memory.get(uuid, UNKNOWN)
        return self._measured.get(card.model, estimate) if card is not None else estimate


class NodeState:
    """All of it. ``lock`` is held while ``ledger`` and ``slots`` are used together.

    ``is_adopted``: the ledger has all containers that run; slots that it does not have are unused.

    Args:
        settings: how pods and nodes are read.
        cards: the node's cards.
        pods: the node's pods.
        node: the node's own object.
        ledger: what each container has.
        slots: the slots.
        paths: the node's directories.
        hook: the installed hook that checks the mounts of a container.
    """

    def __init__(
        self,
        settings: PodSettings,
        *,
        cards: Cards,
        pods: PodStore,
        node: NodeStore,
        ledger: Ledger,
        slots: Slots,
        paths: Paths,
        hook: Path,
    ) -> None:
        self.cards, self.pods, self.node = cards, pods, node
        self.ledger, self.slots = ledger, slots
        self.specifications = cdi.NodeCards((*paths.cdi, paths.made_specifications))
        self.devices = cdi.ContainerDevices(paths.cdi[-1], hook)
        self._paths = paths
        self.lock = threading.RLock()
        self.is_adopted = False
        self._settings = settings
        self._uses: dict[str, tuple[float, AccountSnapshot | None]] = {}
        self._uses_since = float("-inf")

    def mode(self) -> NodeMode:
        """How the node's cards are used by new containers."""
        node = self.node.node
        with suppress(HamiError):
            read = read_node(node, self._settings) if node is not None else None
            if read is not None:
                return read.mode
        return self._settings.profiles[0].default_mode

    def bound(self, pod: NodePod) -> BoundPod | None:
        """The pod's assignment, also if the API server does not have it yet."""
        found, changed = bound_pod(pod), self.ledger.changed.get(pod.uid)
        return replace(found, assignment=changed) if found and changed else found

    def use(self, slot: str) -> AccountSnapshot | None:
        """The usage of a slot, at most a second old. None: its account cannot be read."""
        return self.use_at(slot)[1]

    def use_at(self, slot: str) -> tuple[float, AccountSnapshot | None]:
        """When the usage of a slot was read, in monotonic seconds, and the usage; see ``use``."""
        now = time.monotonic()
        if now - self._uses_since > _FRESH_S:
            self._uses, self._uses_since = {}, now
        uses = self._uses
        if slot not in uses:
            use = None
            with suppress(HamiError, OSError):
                use = self.slots.use(slot)
            uses[slot] = time.monotonic(), use
        return uses[slot]

    def published_cards(self) -> tuple[Card, ...]:
        """The cards as the scheduler has to know them.

        What the ledger has for pods without an assignment counts as foreign memory there.
        """
        bound = self.view().pods
        unassigned: dict[str, int] = {}
        for entry in list(self.ledger.entries.values()):
            if entry.pod.uid not in bound and self.pods.get(entry.pod.uid) is not None:
                for card in entry.cards:
                    unassigned[card.card] = unassigned.get(card.card, 0) + card.memory_mib
        return tuple(
            replace_fields(card, foreign_mib=card.foreign_mib + unassigned.get(card.uuid, 0))
            for card in self.cards.all
        )

    def view(self) -> NodeView:
        """What a decision about a container is based on."""
        bound = ((pod.uid, self.bound(pod)) for pod in self.pods.all())
        pods = {uid: each for uid, each in bound if each is not None}
        entries = {
            (entry.pod.uid, entry.container): entry for entry in self.ledger.entries.values()
        }
        ended = {key for key, entry in entries.items() if self._has_ended(entry)}
        allocated = {key: entry.cards for key, entry in entries.items() if key not in ended}
        return NodeView(self.cards.capacities(), pods, allocated, ended)

    def _has_ended(self, entry: Entry) -> bool:
        pod = self.pods.get(entry.pod.uid)
        return pod is not None and pod.has_ended(entry.container)

    def prepare(self, entry: Entry) -> None:
        """Make what a container needs at its start: its slot, with its limits, and its devices.

        Raises:
            StateError: something cannot be created, or its cards have no CDI specification.
        """
        installed = Path(entry.library)
        gang = None
        if entry.gang is not None:
            gang = gang_of_namespace(entry.pod.namespace, entry.gang)
        library.check_format(installed)
        self.slots.ensure(entry.slot, self._rows(entry), gang)
        binds = (
            *slot.binds(self._paths.slots / entry.slot, installed, INSIDE),
            slot.Bind(library.preload_file(installed), library.PRELOAD, read_only=True),
        )
        edits = self.specifications.edits([card.card for card in entry.cards])
        self.devices.define(entry.slot, edits, binds)

    def set_limits(self, entry: Entry) -> None:
        """Put the limits of an entry in force in its slot, which a container may use now.

        Raises:
            HamiError: its limits page is damaged.
            OSError: it cannot be opened.
        """
        self.slots.set_limits(entry.slot, self._rows(entry))

    def in_force(self, card: CardAllocation) -> CardAllocation:
        """The enforced limits of an allocation: no time limit with ``core_policy: disable``."""
        return replace_fields(card, cores=0) if self._settings.core_policy == "disable" else card

    def _rows(self, entry: Entry) -> list[LimitRow]:
        return limit_rows(
            [self.in_force(card) for card in entry.cards],
            entry.injected,
            mode=entry.mode,
            share_mode=entry.share_mode,
            priority=entry.priority,
            driver_memory=self.cards.driver_memory,
        )
