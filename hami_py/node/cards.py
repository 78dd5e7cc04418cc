"""The node's cards: those that answer, with their health and foreign memory, and those on disk.

The file has the cards that were seen on this node, so that a lost card stays known after a restart.
MIG devices are left out: they get new UUIDs when they are made again. A GPU on which the agent made
instances has its profiles there. To forget a card that was
taken out of the node, remove the file, and restart the agent.
"""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from hami_py.gpu.driver_memory import driver_memory
from hami_py.gpu.health import ALL
from hami_py.gpu.inventory import Inventory
from hami_py.gpu.mig import MigDevice
from hami_py.model.cards import UNKNOWN, DriverMemory, is_mig
from hami_py.model.pods.wire import Card, Mig
from hami_py.node.decision import Capacity


class Cards:
    """The node's cards, as they are known now.

    Attributes:
        are_complete: each GPU of the node has answered.
        mig_devices: where each MIG device is, by UUID.
        in_mig_mode: the UUIDs of the GPUs in MIG mode.
        managed: those of them on which the node agent makes instances. Such a GPU is a card,
            and its instances are not. Of the others the instances are cards, and the GPU is not.
    """

    def __init__(self) -> None:
        self.are_complete = False
        self.mig_devices: Mapping[str, MigDevice] = {}
        self.in_mig_mode: frozenset[str] = frozenset()
        self.managed: frozenset[str] = frozenset()
        self._taken: Mapping[str, tuple[int, ...]] = {}
        self._measured: Mapping[str, DriverMemory] = {}
        self._cards: Mapping[str, Card] = {}
        self._driver_memory: Mapping[str, DriverMemory] = {}
        self._unhealthy: Mapping[str, str] = {}
        self._foreign_mib: Mapping[str, int] = {}

    def add(self, found: Inventory) -> bool:
        """Take the cards that answer now; whether there are new ones. Known ones stay."""
        cards = (*found.cards, *found.in_mig_mode)
        # A GPU that was lost may come back in another MIG mode.
        new = {card.uuid: card for card in cards if self._is_new(card)}
        self._cards = {**self._cards, **new}
        self._driver_memory = {**self._driver_memory, **found.driver_memory}
        self.mig_devices = {**self.mig_devices, **found.mig_devices}
        self.in_mig_mode |= {card.uuid for card in found.in_mig_mode}
        self.are_complete = not found.left_out
        return bool(new)

    def _is_new(self, card: Card) -> bool:
        known = self._cards.get(card.uuid)
        return known is None or (known.mig is None) != (card.mig is None)

    def add_device(self, uuid: str, at: MigDevice) -> None:
        """Note an instance that the agent has made; it is no card."""
        self.mig_devices = {**self.mig_devices, uuid: at}
        self._driver_memory = {**self._driver_memory, uuid: driver_memory(at.model)}

    def keep_devices(self, gpu: str, uuids: Collection[str]) -> None:
        """Forget the MIG devices of a GPU that do not exist any more.

        Args:
            gpu: its UUID.
            uuids: of those that exist.
        """
        gone = {uuid for uuid, at in self.mig_devices.items() if at.gpu == gpu} - {*uuids}
        if gone:
            self.mig_devices = {u: at for u, at in self.mig_devices.items() if u not in gone}
            self._cards = {u: card for u, card in self._cards.items() if u not in gone}
            self._driver_memory = {u: m for u, m in self._driver_memory.items() if u not in gone}

    def set_taken(self, taken: Mapping[str, tuple[int, ...]]) -> bool:
        """Replace the memory slices of GPUs that have no room for instances of the agent.

        Returns:
            Whether that is a change.
        """
        changed = self._taken != taken
        self._taken = dict(taken)
        return changed

    def taken(self, uuid: str) -> set[int]:
        """The memory slices of a GPU that ``set_taken`` has noted."""
        return {*self._taken.get(uuid, ())}

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
        shown = (card.uuid for card in self._cards.values() if self._is_card(card))
        found = {uuid: self._unhealthy.get(uuid, of_all) for uuid in shown}
        return {uuid: why for uuid, why in found.items() if why is not None}

    @property
    def all(self) -> tuple[Card, ...]:
        """All cards, with their health and foreign memory."""
        unhealthy = self.unhealthy()
        shown = [card for card in self._cards.values() if self._is_card(card)]
        if self.managed:
            # A GPU has the index of its first instance, or of the next card.
            shown.sort(key=lambda card: (card.index, card.mig is None))
            shown = [replace(card, index=index) for index, card in enumerate(shown)]
        return tuple(
            replace(
                card,
                healthy=card.uuid not in unhealthy,
                foreign_mib=self._foreign_mib.get(card.uuid, 0),
                mig=card.mig and replace(card.mig, taken=self._taken.get(card.uuid, ())),
            )
            for card in shown
        )

    def _is_card(self, card: Card) -> bool:
        if card.mig is not None:
            return card.uuid in self.managed
        at = self.mig_devices.get(card.uuid)
        return at is None or at.gpu not in self.managed

    def capacities(self) -> dict[str, Capacity]:
        """What may be allocated of each card."""
        unhealthy = self.unhealthy()
        return {
            card.uuid: Capacity(
                card.memory_mib, card.cores, unhealthy.get(card.uuid), card.mig is not None
            )
            for card in self.all
        }

    def driver_memory(self, uuid: str) -> DriverMemory:
        """What the driver takes of a card beyond what programs request."""
        card, at = self._cards.get(uuid), self.mig_devices.get(uuid)
        model = card.model if card is not None else at.model if at is not None else ""
        return self._measured.get(model, self._driver_memory.get(uuid, UNKNOWN))


def _profiles(card: Card) -> Mig | None:
    return card.mig and Mig(card.mig.profiles)


class KnownCards:
    """The file, which is written when the cards change, and not when the file does."""

    def __init__(self, path: Path) -> None:
        self._path, self._written = path, b""

    def read(self) -> tuple[Card, ...]:
        """The cards; none if the file is missing or damaged, because they are only a memory."""
        with suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return msgspec.json.decode(self._path.read_bytes(), type=tuple[Card, ...])
        return ()

    def remember(self, cards: Iterable[Card]) -> None:
        """Replace the file, unless these cards were written last.

        Raises:
            OSError: it cannot be written.
        """
        whole = [card for card in cards if not is_mig(card.uuid)]
        lasting = [
            replace(card, healthy=True, foreign_mib=0, mig=_profiles(card)) for card in whole
        ]
        content = msgspec.json.encode(lasting)
        if content != self._written:
            aside = self._path.with_name(f".{self._path.name}.new")
            aside.write_bytes(content)
            aside.replace(self._path)
            self._written = content
