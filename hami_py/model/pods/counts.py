"""What each resource counts, and between which numbers: the one table for all of them.

| what | unit | from | to |
|---|---|---|---|
| ``gpu`` | cards | 0 | ``PodSettings.max_cards`` |
| ``memory`` | the profile's, on each card or in all | 1 | ``PodSettings.max_memory_mib`` |
| ``percentage`` | percent of a card's memory; 0 = not asked for | 0 | 100 |
| ``cores`` | percent of a card's time; 0 = no limit | 0 | 100 |
| ``priority`` | 0 = before others on the same card, 1 = as others | 0 | 1 |
"""

from dataclasses import dataclass

from hami_py.model.pods.names import NameProfile
from hami_py.model.pods.quantity import Counted

GIB_IN_MIB = 1024

_PERCENT = "write a whole percentage from 1 to 100, like {}"
_PERCENTAGE = Counted("percent", 0, 100, 50, fix=_PERCENT.format(50))
_CORES = Counted("percent", 0, 100, 30, fix=f"{_PERCENT.format(30)}; 0 is no limit")
_PRIORITY = Counted("", 0, 1, 1, fix="write 0 for high or 1 for low")


@dataclass(frozen=True)
class Row:
    """A resource.

    Attributes:
        name: as it stands in a pod.
        counted: what its number means.
    """

    name: str
    counted: Counted


@dataclass(frozen=True)
class Table:
    """The resources of a profile; None = it has no name for this.

    Attributes:
        profile: whose names.
        gpu: cards.
        memory: memory.
        percentage: memory in percent.
        cores: time in percent.
        priority: before or after others.
        names: every name in it.
        particular: those that other profiles do not have.
        label: what the label for cards counts.
    """

    profile: NameProfile
    gpu: Row
    memory: Row
    percentage: Row | None
    cores: Row
    priority: Row | None
    names: frozenset[str]
    particular: frozenset[str]
    label: Counted


def table(profile: NameProfile, max_cards: int, max_memory_mib: int) -> Table:
    """The table of a profile.

    Args:
        profile: whose names.
        max_cards: most cards of a container.
        max_memory_mib: most memory of a card.
    """
    unit = profile.memory_unit_mib
    part = f"a part of a card is asked for with {profile.memory} and {profile.cores}"
    memory = Counted(
        f"{unit_name(unit)} {'in all' if profile.memory_is_total else 'on each card'}",
        1,
        max_memory_mib // unit * (max_cards if profile.memory_is_total else 1),
        max(3000 // unit, 1),
        mib=unit,
        zero="leave it out for the whole card",
    )
    names = frozenset(profile.resources)
    return Table(
        profile,
        gpu=Row(profile.gpu, Counted("cards", 0, max_cards, 1, hint=part)),
        memory=Row(profile.memory, memory),
        percentage=Row(profile.percentage, _PERCENTAGE) if profile.percentage else None,
        cores=Row(profile.cores, _CORES),
        priority=Row(profile.priority, _PRIORITY) if profile.priority else None,
        names=names,
        particular=names - {profile.gpu},
        label=Counted("cards", 1, max_cards, 2),
    )


def unit_name(mib: int) -> str:
    """MiB or GiB, or so many MiB."""
    return {1: "MiB", GIB_IN_MIB: "GiB"}.get(mib, f"{mib} MiB")
