"""A program that executes the commands of a test, with account and ledger of its use."""

import contextlib
import tempfile
from pathlib import Path

import pytest

from support.commands import HamiCommand
from support.console import Console
from support.launcher import BEGIN, Launcher, launched, make_slice
from support.machine_users import Users
from support.running import run
from support.stub import StubServer


@pytest.fixture
def hami(artifacts, tmp_path):
    """The command line of hami."""
    return HamiCommand(artifacts, tmp_path / "runtime")


@pytest.fixture
def by_variables(artifacts, tmp_path):
    """`by_variables(gpu, NAME="text")` is the environment of a program that only these limit."""

    def environment(gpu, **variables):
        place = {"LD_PRELOAD": str(artifacts.library), "HAMI_RUNTIME_DIR": str(tmp_path)}
        return {**gpu.env, **place, **variables}

    return environment


@pytest.fixture
def start(program, slice_dir, preload):
    """`start(gpu, limit)` starts a console in a new slice, with device 0 in use.

    A limit in bytes is every card's; a path is a slice that exists, None is no slice at all.
    """
    with contextlib.ExitStack() as scripts:

        def script(gpu, limit, device=0):
            if isinstance(limit, int):
                limit = slice_dir(dict.fromkeys(gpu.uuids(), limit))
            env = gpu.env if limit is None else preload(gpu, limit)
            started = scripts.enter_context(Console(program("console"), env, limit))
            if device is not None:
                started.do("init", f"device {device}")
            return started

        yield script


@pytest.fixture
def launcher(program, preload, tmp_path):
    """`launcher(gpu, share)` starts a console in a new slice, with device 0 in use.

    `slice` is one that exists, `begin=False` leaves the beginning to the test.
    """
    with contextlib.ExitStack() as launchers:
        count = 0

        def start(gpu, share=30, *, env=None, slice=None, begin=True):
            nonlocal count
            count += 1
            slice = slice or make_slice(tmp_path / f"shared{count}", gpu, share)
            started = Launcher(
                program("console"), {**preload(gpu, slice), **(env or {})}, gpu, slice
            )
            launchers.enter_context(started)
            if begin:
                started.do(*BEGIN)
            return started

        yield start


@pytest.fixture
def unchanged(program, stub_server, preload, tmp_path):
    """`unchanged(lines)`: a console that does this answers the same under a share as without us.

    Every kernel reaches the card as often, too. Gives the answers.
    """

    def check(lines, *, share=30, cards="a100"):
        text = "".join(f"{line}\n" for line in [*BEGIN, *lines])
        bare_gpu, shared_gpu = stub_server(cards), stub_server(cards)
        shared_env = preload(shared_gpu, make_slice(tmp_path / "unchanged", shared_gpu, share))
        bare = run([program("console")], bare_gpu.env, input=text)
        shared = run([program("console")], shared_env, input=text)
        assert (shared.out.splitlines(), shared.err, shared.code) == (
            bare.out.splitlines(),
            bare.err,
            bare.code,
        )
        for card in range(len(bare_gpu.uuids())):
            assert launched(shared_gpu, card) == launched(bare_gpu, card)
        assert bare.code == 0, bare
        return bare.lines[len(BEGIN) :]

    return check


@pytest.fixture
def users(artifacts, kit):
    """`users(policy)` starts the service for two users."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hami-test-"))
        Path(folder).chmod(0o755)

        def start(policy="", cards="a100"):
            gpu = stack.enter_context(StubServer(artifacts, Path(folder) / "stub", cards))
            load = kit.load("load")
            started = Users(Path(folder), gpu, artifacts, load, policy)
            stack.callback(started.close)
            return started

        yield start
