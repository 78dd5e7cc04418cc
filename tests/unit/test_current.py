"""What a process sees of the slice that it is in."""

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from hami_py import (
    CardLimit,
    CardUsage,
    InvalidValue,
    ProcessUsage,
    StateError,
    Usage,
    config,
)
from hami_py._native import Account, LimitRow, LimitsPage, ProcessUse, same_card
from hami_py.config import Settings
from hami_py.slices import current
from hami_py.slices.levels import Level
from unit.machine import CARDS, FREE, GIB, Hami, harmless_library

FIRST, SECOND = (card.uuid for card in CARDS)
Inside = Callable[..., Settings]


@pytest.fixture
def inside(tmp_path: Path, settings: Settings) -> Inside:
    """The settings of a process in slices with these limits, outermost first."""

    def make(*levels: dict[str, int | None], **variables: str) -> Settings:
        directories = []
        for number, limits in enumerate(levels):
            directory = tmp_path / f"slice{number}"
            directory.mkdir()
            rows = [LimitRow(uuid, memory) for uuid, memory in limits.items()]
            LimitsPage.create(directory / "limits", rows)
            Account.create(directory / "account")
            directories.append(directory)
        read = config.read({**settings.environment, **variables})
        return dataclasses.replace(read, slices=tuple(directories))

    return make


def test_outside(settings: Settings) -> None:
    assert current.limits(settings).source == "none"
    assert current.limits(settings).cards == ()
    assert current.usage(settings) == Usage(())
    assert current.cards(settings) == CARDS


def test_in_a_slice(inside: Inside) -> None:
    settings = inside({SECOND: 4 * GIB, FIRST: None})
    held = current.limits(settings)
    assert held.source == "slice"
    assert held.cards == (CardLimit(SECOND, 4 * GIB), CardLimit(FIRST, None))
    second, first = current.usage(settings).cards
    assert (second.memory_limit, second.memory_used, second.memory_free) == (4 * GIB, 0, 4 * GIB)
    assert (first.memory_limit, first.memory_used, first.memory_free) == (None, 0, FREE[FIRST])
    assert second.processes == ()


def test_an_inner_slice_can_only_lower(inside: Inside) -> None:
    settings = inside({FIRST: 2 * GIB, SECOND: 8 * GIB}, {SECOND: 4 * GIB, FIRST: 4 * GIB})
    assert current.limits(settings).cards == (CardLimit(SECOND, 4 * GIB), CardLimit(FIRST, 2 * GIB))
    assert [card.memory_free for card in current.usage(settings).cards] == [4 * GIB, 2 * GIB]


def test_a_card_that_one_level_does_not_have_may_not_be_used(inside: Inside) -> None:
    settings = inside({SECOND: None}, {FIRST: GIB, SECOND: GIB})
    assert current.limits(settings).cards == (CardLimit(SECOND, GIB),)
    assert current.cards(settings) == [CARDS[1]]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (FIRST, FIRST, True),
        (FIRST, FIRST.replace("GPU-", "MIG-"), True),
        ("MIG-0a-0b", "GPU-0A-0B", True),
        ("0A-0B", "GPU-0a-0b", True),
        (FIRST, SECOND, False),
        (FIRST, FIRST[:-1], False),
        ("GPU-", "MIG-0", False),
    ],
)
def test_the_driver_cannot_tell_a_gpu_from_a_mig_slice(one: str, other: str, same: bool) -> None:
    assert same_card(one, other) is same
    assert same_card(other, one) is same


def test_a_slice_that_spells_a_card_otherwise_has_it(inside: Inside) -> None:
    settings = inside({FIRST: 4 * GIB}, {FIRST.replace("GPU-", "MIG-"): GIB})
    assert current.cards(settings) == [CARDS[0]]
    (held,) = current.limits(settings).cards
    assert held.memory == GIB


def test_hamis_variables_can_only_lower_a_slice(inside: Inside) -> None:
    settings = inside(
        {SECOND: 4 * GIB, FIRST: None},
        CUDA_DEVICE_MEMORY_LIMIT="8g",
        CUDA_DEVICE_MEMORY_LIMIT_0="2g",
    )
    # With a page, HAMi's 0 is its first row.
    assert current.limits(settings).cards == (CardLimit(SECOND, 2 * GIB), CardLimit(FIRST, 8 * GIB))
    assert [card.memory_free for card in current.usage(settings).cards] == [2 * GIB, 8 * GIB]


def test_what_is_left_is_the_least_over_all_levels(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes: one beside us in the outer slice, one with us in the inner."""

    def process(pid: int, memory: int, refusals: int) -> ProcessUse:
        made_up = SimpleNamespace(pid=pid, alive=True, memory=[memory], refusals=[refusals])
        return cast(ProcessUse, made_up)

    outer = Level((CardLimit(FIRST, 5 * GIB),), [3 * GIB], [process(7, 2 * GIB, 0)], [0])
    inner = Level(
        (CardLimit(FIRST, 4 * GIB),),
        [1 * GIB],
        [process(8, 1 * GIB, 0), process(9, 0, 5), process(10, 0, 0)],
        [5],
    )
    levels = {Path("/outer"): outer, Path("/inner"): inner}
    monkeypatch.setattr(current, "read_level", lambda directory: levels[directory])
    variables = {"HAMI_SLICE": "/outer:/inner", "CUDA_DEVICE_MEMORY_LIMIT": "2g"}
    (card,) = current.usage(config.read({**settings.environment, **variables})).cards
    assert card == CardUsage(
        FIRST,
        memory_limit=2 * GIB,
        memory_used=1 * GIB,
        # HAMi's variable binds the inner one alone: 5 - 3 in the outer, 2 - 1 in the inner.
        memory_free=1 * GIB,
        refusals=5,
        processes=(ProcessUsage(8, True, 1 * GIB, 0), ProcessUsage(9, True, 0, 5)),
    )


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [(FIRST, 2 * GIB), (SECOND, 8 * GIB)]),
        ("1,0", [(SECOND, 8 * GIB), (FIRST, 2 * GIB)]),
        ("1", [(SECOND, 8 * GIB)]),
        # Named by UUID, a card's number is not known: the lowest limit holds.
        (SECOND, [(SECOND, 2 * GIB)]),
    ],
)
def test_hamis_variables_alone(
    settings: Settings, visible: str | None, expected: list[tuple[str, int]]
) -> None:
    variables = {"CUDA_DEVICE_MEMORY_LIMIT": "8g", "CUDA_DEVICE_MEMORY_LIMIT_0": "2g"}
    if visible is not None:
        variables["CUDA_VISIBLE_DEVICES"] = visible
    settings = config.read({**settings.environment, **variables})
    held = current.limits(settings)
    assert held.source == "environment"
    assert held.cards == tuple(CardLimit(uuid, memory) for uuid, memory in expected)
    assert [card.memory_limit for card in current.usage(settings).cards] == [
        memory for _uuid, memory in expected
    ]


def test_hamis_zero_is_no_limit(settings: Settings) -> None:
    settings = config.read({**settings.environment, "CUDA_DEVICE_MEMORY_LIMIT": "0"})
    assert current.limits(settings).source == "none"


def test_a_bad_variable_is_an_error_and_not_no_limit(inside: Inside) -> None:
    settings = inside({FIRST: GIB}, CUDA_DEVICE_MEMORY_LIMIT="4gig")
    for call in (current.limits, current.usage):
        with pytest.raises(InvalidValue, match="CUDA_DEVICE_MEMORY_LIMIT"):
            call(settings)


@pytest.mark.parametrize("damage", ["limits", "account"])
@pytest.mark.parametrize("content", [None, b"", b"\0" * 4096])
def test_a_missing_or_damaged_slice_is_an_error_and_not_no_limit(
    inside: Inside, damage: str, content: bytes | None
) -> None:
    settings = inside({FIRST: GIB})
    path = settings.slices[0] / damage
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    for call in (current.limits, current.usage, current.cards):
        with pytest.raises(StateError) as caught:
            call(settings)
        assert str(settings.slices[0]) in caught.value.what


def test_a_level_is_said_only_where_the_library_is_at_work(settings: Settings) -> None:
    """The harmless library is libc, which this process has; another it has not."""
    assert current.limits(settings).level == "preload"
    absent = dataclasses.replace(settings, library=harmless_library().with_name("libvgpu.so"))
    assert current.limits(absent).level == "none"


REPORT = """import json, hami_py as hami
print(json.dumps([hami.limits().source, [c.memory for c in hami.limits().cards]]))"""


def test_a_program_sees_the_limits_that_it_was_started_with(hami: Hami) -> None:
    done = hami("run", "--gpumem", "1=4GiB", "--", sys.executable, "-c", REPORT)
    assert json.loads(done.stdout) == ["slice", [None, 4 * GIB]]


def test_a_limit_above_the_card_is_lowered_and_said(hami: Hami) -> None:
    done = hami("run", "--gpumem", "41GiB", "--device=1", "--", sys.executable, "-c", REPORT)
    assert json.loads(done.stdout) == ["slice", [40 * GIB]]
    assert done.stderr.startswith("hami: gpumem 41GiB is more than card 1")
    assert done.stderr.count("\n") == 1
