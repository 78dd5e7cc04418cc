"""Real CUDA programs stop at their limit, and below it nothing about them changes.

Each does so alone, and as four processes that share one slice.
"""

from collections.abc import Callable, Mapping
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
    limited,
    python,
    report,
    together,
)
from hami_py._native import Account
from support.artifacts import Artifacts
from support.running import Started
from support.stub import StubServer

each_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
alone_and_together = pytest.mark.parametrize("processes", [1, 4], ids=["one", "four"])

LIMIT = 900 * MIB


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    """Where `hami run` makes its slice."""
    path = tmp_path / "runtime"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def env(artifacts: Artifacts, runtime: Path) -> Callable[[StubServer], dict[str, str]]:
    """`env(gpu)` is what `hami run` is run with."""

    def environment(gpu: StubServer) -> dict[str, str]:
        return {
            **gpu.env,
            "HAMI_LIBRARY": str(artifacts.library),
            "XDG_RUNTIME_DIR": str(runtime),
            "HOME": str(Path.home()),
        }

    return environment


@each_client
@alone_and_together
def test_allocation_stops_at_the_limit_with_the_programs_own_error(
    client: Client,
    processes: int,
    gpu: StubServer,
    env: Callable[[StubServer], dict[str, str]],
) -> None:
    command = limited(LIMIT, together(processes, client.program, "hold", "64"))
    with Started(command, env(gpu)) as started:
        started.wait_for("holding", DEADLINE)
        held = gpu.held()
        reports = last_report(started.finish(deadline=DEADLINE))
    assert [seen["total"] for seen in reports] == [LIMIT] * processes
    assert all(client.out_of_memory in seen["error"] for seen in reports)
    got = sum(seen["got"] for seen in reports)
    assert LIMIT - client.step <= got <= held <= gpu.peak() <= LIMIT
    assert gpu.held() == 0


@each_client
@alone_and_together
def test_below_the_limit_the_results_are_the_same_bytes(
    client: Client,
    processes: int,
    stub_server: Callable[..., StubServer],
    env: Callable[[StubServer], dict[str, str]],
) -> None:
    work = together(processes, client.program, "work", "8")
    bare_gpu, limited_gpu = stub_server(), stub_server()
    bare = report(work, env(bare_gpu))
    held = report(limited(GIB, work), env(limited_gpu))
    assert [seen["digest"] for seen in held] == [seen["digest"] for seen in bare]
    assert all(seen["total"] == GIB for seen in held)
    assert all(seen["total"] > GIB for seen in bare)
    # The driver was asked for memory as often as without us, and so it was ours to count.
    asked_bare, asked_held = (_asked(gpu, client) for gpu in (bare_gpu, limited_gpu))
    assert asked_held == asked_bare
    assert all(count >= processes for count in asked_held.values())


@each_client
@alone_and_together
def test_the_library_saw_every_allocation_that_the_driver_made(
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
        (directory,) = (runtime / "hami" / "slices").iterdir()
        accounts = Account.open(directory / "account").snapshot().processes
        charged = {process.pid: process.memory[0] for process in accounts}
        assert charged == _held_by_process(gpu)
        assert len(charged) == processes
        assert sum(charged.values()) > LIMIT // 2
        # A refusal for each of them: nobody stopped for another reason.
        assert all(process.refusals[0] > 0 for process in accounts)


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
def test_a_monitor_shows_the_limit_as_total_and_the_slices_use(
    monitor: str,
    gpu: StubServer,
    slice_dir: Callable[..., Path],
    preload: Callable[..., dict[str, str]],
) -> None:
    """Another process of the slice holds memory; somebody else on the card holds some as well."""
    inside = {**preload(gpu, slice_dir({gpu.uuids()[0]: GIB})), "HOME": str(Path.home())}
    holding = python("with_cuda_bindings.py", "hold", "64")
    with Started(limited(2 * GIB, holding), {**gpu.env, "HOME": str(Path.home())}) as other:
        other.wait_for("holding")
        with Started(holding, inside) as ours:
            ours.wait_for("holding")
            seen = report(python("monitor.py", monitor), inside)
    assert seen == {"total": GIB, "used": GIB}
