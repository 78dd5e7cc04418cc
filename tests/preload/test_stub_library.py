"""Programs that try the stub library of the CUDA toolkit first, and then the driver.

Both have the SONAME `libcuda.so.1`. Build machines and images have the stub library in their search
path, and its cuInit returns CUDA_ERROR_STUB_LIBRARY.
"""

from collections.abc import Callable

import pytest

from support.artifacts import Artifacts
from support.programs import Programs
from support.running import Run
from support.slices import GIB, MIB
from support.stub import StubServer

HOW = ["close", "keep", "before", "both"]


@pytest.fixture
def libraries(artifacts: Artifacts, program: Programs) -> dict[str, str]:
    return {"LIBCUDA": str(artifacts.libcuda), "STUB_LIBRARY": str(program("stub_library"))}


@pytest.mark.parametrize("how", HOW)
def test_the_driver_works_after_it_as_without_us(
    how: str, trace_pair: Callable[..., tuple[list[str], list[str]]], libraries: dict[str, str]
) -> None:
    bare, limited = trace_pair("after_a_stub_library", GIB, how, 512, env=libraries)
    assert limited == bare
    assert [line.split(" -> ")[1] for line in bare[:3]] == ["34", "34", "0"]


@pytest.mark.parametrize("how", HOW)
def test_the_limit_holds_after_it(
    how: str, gpu: StubServer, run_limited: Callable[..., Run], libraries: dict[str, str]
) -> None:
    done = run_limited(gpu, GIB, "after_a_stub_library", how, 1024, env=libraries)
    assert f"total={GIB}" in done.out
    assert done.lines[-1].endswith(" -> 2 pointer=untouched")
    assert gpu.peak() == MIB


@pytest.mark.parametrize(
    "name", ["cuInit", "cuGetProcAddress_v2", "cuMemGetInfo_v2", "cuCtxSetCurrent"]
)
def test_a_driver_that_was_looked_up_and_closed(
    name: str,
    trace_pair: Callable[..., tuple[list[str], list[str]]],
    artifacts: Artifacts,
    program: Programs,
) -> None:
    """A plug-in that is linked with it loads it again, at another address."""
    plugin = {"PLUGIN": str(program("plugin_linked", str(artifacts.libcuda)))}
    bare, limited = trace_pair("looked_up_and_closed", 4 * GIB, name, env=plugin)
    assert limited == bare
    assert bare[-1] == "exit code: 0"
    assert sum(" -> 0" in line for line in bare) == 5
