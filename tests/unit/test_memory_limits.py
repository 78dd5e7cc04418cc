"""The driver's memory limits as the package sets and reads them, on the stub."""

import json
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support import cgroups
from support.artifacts import Artifacts
from support.memory_limits import MAX, get_limits
from support.running import run
from support.stub import StubServer

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or cgroups.mount() is None, reason="only root makes cgroups (version 2)"
)

MIB = 1 << 20

PROGRAM = """
import json, sys
from pathlib import Path
from hami_py.errors import HamiError
from hami_py.gpu.memory_limits import backend, read_limits, set_limits
cgroup, card = Path(sys.argv[1]), sys.argv[2]
def said(call, *arguments):
    try:
        return call(*arguments)
    except HamiError as error:
        return str(error)
"""


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A cgroup."""
    with cgroups.tree(f"limits-{uuid.uuid4()}") as path:
        yield path


def said(server: StubServer, cgroup: Path, question: str, **env: str) -> Any:
    program = f"{PROGRAM}\nprint(json.dumps({question}))"
    command = [sys.executable, "-c", program, cgroup, server.uuids()[0]]
    done = run(command, {**server.env, **env})
    assert done.code == 0, done.err
    return json.loads(done.out)


@pytest.mark.parametrize("found", ["dmem", "misc", None])
def test_the_back_end_is_found_and_changes_nothing(
    stub_server: Callable[..., StubServer], cgroup: Path, artifacts: Artifacts, found: str | None
) -> None:
    server = stub_server(**({} if found is None else {"memory_limits": found}))
    before = get_limits(server.env, cgroup)
    assert said(server, cgroup, "backend(cgroup)") == found
    assert get_limits(server.env, cgroup) == before
    older = str(artifacts.stub_dir / "13.0")
    assert said(server, cgroup, "backend(cgroup)", LD_LIBRARY_PATH=older) is None


@pytest.mark.parametrize("backend", ["dmem", "misc"])
def test_limits_are_set_read_and_cleared(
    stub_server: Callable[..., StubServer], cgroup: Path, backend: str
) -> None:
    server = stub_server(memory_limits=backend)
    card = server.uuids()[0]
    done = f"[set_limits(cgroup, {{card: {MIB}}}), read_limits(cgroup, [card])]"
    assert said(server, cgroup, done) == [None, {card: MIB}]
    assert get_limits(server.env, cgroup)[:2] == [0, MIB]
    done = "[set_limits(cgroup, {card: None}), read_limits(cgroup, [card])]"
    assert said(server, cgroup, done) == [None, {card: None}]


def test_an_error_names_the_card_and_the_fix(
    stub_server: Callable[..., StubServer], cgroup: Path
) -> None:
    server = stub_server(memory_limits="dmem")
    error = said(server, cgroup / "none", f"said(set_limits, cgroup, {{card: {MIB}}})")
    assert error.startswith(f"card {server.uuids()[0]}: the memory limit of {cgroup / 'none'}: ")
    assert error.endswith("check `nvidia-smi` and `dmesg` on the node")


def test_a_driver_that_hangs_is_given_up(
    stub_server: Callable[..., StubServer], cgroup: Path
) -> None:
    server = stub_server(memory_limits="dmem")
    symbol = "nvmlDeviceSetMemoryLimits_v1"
    server.control({"command": "slow", "symbol": symbol, "us": 600_000_000})
    call = f"said(set_limits, cgroup, {{card: {MIB}}})"
    # The second call does not begin while the first one hangs.
    errors = said(server, cgroup, f"[{call}, {call}]")
    assert "it has not answered for 5 s" in errors[0]
    assert "an earlier call has not returned yet" in errors[1]
    assert server.calls("nvml")[symbol] == 1
    assert get_limits(server.env, cgroup)[1] != MAX
