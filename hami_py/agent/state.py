"""What the agent knows of its node: cards, pods, the node's own object, ledger and slots."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from msgspec.structs import replace as replace_fields

from hami_py._native import LimitRow
from hami_py.agent.node import NodeStore
from hami_py.agent.pods import NodePod, PodStore, bound_pod
from hami_py.errors import HamiError, StateError
from hami_py.model import LEVELS, Level, gang_of_namespace
from hami_py.model.pods import PodSettings, read_mode
from hami_py.model.pods.owner import Owner
from hami_py.model.pods.wire import Card, CardAllocation, NodeMode
from hami_py.node import cdi, library
from hami_py.node.cards import Cards
from hami_py.node.decision import BoundPod, NodeView
from hami_py.node.ledger import Entry, Ledger
from hami_py.node.levels import NOTHING_STRONGER, Enforcement, enforcement
from hami_py.node.paths import Paths
from hami_py.node.rows import limit_rows
from hami_py.node.slots import Slots


class NodeState:
    """All of it. ``lock`` is held while ``ledger`` and ``slots`` are used together.

    ``is_adopted``: the ledger has all containers that run; slots that it does not have are unused.
    ``no_kernel``: why the driver does not limit the memory of new containers; None = it does.

    Args:
        settings: how pods and nodes are read.
        cards: the node's cards.
        pods: the node's pods.
        node: the node's own object.
        ledger: what each container has.
        slots: the slots.
        paths: the node's directories.
        hook: the installed hook that checks the mounts of a container.
        owner: who allocates the cards.
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
        owner: Owner = "hami",
    ) -> None:
        self.cards, self.pods, self.node = cards, pods, node
        self.ledger, self.slots, self.owner = ledger, slots, owner
        self.specifications = cdi.NodeCards(
            (*paths.cdi, paths.made_specifications), lambda: cards.mig_devices
        )
        self.devices = cdi.ContainerDevices(paths.cdi[-1], hook, paths.hook_socket)
        self._paths = paths
        self.lock = threading.RLock()
        self.is_adopted = False
        self.no_kernel: str | None = NOTHING_STRONGER
        self._settings = settings

    def mode(self) -> NodeMode:
        """How the node's cards are used by new containers."""
        node = self.node.node
        with suppress(HamiError):
            if node is not None:
                return read_mode(node, self._settings)
        return self._settings.profiles[0].default_mode

    def follow_mode(self) -> None:
        """Choose the GPUs on which instances are made. One whose instances are used stays."""
        if self.node.node is None:
            # Then those that an earlier agent has chosen.
            return
        mode, cards = self.mode(), self.cards
        used = [card for each in list(self.ledger.entries.values()) for card in each.cards]
        made = {card.card for card in used if card.mig is not None}
        found = (cards.mig_devices.get(card.card) for card in used)
        existing = {device.gpu for device in found if device is not None}
        wanted = cards.in_mig_mode if mode == "mig" else made
        cards.managed = cards.in_mig_mode & (wanted - existing)

    def bound(self, pod: NodePod) -> BoundPod | None:
        """The pod's assignment, also if the API server does not have it yet."""
        found, changed = bound_pod(pod), self.ledger.changed.get(pod.uid)
        return replace(found, assignment=changed) if found and changed else found

    def published_cards(self) -> tuple[Card, ...]:
        """The cards as the scheduler has to know them, with the level of new containers.

        What the ledger has for pods without an assignment counts as foreign memory there.
        """
        bound = self.view().pods
        unassigned: dict[str, int] = {}
        for entry in list(self.ledger.entries.values()):
            if entry.owner not in bound and self.pods.get(entry.owner) is not None:
                for card in entry.cards:
                    unassigned[card.card] = unassigned.get(card.card, 0) + card.memory_mib
        mode = self.mode()
        return tuple(
            replace_fields(
                card,
                foreign_mib=card.foreign_mib + unassigned.get(card.uuid, 0),
                level=self.enforcement(mode, [card.is_mig]).level,
            )
            for card in self.cards.all
        )

    def view(self) -> NodeView:
        """What a decision about a container is based on."""
        bound = ((pod.uid, self.bound(pod)) for pod in self.pods.all())
        pods = {uid: each for uid, each in bound if each is not None}
        entries = {(entry.owner, entry.container): entry for entry in self.ledger.entries.values()}
        ended = {key for key, entry in entries.items() if self.has_ended(entry)}
        # Containers that share a slot have its amounts together.
        slots = {entry.directory: key for key, entry in entries.items() if key not in ended}
        allocated = {key: entries[key].cards for key in slots.values()}
        return NodeView(self.cards.capacities(), pods, allocated, ended)

    def has_ended(self, entry: Entry) -> bool:
        """Whether the container of an entry has ended for good."""
        pod = self.pods.get(entry.owner)
        return pod is not None and pod.has_ended(entry.container)

    def prepare(self, entry: Entry) -> None:
        """Make what a container needs at its start: its slot, with its limits, and its devices.

        Raises:
            StateError: something cannot be created, its cards have no CDI specification, or the
                node does not offer the least level of its pod any more.
        """
        if not entry.cards:
            self.devices.define(entry.slot, cdi.NO_CARDS, ())
            return
        by = self.enforcement(entry.mode, entry.mig)
        weak = too_weak(by, entry.isolation)
        if weak is not None:
            raise StateError(f"container {entry.container}", weak, "delete the pod")
        installed = Path(entry.library)
        gang = None
        if entry.gang is not None:
            gang = gang_of_namespace(entry.namespace, entry.gang)
        library.check_format(installed)
        self.slots.ensure(
            entry.directory, self._rows(entry), gang, is_shared=self._is_shared(entry)
        )
        binds = library.container_binds(self._paths.slots / entry.directory, installed)
        edits = cdi.NO_CARDS
        if not entry.claims:
            edits = self.specifications.edits(entry.uuids, allows_mps=by.level == "none")
        need: cdi.Need = "required" if entry.isolation == "kernel" else "wanted"
        kernel = need if by.level == "kernel" else None
        self.devices.define(entry.slot, edits, binds, kernel)

    def _is_shared(self, entry: Entry) -> bool:
        """Whether another container that has not ended has the slot of an entry, too."""
        return any(
            each.directory == entry.directory and each.slot != entry.slot
            for each in self.ledger.entries.values()
            if entry.claims and not self.has_ended(each)
        )

    def set_limits(self, entry: Entry) -> None:
        """Put the limits of an entry in force in its slot, which a container may use now.

        Raises:
            HamiError: its limits page is damaged.
            OSError: it cannot be opened.
        """
        self.slots.set_limits(entry.directory, self._rows(entry))

    def in_force(self, card: CardAllocation) -> CardAllocation:
        """The enforced limits of an allocation: no time limit with ``core_policy: disable``."""
        return replace_fields(card, cores=0) if self._settings.core_policy == "disable" else card

    def enforcement(self, mode: NodeMode, mig: Iterable[bool] = ()) -> Enforcement:
        """How strongly limits are enforced on a node of this mode.

        Args:
            mode: of the node.
            mig: of each card, whether it is a MIG instance; none = no card is.
        """
        return enforcement(mode, self._settings.core_policy, self.no_kernel, mig=mig)

    def enforcement_of(self, entry: Entry) -> Enforcement:
        """How strongly the limits of a container are enforced."""
        why = None
        if entry.cgroup is None:
            why = self.no_kernel or "the driver did not limit it when it started"
        return enforcement(entry.mode, self._settings.core_policy, why, mig=entry.mig)

    def _rows(self, entry: Entry) -> list[LimitRow]:
        return limit_rows(
            [self.in_force(card) for card in entry.seen],
            entry.injected,
            mode=entry.mode,
            share_mode=entry.share_mode,
            priority=entry.priority,
            driver_memory=self.cards.driver_memory,
        )


def too_weak(by: Enforcement, least: Level) -> str | None:
    """Why a pod that accepts no less than this level does not accept that one; None = it does."""
    if LEVELS.index(by.level) >= LEVELS.index(least):
        return None
    return f"{by}, and the pod accepts no less than {least} (hami.io/isolation)"
