"""Tests of the package: real files, processes and signals.

Most need no driver: the cards are made up. Where programs have to use a GPU, they run on the stub.
"""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from hami_py import Card, Slice, config, gpu
from hami_py.config import Settings
from support import coordinator
from support.artifacts import Artifacts
from support.programs import Programs
from support.running import Started
from support.stub import StubServer
from unit import machine
from unit.machine import Hami


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Path]:
    """The value of HAMI_RUNTIME_DIR in a test; a coordinator started there ends with the test."""
    path = tmp_path / "runtime"
    path.mkdir(mode=0o700)
    yield path
    coordinator.end(path / "hami")


@pytest.fixture
def two_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is on a machine with two cards."""
    monkeypatch.setattr(gpu, "cards", lambda: machine.CARDS)
    monkeypatch.setattr(gpu, "memory_free", lambda uuids: machine.FREE)


@pytest.fixture
def settings(runtime: Path, two_cards: None) -> Settings:
    """The settings of a process on that machine, in no slice."""
    return config.read(machine.environment(runtime))


@pytest.fixture
def hami(runtime: Path) -> Hami:
    """``hami("run", "true")`` runs the command line on a machine with two cards."""
    return partial(machine.run, runtime)


@pytest.fixture
def slices_of(runtime: Path) -> Callable[[], list[Path]]:
    """The slice directories that there are now."""

    def now() -> list[Path]:
        slices = runtime / "hami" / "slices"
        return sorted(slices.iterdir()) if slices.exists() else []

    return now


@pytest.fixture
def stub(
    stub_server: Callable[..., StubServer],
    artifacts: Artifacts,
    runtime: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> StubServer:
    """Two cards. This process is told of them and loads no driver; its programs run on the stub."""
    server = stub_server("a100,a100")
    cards = [
        Card(index, card["uuid"], "NVIDIA A100", card["total"])
        for index, card in enumerate(server.ledger()["cards"])
    ]
    machine.forget_slices(monkeypatch)
    monkeypatch.setattr(gpu, "cards", lambda: cards)
    monkeypatch.setattr(gpu, "memory_free", lambda uuids: {})
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HAMI_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("XDG_DATA_HOME", str(runtime / "data"))
    monkeypatch.setenv("HAMI_LIBRARY", str(artifacts.library))
    return server


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(program: Programs) -> Iterator[Start]:
    """``start(slice, "hold", "100")`` starts a program there and waits for its first line."""
    with ExitStack() as started:

        def start(in_: Slice, name: str, *arguments: str) -> "subprocess.Popen[str]":
            process = in_.popen(
                [str(program(name)), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            started.callback(machine.end, process)
            assert process.stdout is not None
            assert process.stdout.readline() in {"holding\n", "ready\n"}
            return process

        yield start


@pytest.fixture
def running(runtime: Path) -> Callable[..., Started]:
    """``with running("run", "--", ...)``: the command line, once its program has said "up"."""

    def start(*arguments: str) -> Started:
        return Started(machine.command(*arguments), machine.environment(runtime)).wait_for("up")

    return start
