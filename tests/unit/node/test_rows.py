"""The limits page of a container, by the mode of its node."""

import pytest

from hami_py._native import LimitRow
from hami_py.model.cards import UNKNOWN, DriverMemory
from hami_py.model.limits import MODES, Mode
from hami_py.model.pods.wire import NODE_MODES, CardAllocation, NodeMode
from hami_py.node.rows import Priority, limit_rows, priority_of

MIB = 1 << 20

ENFORCED = {
    "full": (3000 * MIB, 30),
    "topology": (3000 * MIB, 30),
    "memory": (3000 * MIB, None),
    "exclusive": (3000 * MIB, None),
    "share": (None, None),
    "mig": (3000 * MIB, 30),
    "mps": (None, None),
}
"""By mode: the limits of a container that has 3000 MiB and 30 % (docs/pods.md)."""


def rows(
    *cards: CardAllocation,
    injected: tuple[CardAllocation, ...] | None = None,
    mode: NodeMode = "full",
    share_mode: Mode = "hard",
    priority: Priority = "normal",
) -> list[LimitRow]:
    return limit_rows(
        cards,
        cards if injected is None else injected,
        mode=mode,
        share_mode=share_mode,
        priority=priority,
        driver_memory={"A": DriverMemory(500 * MIB, 2 * MIB), "B": UNKNOWN}.__getitem__,
    )


@pytest.mark.parametrize("mode", NODE_MODES)
def test_the_limits_of_each_mode(mode: NodeMode) -> None:
    (row,) = rows(CardAllocation("A", 3000, 30), mode=mode)
    assert (row.memory_limit, row.share) == ENFORCED[mode]
    assert (row.uuid, row.mode, row.context_memory) == ("A", "hard", 500 * MIB)


@pytest.mark.parametrize("mode", NODE_MODES)
def test_the_library_limits_nothing_on_a_mig_instance(mode: NodeMode) -> None:
    (row,) = limit_rows(
        [CardAllocation("MIG-a", 4864, 14)],
        [CardAllocation("MIG-a", 1000, 14)],
        mode=mode,
        share_mode="hard",
        priority="normal",
        driver_memory=lambda _: UNKNOWN,
    )
    assert (row.memory_limit, row.share) == (None, None)
    assert (row.injected_memory, row.injected_share) == (1000 * MIB, 14), "no limit either"


@pytest.mark.parametrize("share_mode", MODES)
def test_every_card_has_the_container_s_share_mode(share_mode: Mode) -> None:
    both = (CardAllocation("A", 1000, 30), CardAllocation("B", 1000, 30))
    assert [row.mode for row in rows(*both, share_mode=share_mode)] == [share_mode, share_mode]


@pytest.mark.parametrize(("cores", "share"), [(0, None), (1, 1), (99, 99), (100, None)])
def test_no_cores_and_the_whole_card_are_no_limit_of_time(cores: int, share: int | None) -> None:
    (row,) = rows(CardAllocation("A", 1000, cores))
    assert row.share == share
    assert row.injected_share == share


def test_row_i_is_card_i() -> None:
    found = rows(CardAllocation("B", 1000, 0), CardAllocation("A", 2000, 0))
    assert [(row.uuid, row.memory_limit) for row in found] == [("B", 1000 * MIB), ("A", 2000 * MIB)]
    assert [row.context_memory for row in found] == [None, 500 * MIB], "unknown for card B"
    assert [row.granule for row in found] == [None, 2 * MIB]


def test_the_environment_keeps_the_first_limits_when_the_page_has_others() -> None:
    """A variable cannot change while the container runs, so its value must not lower the limit."""
    first = (CardAllocation("A", 1000, 10),)
    (row,) = rows(CardAllocation("A", 4000, 50), injected=first)
    assert (row.memory_limit, row.share) == (4000 * MIB, 50)
    assert (row.injected_memory, row.injected_share) == (1000 * MIB, 10)


def test_cards_and_the_limits_of_the_environment_are_as_many() -> None:
    with pytest.raises(ValueError, match="shorter"):
        rows(
            CardAllocation("A", 1, 0),
            CardAllocation("B", 1, 0),
            injected=(CardAllocation("A", 1, 0),),
        )


@pytest.mark.parametrize(
    ("requested", "priority"),
    [(None, "normal"), (0, "high"), (1, "normal"), (2, "low"), (100, "low"), (-1, "low")],
)
def test_priorities_are_hami_s(requested: int | None, priority: Priority) -> None:
    assert priority_of(requested) == priority
    assert rows(CardAllocation("A", 1, 0), priority=priority)[0].priority == priority
