"""Real CUDA programs stop at their limit, and below it nothing about them changes.

Each does so alone, and as four processes that share one slice.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from clients.harness import (
    CLIENTS,
    DEADLINE,
    GIB,
    MIB,
    MONITORS,
    Client,
    last_report,
    launched,
    limited,
    python,
    report,
    together,
)
from hami_py._native import Account
from support import slices
from support.artifacts import Artifacts
from support.running import Started
from support.stub import StubServer

each_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
alone_and_together = pytest.mark.parametrize("processes", [1, 4], ids=["one", "four"])

LIMIT = 900 * MIB

#: Percent of the card's time, and how much there is to do: without a share for 0.4 s.
SHARE = 30
LAUNCHES = 200
KERNELS = {"command": "kernels", "kernels": {"spin_500us": 2000, "*": 2000}}


@each_client
@alone_and_together
def test_allocation_stops_at_the_limit_with_the_programs_own_error(
    client: Client,
    processes: int,
    gpu: StubServer,
    env: Callable[[StubServer], dict[str, str]],
    runtime: Path,
) -> None:
    """While the programs hold their memory, our account and the driver's ledger are the same."""
    command = limited(LIMIT, together(processes, client.program, "hold", "64"))
    with Started(command, env(gpu)) as started:
        started.wait_for("holding", DEADLINE)
        held = gpu.held()
        (directory,) = (runtime / "hami" / "slices").iterdir()
        accounts = Account.open(directory / "account").snapshot().processes
        charged = {process.pid: process.memory[0] for process in accounts}
        assert charged == _held_by_process(gpu)
        assert len(charged) == processes
        # Each has a refusal: none of them stopped for another reason.
        assert all(process.refusals[0] > 0 for process in accounts)
        reports = last_report(started.finish(deadline=DEADLINE))
    assert [seen["total"] for seen in reports] == [LIMIT] * processes
    assert all(client.out_of_memory in seen["error"] for seen in reports)
    got = sum(seen["got"] for seen in reports)
    assert LIMIT - client.step <= got <= held <= gpu.peak() <= LIMIT
    assert gpu.held() == 0


@pytest.mark.parametrize(
    "client", [client for client in CLIENTS if client.refills], ids=lambda client: client.name
)
def test_freed_memory_can_be_allocated_again_up_to_the_limit(
    client: Client, gpu: StubServer, env: Callable[[StubServer], dict[str, str]]
) -> None:
    """All of it returns to the card in between, so it is never held twice."""
    seen = report(limited(LIMIT, python(client.program, "refill", "64")), env(gpu))
    assert client.out_of_memory in seen["error"]
    assert LIMIT - client.step <= seen["got"] == seen["again"] <= gpu.peak() <= LIMIT
    assert gpu.held() == 0


@dataclass(frozen=True)
class Bare:
    """The work of so many copies of a client without us."""

    digests: list[str]
    asked: dict[str, int]
    """Calls for memory, by function."""
    launched: dict[str, int]
    """Launches that reached the device, by kernel."""


@pytest.fixture(scope="module")
def bare(
    artifacts: Artifacts, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Client, int], Bare]:
    """`bare(client, processes)`, tried once."""

    @cache
    def find_out(client: Client, processes: int) -> Bare:
        folder = tmp_path_factory.mktemp("bare")
        with StubServer(artifacts, folder / "stub", "a100") as gpu:
            gpu.control(KERNELS)
            reports = report(_work(client, processes), {**gpu.env, "HOME": str(Path.home())})
            assert all(seen["total"] > GIB for seen in reports)
            digests = [seen["digest"] for seen in reports]
            return Bare(digests, _asked(gpu, client), launched(gpu))

    return find_out


@each_client
@alone_and_together
@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["--gpucores", str(SHARE)], id="hard"),
        pytest.param([], id="memory", marks=pytest.mark.tier("ci")),
        # Soft mode differs from hard mode by lent time, which tests/share measures.
        pytest.param(
            ["--gpucores", str(SHARE), "--mode", "soft"], id="soft", marks=pytest.mark.tier("ci")
        ),
    ],
)
def test_below_the_limit_the_results_are_the_same_bytes(
    client: Client,
    processes: int,
    *,
    options: list[str],
    gpu: StubServer,
    env: Callable[[StubServer], dict[str, str]],
    bare: Callable[[Client, int], Bare],
) -> None:
    """Under a memory limit alone, and with a share of the time as well."""
    gpu.control(KERNELS)
    expected = bare(client, processes)
    seen = report(limited(GIB, _work(client, processes), *options), env(gpu))
    assert [each["digest"] for each in seen] == expected.digests
    assert [each["total"] for each in seen] == [GIB] * processes
    # The driver was asked for memory as often as without us, and so it was ours to count.
    assert _asked(gpu, client) == expected.asked
    assert all(count >= processes for count in expected.asked.values())
    # Every launch reached the device, and none twice.
    assert launched(gpu) == expected.launched
    assert sum(expected.launched.values()) >= LAUNCHES
    # The launches were metered where there is a share. tests/share tests how much time they get.
    assert [each["billed"] > 0 for each in seen] == [bool(options)] * processes


def _work(client: Client, processes: int) -> list[str]:
    launches = str(LAUNCHES // processes)
    return together(processes, client.program, "work", "8", "--launches", launches)


def _asked(gpu: StubServer, client: Client) -> dict[str, int]:
    calls = gpu.calls()
    return {name: calls.get(name, 0) for name in client.allocates_by}


def _held_by_process(gpu: StubServer) -> dict[int, int]:
    """Bytes that the driver has set aside for each process's allocations and pools."""
    return {
        process["pid"]: sum(_now(process["cards"][0], kind) for kind in ("requested", "cached"))
        for process in gpu.ledger()["processes"]
        if process["library"] == "cuda" and process["state"] == "alive"
    }


def _now(holding: Mapping[str, Any], kind: str) -> int:
    return int(holding.get(kind, {"now": 0})["now"])


@pytest.mark.parametrize("monitor", MONITORS)
@pytest.mark.parametrize("share", [None, SHARE])
def test_a_monitor_shows_the_limit_as_total_and_the_use_of_the_slice(
    monitor: str,
    share: int | None,
    gpu: StubServer,
    tmp_path: Path,
    preload: Callable[..., dict[str, str]],
) -> None:
    """Another process of the slice holds memory, and so does a process outside the slice."""
    directory = slices.make(tmp_path / "slice", {gpu.uuids()[0]: GIB}, share)
    inside = {**preload(gpu, directory), "HOME": str(Path.home())}
    holding = python("with_cuda_bindings.py", "hold", "64")
    with Started(limited(2 * GIB, holding), {**gpu.env, "HOME": str(Path.home())}) as other:
        other.wait_for("holding")
        with Started(holding, inside) as ours:
            ours.wait_for("holding")
            seen = report(python("monitor.py", monitor), inside)
    assert seen == {"total": GIB, "used": GIB}
