"""Cards, and how people name them.

A card is a physical GPU or a MIG slice. Its UUID is its name everywhere inside; an index is only
how people point at a line of ``hami devices``, because CUDA and NVML may number the same cards
differently.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hami_py.errors import UnknownCard
from hami_py.model.names import legible


@dataclass(frozen=True)
class Card:
    """One card of this machine.

    Attributes:
        index: its line in ``hami devices``, from 0, in NVML's order (PCI bus); MIG slices stand in
            place of the GPU that was cut into them.
        uuid: ``GPU-…`` or ``MIG-…``.
        name: the product, e.g. ``NVIDIA A100-SXM4-40GB``.
        memory_total: bytes.
    """

    index: int
    uuid: str
    name: str
    memory_total: int


def find(cards: Sequence[Card], name: str, field: str) -> Card:
    """The card with this UUID or index.

    Args:
        cards: the cards to choose from.
        name: a UUID or an index, as a person wrote it.
        field: the option or argument, for the error.

    Raises:
        UnknownCard: there is none; the message lists those there are.
    """
    for card in cards:
        if name in (card.uuid, str(card.index)):
            return card
    known = ", ".join(f"{card.index} ({card.uuid})" for card in cards) or "none"
    raise UnknownCard(f"{field} {legible(name)}", "there is no such card", f"choose from: {known}")


def visible(
    cards: Sequence[Card],
    visible_devices: str | None,
    device_order: str,
    *,
    all_cards: bool = True,
) -> list[Card]:
    """The cards that CUDA shows to a program, in CUDA's order.

    Args:
        cards: every card of the machine, as far as they can be seen from here.
        visible_devices: ``CUDA_VISIBLE_DEVICES``; None = every card. Like CUDA, an entry may be an
            index or the unique start of a UUID, and the list ends at the first one that is neither.
        device_order: ``CUDA_DEVICE_ORDER``.
        all_cards: all can be seen. In a slice of some cards NVML counts those alone, CUDA all.

    Raises:
        UnknownCard: an entry is a number, and which card CUDA gives this number is not known here:
            in CUDA's default order (fastest first) only alike cards keep their NVML numbers, and
            where some cards cannot be seen none does.
    """
    if visible_devices is None:
        return list(cards)
    numbers_agree = device_order == "PCI_BUS_ID" or len({card.name for card in cards}) == 1
    numbers_agree = numbers_agree and not any(card.uuid.startswith("MIG-") for card in cards)
    found: list[Card] = []
    for entry in visible_devices.split(","):
        name = entry.strip()
        if name.isdecimal() and not all_cards:
            raise UnknownCard(
                f"CUDA_VISIBLE_DEVICES={visible_devices}",
                f"which card CUDA calls {name} cannot be told in a slice of some cards",
                "name them by UUID there (see `hami devices`)",
            )
        if name.isdecimal() and not numbers_agree:
            raise UnknownCard(
                f"CUDA_VISIBLE_DEVICES={visible_devices}",
                f"which card CUDA calls {name} cannot be told among unlike cards",
                "name them by UUID there (see `hami devices`), or set CUDA_DEVICE_ORDER=PCI_BUS_ID",
            )
        match = [card for card in cards if _means(name, card)]
        if len(match) != 1:
            break
        found += match
    return found


def _means(entry: str, card: Card) -> bool:
    if entry.isdecimal():
        return int(entry) == card.index
    return entry.startswith(("GPU-", "MIG-")) and card.uuid.startswith(entry)
