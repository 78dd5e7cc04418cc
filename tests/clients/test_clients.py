"""Real CUDA programs stop at their limit, and below it nothing about them changes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from clients.harness import (
    CLIENTS,
    GIB,
    MIB,
    MONITORS,
    Client,
    limited,
    python,
    report,
)
from hami_py._native import Account
from support.running import Started
from support.stub import StubServer

each_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)


@each_client
def test_allocation_stops_at_the_limit_with_the_programs_own_error(
    client: Client, gpu: StubServer
) -> None:
    limit = 900 * MIB
    seen = report(limited(limit, python(client.program, "fill", "64")), gpu.env)
    assert seen["total"] == limit
    assert client.out_of_memory in seen["error"]
    assert limit - 4 * MIB <= seen["got"] <= limit
    assert seen["got"] <= gpu.peak() <= limit


@each_client
def test_below_the_limit_the_results_are_the_same_bytes(
    client: Client, stub_server: Callable[..., StubServer]
) -> None:
    work = python(client.program, "work", "8")
    bare_gpu, limited_gpu = stub_server(), stub_server()
    bare = report(work, bare_gpu.env)
    held = report(limited(GIB, work), limited_gpu.env)
    assert held["digest"] == bare["digest"]
    assert held["total"] == GIB < bare["total"]
    # The driver was asked for memory as often as without us.
    assert limited_gpu.calls()["cuMemAlloc_v2"] == bare_gpu.calls()["cuMemAlloc_v2"] > 0


@each_client
def test_the_library_saw_every_allocation_that_the_driver_made(
    client: Client, gpu: StubServer, slice_dir: Callable[..., Path], preload: Callable[..., dict]
) -> None:
    """While the program holds its memory, our account and the driver's ledger are the same."""
    directory = slice_dir({gpu.uuids()[0]: GIB})
    command = python(client.program, "hold", "64")
    with Started(command, {**preload(gpu, directory), "HOME": str(Path.home())}) as started:
        started.wait_for("holding")
        (process,) = Account.open(directory / "account").processes()
        card = gpu.ledger()["cards"][0]
        assert process.memory[0] == card["requested"]["now"] > GIB // 2
        assert process.refusals[0] > 0


@pytest.mark.parametrize("monitor", MONITORS)
def test_a_monitor_shows_the_limit_as_total(monitor: str, gpu: StubServer) -> None:
    assert report(limited(GIB, python("monitor.py", monitor)), gpu.env) == {"total": GIB}
