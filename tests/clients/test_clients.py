"""Real CUDA programs stop at their limit, and below it nothing about them changes."""

from collections.abc import Callable

import pytest
from support.stub import StubServer

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

#: The driver's calls that hand out the memory which these clients ask for.
ALLOCATING = ("cuMemAlloc_v2", "cuMemFree_v2")

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
    # The driver was asked as often for memory as without us: nothing by-passed, nothing added.
    for name in ALLOCATING:
        assert limited_gpu.calls()[name] == bare_gpu.calls()[name] > 0


@pytest.mark.parametrize("monitor", MONITORS)
def test_a_monitor_shows_the_limit_as_total(monitor: str, gpu: StubServer) -> None:
    assert report(limited(GIB, python("monitor.py", monitor)), gpu.env) == {"total": GIB}
