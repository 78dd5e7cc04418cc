"""Cards, and how people name them.

A card is a physical GPU or a MIG device. Inside the package its UUID is its name. An index is only
the line of ``hami devices``, because CUDA and NVML may number the same cards differently.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hami_py.errors import UnknownCard
from hami_py.model.names import legible


@dataclass(frozen=True)
class DriverMemory:
    """How much of a card the driver takes beyond what programs request.

    Attributes:
        context: bytes for each context of a process; None = unknown.
        granule: requests of more than half of this many bytes take a multiple of it; None =
            unknown, and requests are taken to take what they say.
    """

    context: int | None = None
    granule: int | None = None


_MIG = "MIG-"
_PREFIXES = ("GPU-", _MIG)
"""How UUIDs begin."""

UNKNOWN = DriverMemory()
"""The driver memory of a card whose model is not known."""


@dataclass(frozen=True)
class Card:
    """One card of this machine.

    Attributes:
        index: its line in ``hami devices``, from 0, in NVML's order (PCI bus). MIG devices appear
            instead of the GPU that they partition.
        uuid: ``GPU-…`` or ``MIG-…``.
        name: the product, e.g. ``NVIDIA A100-SXM4-40GB``.
        memory_total: bytes.
        driver_memory: what the driver takes beyond what programs request.
    """

    index: int
    uuid: str
    name: str
    memory_total: int
    driver_memory: DriverMemory = UNKNOWN


def is_mig(uuid: str) -> bool:
    """Whether it is the UUID of a MIG instance."""
    return uuid.startswith(_MIG)


def find(cards: Sequence[Card], name: str, field: str) -> Card:
    """The card with this UUID, start of a UUID, or index.

    Raises:
        UnknownCard: no card, or more than one, has this name; the message lists the cards.
    """
    for card in cards:
        if name in (card.uuid, str(card.index)):
            return card
    is_start = name.startswith(_PREFIXES)
    started = [card for card in cards if is_start and card.uuid.startswith(name)]
    if len(started) == 1:
        return started[0]
    known = ", ".join(f"{card.index} ({card.uuid})" for card in cards) or "none"
    raise UnknownCard(f"{field} {legible(name)}", "there is no such card", f"choose from: {known}")


def visible(
    cards: Sequence[Card],
    visible_devices: str | None,
    device_order: str,
    *,
    counted: bool = False,
) -> list[Card]:
    """The cards that CUDA shows to a program, in CUDA's order.

    Args:
        cards: the cards of the machine that this process can see.
        visible_devices: ``CUDA_VISIBLE_DEVICES``; None = every card. As in CUDA, an entry is an
            index or the unique start of a UUID, and the list ends at the first invalid entry.
        device_order: ``CUDA_DEVICE_ORDER``.
        counted: CUDA counts ``cards``, as in a slice whose cards were chosen. Otherwise it counts
            those of the machine, in ``device_order``.

    Raises:
        UnknownCard: an entry is a number, and the card with this CUDA number is unknown here. In
            CUDA's default order (fastest first) the numbers agree with NVML's only if all cards are
            alike.
    """
    if visible_devices is None:
        return list(cards)
    numbers_agree = device_order == "PCI_BUS_ID" or len({card.name for card in cards}) == 1
    numbers_agree = numbers_agree and not any(is_mig(card.uuid) for card in cards)
    numbers_agree = numbers_agree or counted
    found: list[Card] = []
    for entry in visible_devices.split(","):
        name = entry.strip()
        if name.isdecimal() and not numbers_agree:
            raise UnknownCard(
                f"CUDA_VISIBLE_DEVICES={visible_devices}",
                f"among cards of different models, CUDA's number {name} does not identify a card",
                "name the cards by UUID (see `hami devices`), or set CUDA_DEVICE_ORDER=PCI_BUS_ID",
            )
        match = [card for card in cards if _matches(name, card)]
        if len(match) != 1:
            break
        found += match
    return found


def _matches(entry: str, card: Card) -> bool:
    if entry.isdecimal():
        return int(entry) == card.index
    return entry.startswith(_PREFIXES) and card.uuid.startswith(entry)
