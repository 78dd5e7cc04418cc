"""The driver's limits on containers, on the stub: an agent, the hook, real cgroups."""

import json
import os
import shlex
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from hami_py.config import PACKAGED_HOOK
from hami_py.node.ledger import Ledger
from support import cgroups, nvml
from support.memory_limits import MAX, get_limits, set_limits
from support.running import Run, Started
from support.stub import StubServer
from unit.agent import build

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or cgroups.mount() is None, reason="only root makes cgroups (version 2)"
)

MIB = 1 << 20
LIMIT_MIB = 1000
SYMBOL = "nvmlDeviceSetMemoryLimits_v1"
KERNEL = "memory is enforced by kernel and time by lease, because the node offers nothing stronger"

#: Allocates MiB by MiB to the end, twice.
PROGRAM = """
import ctypes, itertools, sys
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
assert cuda.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 0) == 0
for line in itertools.chain([""], sys.stdin):
    count = 0
    while cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(1 << 20)) == 0:
        count += 1
    print(count, flush=True)
"""

#: The container runtime: its process enters the cgroup, runs the hook, and becomes the program,
#: without any variable of ours.
RUNTIME = """
echo $$ >"$1/cgroup.procs"
echo '{"pid": '$$'}' | %(hook)s || exit 77
exec env -i LD_LIBRARY_PATH="$LD_LIBRARY_PATH" STUB_GPU_SOCKET="$STUB_GPU_SOCKET" \
    %(python)s -c "$2"
"""


class Node:
    """A node with an agent, and one pod with a container."""

    def __init__(
        self, server: StubServer, folder: Path, least: str = "none", setting: str = "dmem"
    ) -> None:
        self.server, self.env, self._folder = server, server.env, folder
        self._ends = ExitStack()
        self.uid = str(uuid.uuid4())
        self.pod = self._ends.enter_context(cgroups.tree(f"pod{self.uid}"))
        self.container = self.pod / "main"
        self.container.mkdir()
        agent = Path(__file__).with_name("kernel_agent.py")
        self._command = [sys.executable, agent, folder, self.uid, str(LIMIT_MIB), least, setting]
        # The agent is in a pod, too.
        self._inside = self._ends.enter_context(cgroups.tree(f"agent-{self.uid}"))
        self.start_agent()

    def __enter__(self) -> "Node":
        return self

    def __exit__(self, *raised: object) -> None:
        self._ends.close()

    def agent(self, order: str) -> dict[str, Any]:
        self._agent.tell(order)
        answer: dict[str, Any] = json.loads(self._agent.next_line())
        return answer

    def start_agent(self) -> None:
        path = {"PYTHONPATH": str(Path(__file__).parents[2])}
        started = Started(cgroups.inside(self._inside, self._command), {**self.env, **path})
        self._agent = self._ends.enter_context(started)
        self.first = json.loads(self._agent.next_line())

    def end_agent(self) -> None:
        self._agent.kill()

    def hooks(self) -> dict[str, list[str]]:
        """The container's hooks, by their stage."""
        (device,) = json.loads((self._folder / "cdi" / "hami.json").read_text())["devices"]
        hooks = device["containerEdits"]["hooks"]
        return {hook["hookName"]: hook["args"] for hook in hooks}

    def start(self, cgroup: Path | None = None) -> Started:
        """Start the container."""
        hook = shlex.join([str(PACKAGED_HOOK), *self.hooks()["createRuntime"][1:]])
        script = RUNTIME % {"hook": hook, "python": sys.executable}
        command = ["sh", "-c", script, "sh", cgroup or self.container, PROGRAM]
        return self._ends.enter_context(Started(command, self.env))

    def events(self) -> list[str]:
        return [reason for reason, _ in self.agent("show")["events"]]


@pytest.fixture
def node(stub_server: Callable[..., StubServer], tmp_path: Path) -> Iterator[Callable[..., Node]]:
    """`node("dmem", least="kernel")` is a node whose driver has this back end."""
    with ExitStack() as nodes:

        def make(backend: str | None, **more: str) -> Node:
            options = {} if backend is None else {"memory_limits": backend}
            server = stub_server("a100", **options)
            return nodes.enter_context(Node(server, tmp_path / "node", **more))

        yield make


def held_mib(node: Node) -> int:
    return int(node.server.ledger()["cards"][0]["used"]) // MIB


@pytest.mark.parametrize(("backend", "setting"), [("dmem", "dmem"), ("misc", "any")])
def test_a_container_stops_at_its_limit_without_the_library(
    node: Callable[..., Node], backend: str, setting: str
) -> None:
    it = node(backend, setting=setting, least="kernel")
    assert (it.first["error"], it.first["levels"], it.first["events"]) == (None, ["kernel"], [])
    started = it.start()
    assert int(started.next_line()) > 0
    assert held_mib(it) == LIMIT_MIB
    assert get_limits(it.env, it.container)[:2] == [0, LIMIT_MIB * MIB]
    shown = it.agent("show")
    assert shown["by"] == KERNEL
    assert shown["events"] == [["LimitsEnforced", f"container main: {KERNEL}"]]
    # A resize is in force at once, up and down.
    it.agent(str(LIMIT_MIB + 10))
    started.tell("")
    assert (int(started.next_line()), held_mib(it)) == (10, LIMIT_MIB + 10)
    it.agent(str(LIMIT_MIB + 5))
    started.tell("")
    assert int(started.next_line()) == 0
    hard = get_limits(it.env, it.container)[1]
    assert hard == (LIMIT_MIB + (5 if backend == "dmem" else 10)) * MIB


def test_limits_that_others_change_are_set_again(node: Callable[..., Node]) -> None:
    it = node("dmem")
    it.start().next_line()
    assert set_limits(it.env, it.container, MAX) == 0
    it.agent("follow")
    assert get_limits(it.env, it.container)[1] == LIMIT_MIB * MIB


def test_limits_of_misc_end_with_the_processes(node: Callable[..., Node]) -> None:
    it = node("misc", setting="any")
    started = it.start()
    started.next_line()
    assert get_limits(it.env, it.container)[1] == LIMIT_MIB * MIB
    started.kill()
    it.agent("follow")
    assert get_limits(it.env, it.container) == nvml.NOT_SUPPORTED


@pytest.mark.parametrize(
    ("backend", "setting", "why"),
    [
        (None, "any", "the node's driver has no memory limits for cgroups"),
        ("misc", "dmem", "the node has no cgroup controller dmem, and the setting kernel_limits"),
        ("dmem", "off", "the setting kernel_limits is off"),
    ],
)
def test_without_the_driver_s_limits_the_level_is_preload(
    node: Callable[..., Node], backend: str | None, setting: str, why: str
) -> None:
    it = node(backend, setting=setting)
    assert f"memory is enforced by preload and time by lease, because {why}" in it.first["by"]
    assert it.first["levels"] == ["preload"]
    assert "createRuntime" not in it.hooks()


def test_a_pod_that_needs_the_driver_s_limit_waits_for_a_node_with_it(
    node: Callable[..., Node],
) -> None:
    it = node(None, least="kernel")
    assert "accepts no less than kernel (hami.io/isolation)" in it.first["error"]


def test_a_limit_that_a_hanging_driver_has_set_is_removed(node: Callable[..., Node]) -> None:
    """The container runs at level preload, so a resize would not follow in the driver."""
    it = node("dmem")
    it.server.control({"command": "slow", "symbol": SYMBOL, "us": 600_000_000})
    started = it.start()
    assert int(started.next_line()) > 0
    it.server.control({"command": "slow", "symbol": SYMBOL, "us": 0})
    assert get_limits(it.env, it.container)[1] == LIMIT_MIB * MIB
    it.agent("follow")
    assert get_limits(it.env, it.container)[1] == MAX
    started.tell("")
    assert int(started.next_line()) > 0


def test_the_next_agent_knows_the_limit_that_one_was_killed_over(
    node: Callable[..., Node], tmp_path: Path
) -> None:
    it = node("dmem")
    it.server.control({"command": "slow", "symbol": SYMBOL, "us": 600_000_000})
    started = it.start()
    it.server.wait_until(lambda _: get_limits(it.env, it.container)[1] == LIMIT_MIB * MIB)
    it.end_agent()
    started.kill()
    (entry,) = Ledger(build.settings(tmp_path / "node").paths.ledger).entries.values()
    assert entry.cgroup == str(it.container)


def test_a_container_waits_for_an_agent_that_is_replaced(node: Callable[..., Node]) -> None:
    it = node("dmem")
    it.end_agent()
    started = it.start()
    it.start_agent()
    assert 0 < int(started.next_line()) < LIMIT_MIB
    assert get_limits(it.env, it.container)[1] == LIMIT_MIB * MIB
    assert it.agent("show")["by"] == KERNEL


@pytest.mark.parametrize(
    ("least", "fault"),
    [
        *(("kernel", fault) for fault in ("hangs", "other pod", "no agent")),
        *(("none", fault) for fault in ("hangs", "other pod")),
    ],
)
def test_without_its_limit_a_container_starts_only_if_it_accepts_less(
    node: Callable[..., Node], least: str, fault: str
) -> None:
    it = node("dmem", least=least)
    cgroup = it.container
    if fault == "hangs":
        it.server.control({"command": "slow", "symbol": SYMBOL, "us": 600_000_000})
    elif fault == "other pod":
        cgroup = it._ends.enter_context(cgroups.tree(f"pod{uuid.uuid4()}"))
    else:
        it.end_agent()
    started = it.start(cgroup)
    if least == "kernel":
        done: Run = started.finish()
        assert done.code == 77
        assert "the driver does not limit its memory" in done.err
    else:
        assert int(started.next_line()) > 0
        started.kill()
    if fault == "hangs":
        it.server.control({"command": "slow", "symbol": SYMBOL, "us": 0})
    if fault != "no agent":
        assert it.events() == ["KernelLimitFailed"]
        assert "enforced by preload" in it.agent("show")["by"]
