"""``hami view --local``: this machine's cards and slices, on a loopback address."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

import pytest

from hami_py.errors import InvalidValue
from hami_py.model import NodeCard
from hami_py.monitor import NodeFigures
from hami_py.serving import Listen
from hami_py.view import LocalView
from hami_py.view.local import Machine
from support.slice_uses import container
from unit import machine
from unit.machine import GIB, HOLD, Hami


@pytest.fixture
def address(runtime: Path) -> Iterator[str]:
    """Of a view that runs, on a machine with a slice."""
    environment = machine.environment(runtime)
    view = machine.command("view", "--local", "--listen", "127.0.0.1:0")
    held = machine.command("run", "--gpumem", "4GiB", "--name", "train", "--", *HOLD)
    with ExitStack() as ends:
        for command in (held, view):
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            ends.enter_context(process)
            ends.callback(process.terminate)
            assert process.stdout is not None
            line = process.stdout.readline().strip()
        yield line


def ask(address: str, path: str, token: str) -> Any:
    at = urlsplit(address)
    request = urllib.request.Request(f"http://{at.netloc}{path}")
    request.add_header("Authorization", f"Bearer {token}")
    while True:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            if answer.status == 200:
                return json.load(answer)


def test_it_shows_the_cards_and_the_slices(address: str, hami: Hami) -> None:
    token = urlsplit(address).fragment.removeprefix("token=")
    picture = ask(address, "/api/picture", token)
    assert picture["is_machine"]
    (node,) = picture["nodes"]
    assert [card["memory_used"] for card in node["cards"]] == [GIB, GIB]
    found = ask(address, f"/api/node?name={node['name']}", token)["containers"]
    assert {(each["pod"], each["memory_limit"]) for each in found} == {("train", 4 * GIB)}
    # It is one slice on two cards, and nothing has used them yet.
    assert (picture["containers"], [each["memory_peak"] for each in found]) == ([1], [0, 0])
    with pytest.raises(HTTPError, match="401"):
        ask(address, "/api/picture", "made-up")


def test_it_listens_on_loopback_only() -> None:
    with pytest.raises(InvalidValue, match="it shows your programs"):
        LocalView(lambda: NodeFigures(""), Listen("0.0.0.0", 0))  # noqa: S104


def reading(engine_s: float, share: int | None = 50) -> NodeFigures:
    card = NodeCard("GPU-a", 0, "A100", 40 * GIB, 7 * GIB)
    names = ("", "train", "", "GPU-a")
    use = container(*names, limit=4 * GIB, share=share, memory_used=GIB, engine_time=engine_s)
    return NodeFigures("", [card], [use])


def test_the_used_share_is_that_between_two_readings() -> None:
    machine = Machine(lambda: reading(0.0))
    machine.take(reading(10.0), 100.0)
    assert machine.shown is not None
    (first,) = machine.shown.containers[machine.name]
    assert first.share_used is None
    machine.take(reading(11.0), 104.0)
    (second,) = machine.shown.containers[machine.name]
    assert second.share_used == 0.25


@pytest.mark.parametrize(("share", "used"), [(50, 0.0), (None, None)])
def test_only_with_a_share_no_growth_is_an_idle_slice(
    share: int | None, used: float | None
) -> None:
    machine = Machine(lambda: reading(0.0))
    for now_s in (100.0, 104.0):
        machine.take(reading(10.0, share), now_s)
    assert machine.shown is not None
    (found,) = machine.shown.containers[machine.name]
    assert found.share_used == used


def test_the_hour_is_kept_while_nobody_looks() -> None:
    machine = Machine(lambda: reading(0.0))
    for step in range(3):
        machine.take(reading(10.0 + 5 * step), 100.0 + 20 * step)
    card, train = machine.history(machine.name, 140.0).series
    assert card.memory == (7 * GIB,) * 3
    assert train.share == (None, 0.25, 0.25)


def test_a_reading_that_fails_is_not_the_last() -> None:
    failures: list[Exception] = [OSError("too many open files"), ValueError("odd")]
    problems: list[str] = []

    def read() -> NodeFigures:
        problems.append(here.problem)
        if failures:
            raise failures.pop()
        return NodeFigures("")

    here = Machine(read)
    here.start()
    ends_at = time.monotonic() + 60
    while here.shown is None:
        assert time.monotonic() < ends_at
        here.ask()
        time.sleep(0.01)
    here.stop()
    # The page says why its figures are old, until they are new again.
    assert problems[:3] == ["", "odd", "too many open files"]
    assert here.problem == ""


def test_the_address_names_the_one_that_it_listens_on() -> None:
    """A browser may take localhost for ::1, where another user may listen."""
    view = LocalView(lambda: NodeFigures(""), Listen("localhost", 0))
    view.start()
    try:
        assert view.address.startswith("http://127.0.0.1:")
    finally:
        view.stop()
