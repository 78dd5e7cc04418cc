"""A process's view of the slice that it is in."""

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

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
from hami_py._native import Account, AccountSnapshot, LimitRow, LimitsPage, ProcessUse, same_card
from hami_py.config import Settings
from hami_py.slices import beside, current
from hami_py.slices.layers import Layer
from unit.machine import CARDS, FREE, GIB, Hami, harmless_library

FIRST, SECOND = (card.uuid for card in CARDS)
Inside = Callable[..., Settings]


@pytest.fixture
def inside(tmp_path: Path, settings: Settings) -> Inside:
    """The settings of a process in slices with these limits, outermost first.

    A limit is a size, or with it share, mode and priority.
    """

    def make(*levels: dict[str, Any], **variables: str) -> Settings:
        directories = []
        for number, limits in enumerate(levels):
            directory = tmp_path / f"slice{number}"
            directory.mkdir()
            said = {uuid: row if isinstance(row, tuple) else (row,) for uuid, row in limits.items()}
            rows = [LimitRow(uuid, *row) for uuid, row in said.items()]
            LimitsPage.create(directory / "limits", rows)
            Account.create(directory / "account")
            directories.append(directory)
        *around, innermost = directories
        beside.link(innermost, around, harmless_library())
        variables["LD_PRELOAD"] = str(innermost / "libvgpu.so")
        return config.read({**settings.environment, **variables})

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


def test_a_card_must_be_in_every_layer(inside: Inside) -> None:
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


def test_a_card_is_found_under_another_form_of_its_uuid(inside: Inside) -> None:
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


def account(*processes: ProcessUse, **figures: int) -> AccountSnapshot:
    """The account of a slice on one card; what is not told is 0."""
    names = ("memory_used", "measured_memory", "memory_peak", "refusals", "used_ns", "throttled_ns")
    rows = {name: [figures.get(name, 0)] for name in names}
    return cast(AccountSnapshot, SimpleNamespace(processes=list(processes), **rows))


def used_by(pid: int, *, alive: bool = True, **use: Any) -> ProcessUsage:
    return ProcessUsage(uuid=FIRST, pid=pid, alive=alive, **use)


def test_free_memory_is_the_least_over_all_layers(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes: one beside us in the outer slice, one with us in the inner."""

    def process(pid: int, memory: int, refusals: int) -> ProcessUse:
        times = {"used_ns": [0], "throttled_ns": [0], "debt_ns": [0], "last_used": [None]}
        said = {"pid": pid, "alive": True, "memory": [memory], "refusals": [refusals]}
        said["driver_memory"] = [memory // 4]
        return cast(ProcessUse, SimpleNamespace(**said, **times))

    held, page = (CardLimit(FIRST, 5 * GIB),), (LimitRow(FIRST),)
    outer = Layer(held, page, account(process(7, 2 * GIB, 0), memory_used=3 * GIB))
    members = (process(8, 1 * GIB, 0), process(9, 0, 5), process(10, 0, 0))
    used = account(*members, memory_used=1 * GIB, refusals=5, memory_peak=2 * GIB)
    inner = Layer((CardLimit(FIRST, 4 * GIB),), page, used)
    levels = {Path("/outer"): outer, Path("/inner"): inner}
    monkeypatch.setattr(current, "read_layer", lambda directory: levels[directory])
    monkeypatch.setattr(current, "directories", lambda _settings: list(levels))
    variables = {"CUDA_DEVICE_MEMORY_LIMIT": "2g"}
    (card,) = current.usage(config.read({**settings.environment, **variables})).cards
    assert card == CardUsage(
        uuid=FIRST,
        memory_limit=2 * GIB,
        memory_used=1 * GIB,
        memory_peak=2 * GIB,
        # HAMi's variable binds the inner one alone: 5 - 3 in the outer, 2 - 1 in the inner.
        memory_free=1 * GIB,
        refusals=5,
        processes=(
            used_by(8, memory_used=1 * GIB, driver_memory=GIB // 4),
            used_by(9, refusals=5),
        ),
        driver_memory=GIB // 4,
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


# Shares.


def regimes(settings: Settings) -> list[tuple[int | None, str, str]]:
    """The share, mode and priority of each card, by limits() and by usage()."""
    held = [(card.share, card.mode, card.priority) for card in current.limits(settings).cards]
    seen = [(card.share, card.mode, card.priority) for card in current.usage(settings).cards]
    assert held == seen
    return held


def test_the_lowest_share_over_all_layers_applies_with_its_mode(inside: Inside) -> None:
    settings = inside(
        {FIRST: (None, 30, "hard", "normal"), SECOND: (None, 50, "soft", "low")},
        {FIRST: (None, 40, "soft", "high"), SECOND: (None, None, "hard", "high")},
    )
    assert regimes(settings) == [(30, "hard", "normal"), (50, "soft", "low")]


def test_of_two_equal_shares_the_hard_one_applies(inside: Inside) -> None:
    settings = inside({FIRST: (None, 30, "soft")}, {FIRST: (None, 30, "hard")})
    assert regimes(settings) == [(30, "hard", "normal")]


def test_the_whole_card_on_a_page_is_no_limit(inside: Inside) -> None:
    assert regimes(inside({FIRST: (None, 100)})) == [(None, "hard", "normal")]


LIMIT, POLICY = "CUDA_DEVICE_SM_LIMIT", "GPU_CORE_UTILIZATION_POLICY"
PRIORITY = "CUDA_TASK_PRIORITY"


@pytest.mark.parametrize(
    ("variables", "holds"),
    [
        ({}, (50, "hard", "normal")),
        # Lower than the page's: it holds, softly unless it is said otherwise.
        ({LIMIT: "30"}, (30, "soft", "normal")),
        ({LIMIT: "30%"}, (30, "soft", "normal")),
        ({LIMIT: "90", f"{LIMIT}_0": "30"}, (30, "soft", "normal")),
        ({LIMIT: "30", POLICY: "force"}, (30, "hard", "normal")),
        ({LIMIT: "30", POLICY: "FORCE"}, (30, "hard", "normal")),
        # HAMi knows these two spellings alone.
        ({LIMIT: "30", POLICY: "Force"}, (30, "soft", "normal")),
        ({LIMIT: "30", POLICY: "default"}, (30, "soft", "normal")),
        # The page's own is lifted by nothing.
        ({LIMIT: "90"}, (50, "hard", "normal")),
        ({LIMIT: "0"}, (50, "hard", "normal")),
        ({LIMIT: "50"}, (50, "hard", "normal")),
        ({LIMIT: "30", POLICY: "disable"}, (50, "hard", "normal")),
        ({POLICY: "DISABLE"}, (50, "hard", "normal")),
        ({PRIORITY: "0"}, (50, "hard", "normal")),
        ({PRIORITY: "1"}, (50, "hard", "normal")),
        ({PRIORITY: "2"}, (50, "hard", "low")),
        ({PRIORITY: "-1"}, (50, "hard", "low")),
    ],
)
def test_hamis_variables_can_only_lower_a_share(
    inside: Inside, variables: dict[str, str], holds: tuple[int | None, str, str]
) -> None:
    settings = inside({FIRST: (None, 50, "hard", "normal")}, **variables)
    assert regimes(settings) == [holds]


def test_hamis_normal_priority_lowers_a_high_one(inside: Inside) -> None:
    assert regimes(inside({FIRST: (None, 50, "hard", "high")}, CUDA_TASK_PRIORITY="1")) == [
        (50, "hard", "normal")
    ]


def test_hamis_shares_bind_the_innermost_slice(inside: Inside) -> None:
    """Its i is the i-th row there."""
    settings = inside(
        {FIRST: (None, 80), SECOND: (None, 80)},
        {SECOND: None, FIRST: None},
        CUDA_DEVICE_SM_LIMIT_0="30",
    )
    assert regimes(settings) == [(30, "soft", "normal"), (80, "hard", "normal")]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [(FIRST, 20), (SECOND, 60)]),
        ("1,0", [(SECOND, 60), (FIRST, 20)]),
        # Named by UUID, a card's number is not known: the lowest share holds.
        (SECOND, [(SECOND, 20)]),
    ],
)
def test_hamis_shares_alone(
    settings: Settings, visible: str | None, expected: list[tuple[str, int]]
) -> None:
    variables = {
        "CUDA_DEVICE_SM_LIMIT": "60",
        "CUDA_DEVICE_SM_LIMIT_0": "20",
        "CUDA_TASK_PRIORITY": "0",
    }
    if visible is not None:
        variables["CUDA_VISIBLE_DEVICES"] = visible
    held = current.limits(config.read({**settings.environment, **variables}))
    assert held.source == "environment"
    assert held.cards == tuple(
        CardLimit(uuid, None, share, "soft", "high") for uuid, share in expected
    )


@pytest.mark.parametrize(
    "variables",
    [
        {"CUDA_TASK_PRIORITY": "0"},
        {"GPU_CORE_UTILIZATION_POLICY": "force"},
        {"CUDA_DEVICE_SM_LIMIT": "30", "GPU_CORE_UTILIZATION_POLICY": "disable"},
        {"CUDA_DEVICE_SM_LIMIT": "100", "CUDA_DEVICE_SM_LIMIT_1": "0"},
    ],
)
def test_values_that_limit_nothing_are_no_limit(
    settings: Settings, variables: dict[str, str]
) -> None:
    held = current.limits(config.read({**settings.environment, **variables}))
    assert (held.source, held.cards) == ("none", ())


@pytest.mark.parametrize("text", ["", "high", "0.5", "+", "1 ", "\u0660"])
def test_a_priority_that_is_no_number_is_refused(inside: Inside, text: str) -> None:
    settings = inside({FIRST: GIB}, CUDA_TASK_PRIORITY=text)
    with pytest.raises(InvalidValue) as caught:
        current.limits(settings)
    assert (caught.value.field, caught.value.value) == ("CUDA_TASK_PRIORITY", text)
    assert caught.value.fix.startswith("write 0 for high, 1 for normal")


def test_a_bad_share_is_refused_also_if_it_is_disabled(inside: Inside) -> None:
    settings = inside(
        {FIRST: GIB}, CUDA_DEVICE_SM_LIMIT="101", GPU_CORE_UTILIZATION_POLICY="disable"
    )
    with pytest.raises(InvalidValue, match="CUDA_DEVICE_SM_LIMIT"):
        current.limits(settings)


@pytest.mark.parametrize(("share", "is_measured"), [(30, True), (None, False)])
def test_engine_time_is_that_of_the_innermost_slice_in_seconds(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, share: int | None, is_measured: bool
) -> None:
    """Of living and dead processes; a process that has used or waited for time is listed."""

    def process(pid: int, alive: bool, used: int, throttled: int, debt: int) -> ProcessUse:
        said = {"pid": pid, "alive": alive, "memory": [0], "refusals": [0], "driver_memory": [0]}
        times = {"used_ns": [used], "throttled_ns": [throttled], "debt_ns": [debt]}
        said["last_used"] = [1e9 + pid]
        return cast(ProcessUse, SimpleNamespace(**said, **times))

    limit = (CardLimit(FIRST, None, share),)
    page = (LimitRow(FIRST),)
    outer = Layer(limit, page, account(used_ns=10**12, throttled_ns=10**12))
    members = [
        process(8, True, 1_500_000_000, 0, 250_000_000),
        process(9, False, 0, 2_000_000_000, 10**9),
        process(10, True, 0, 0, 0),
    ]
    sums = account(*members, used_ns=4_000_000_000, throttled_ns=2_500_000_000)
    inner = Layer(limit, page, sums)
    levels = {Path("/outer"): outer, Path("/inner"): inner}
    monkeypatch.setattr(current, "read_layer", lambda directory: levels[directory])
    monkeypatch.setattr(current, "directories", lambda _settings: list(levels))
    inside = config.read(settings.environment)

    def last_used(pid: int) -> float | None:
        return 1e9 + pid if is_measured else None

    (card,) = current.usage(inside).cards
    assert (card.engine_time, card.throttled) == (4.0, 2.5)
    # A dead process pays no debt.
    assert card.debt == 0.25
    assert card.processes == (
        used_by(8, engine_time=1.5, debt=0.25, last_used=last_used(8)),
        used_by(9, alive=False, throttled=2.0, debt=1.0, last_used=last_used(9)),
    )
    # Of the living alone: 9 has ended.
    assert card.last_used == last_used(10)


@pytest.mark.parametrize("damage", ["limits", "account"])
@pytest.mark.parametrize("content", [None, b"", b"\0" * 4096])
def test_a_missing_or_damaged_slice_is_an_error_and_not_no_limit(
    inside: Inside, damage: str, content: bytes | None
) -> None:
    settings = inside({FIRST: GIB})
    [directory] = beside.own_slices(settings)
    path = directory / damage
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    for call in (current.limits, current.usage, current.cards):
        with pytest.raises(StateError) as caught:
            call(settings)
        assert str(directory) in caught.value.what


def test_the_level_is_preload_only_if_the_library_is_loaded(settings: Settings) -> None:
    """The harmless library is libc, which this process has; another it has not."""
    assert current.limits(settings).level == "preload"
    absent = dataclasses.replace(settings, library=harmless_library().with_name("libvgpu.so"))
    assert current.limits(absent).level == "none"


REPORT = """import json, hami_py as hami
print(json.dumps([hami.limits().source, [c.memory for c in hami.limits().cards]]))"""


def test_a_limit_above_the_card_is_lowered_and_reported(hami: Hami) -> None:
    done = hami("run", "--gpumem", "41GiB", "--device=1", "--", sys.executable, "-c", REPORT)
    assert json.loads(done.stdout) == ["slice", [40 * GIB]]
    assert done.stderr.startswith("hami: gpumem 41GiB is more than card 1")
    assert done.stderr.count("\n") == 1
