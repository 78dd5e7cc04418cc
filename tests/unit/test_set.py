"""Limits of a slice that is there: ``hami set`` and ``Slice.resize``, memory and shares alike."""

from collections.abc import Callable
from typing import Any

import pytest

import hami_py
from hami_py import CardLimit
from support.running import Started
from support.slices import GIB
from support.stub import StubServer
from unit.machine import CARDS, HOLD, Hami, listed, refused

FIRST, SECOND = (card.uuid for card in CARDS)


@pytest.fixture
def train(hami: Hami) -> str:
    """A kept slice of both cards."""
    options = ["--gpumem", "4GiB", "--gpucores", "0=30", "--keep", "--name", "train"]
    assert hami("run", *options, "--", "true").returncode == 0
    return "train"


def told(hami: Hami) -> list[tuple[Any, ...]]:
    """Memory limit, share, mode and priority of each card."""
    (slice_,) = listed(hami)
    names = ("memory_limit", "share", "mode", "priority")
    return [tuple(card[name] for name in names) for card in slice_["cards"]]


def test_only_the_named_limits_change(hami: Hami, train: str) -> None:
    """Through the command line. Each of the steps starts `hami` twice, which takes the time."""
    begun = [(4 * GIB, 30, "hard", "normal"), (4 * GIB, None, "hard", "normal")]
    assert told(hami) == begun
    for arguments, after in [
        (["--gpucores", "1=50"], [begun[0], (4 * GIB, 50, "hard", "normal")]),
        (["--mode", "soft"], [(4 * GIB, s, "soft", "normal") for s in (30, 50)]),
        (["--gpumem", "2GiB"], [(2 * GIB, s, "soft", "normal") for s in (30, 50)]),
        (["--priority", "high"], [(2 * GIB, s, "soft", "high") for s in (30, 50)]),
        (["--gpucores", "none", "--mode", "hard"], [(2 * GIB, None, "hard", "high")] * 2),
        (
            ["--gpumem", "0=1GiB", "--gpucores", "20%", "--priority", "low"],
            [(1 * GIB, 20, "hard", "low"), (2 * GIB, 20, "hard", "low")],
        ),
        (["--gpucores", "100"], [(1 * GIB, None, "hard", "low"), (2 * GIB, None, "hard", "low")]),
    ]:
        done = hami("set", train, *arguments)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert told(hami) == after


def test_a_slice_can_be_named_by_id_and_its_programs_continue(
    hami: Hami, running: Callable[..., Started]
) -> None:
    with running("run", "--", *HOLD) as program:
        (slice_,) = listed(hami)
        assert hami("set", slice_["id"][:8], "--gpucores", "30").returncode == 0
        assert [share for _memory, share, *_rest in told(hami)] == [30, 30]
        program.finish()
    assert listed(hami) == []


SAYS_NOTHING = "mode soft has no effect yet: the slice has no share of a card's time"


def test_a_mode_without_a_share_is_kept_and_reported(hami: Hami) -> None:
    done = hami("run", "--mode", "soft", "--keep", "--name", "late", "--", "true")
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert done.stderr.startswith(f"hami: {SAYS_NOTHING}; set one with gpucores, like 30")
    again = hami("set", "late", "--mode", "soft")
    assert (again.returncode, again.stderr) == (0, done.stderr)
    for heard in (["--priority", "high"], ["--gpucores", "0=30"], ["--mode", "soft"]):
        done = hami("set", "late", *heard)
        assert (done.returncode, done.stderr) == (0, "")
    assert told(hami) == [(None, 30, "soft", "high"), (None, None, "soft", "high")]


def test_a_share_that_hami_s_variables_set_has_a_mode(hami: Hami) -> None:
    done = hami("run", "--mode", "soft", "--", "true", CUDA_DEVICE_SM_LIMIT="30")
    assert (done.returncode, done.stderr) == (0, "")


def test_python_reports_it_too(stub: StubServer) -> None:
    with (
        pytest.warns(UserWarning, match=SAYS_NOTHING) as caught,
        hami_py.slice(mode="soft") as s,
    ):
        s.resize(mode="soft")
    assert [warning.filename for warning in caught] == [__file__] * 2
    with pytest.warns(UserWarning, match=SAYS_NOTHING):
        hami_py.run(["true"], mode="soft", check=True)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, ("Give at least one of --gpumem, --gpucores, --mode and --priority.",)),
        (["--gpucores", "0"], 1, ('gpucores: "0" is refused', "write none for no limit")),
        (["--gpucores", "7=30"], 1, ("gpucores 7: there is no such card; choose from: 0",)),
        (["--gpucores", "1=30", "--gpumem", "7=1GiB"], 1, ("gpumem 7: there is no such card",)),
        (["--gpucores", "0=30", "--gpucores", f"{FIRST}=20"], 1, ("named already; keep one",)),
        (["--mode", "loud"], 2, ("'loud'", "'hard', 'soft'")),
        (["--priority", "1"], 2, ("'1'", "'low', 'normal', 'high'")),
    ],
)
def test_an_invalid_limit_is_reported_in_one_line_and_nothing_changes(
    hami: Hami, train: str, arguments: list[str], code: int, words: tuple[str, ...]
) -> None:
    before = told(hami)
    refused(hami("set", train, *arguments), code, *words)
    assert told(hami) == before


def test_python_sets_them_as_the_command_line_does(stub: StubServer) -> None:
    first, second = stub.uuids()
    with hami_py.slice(gpumem="4GiB", gpucores={"0": 30}, mode="soft", priority="high") as s:
        assert s.limits().cards == (
            CardLimit(first, 4 * GIB, 30, "soft", "high"),
            CardLimit(second, 4 * GIB, None, "soft", "high"),
        )
        s.resize(gpucores="50%")
        s.resize("2GiB", priority="low")
        assert s.limits().cards == tuple(
            CardLimit(uuid, 2 * GIB, 50, "soft", "low") for uuid in (first, second)
        )
        s.resize({"1": "1GiB"}, gpucores=100, mode="hard")
        assert [(c.memory, c.share) for c in s.limits().cards] == [(2 * GIB, None), (GIB, None)]
        (shown,) = hami_py.list_slices()
        assert [(c.share, c.mode, c.priority) for c in shown.cards] == [(None, "hard", "low")] * 2
        assert [(c.share, c.mode, c.priority) for c in s.usage().cards] == [
            (None, "hard", "low")
        ] * 2
