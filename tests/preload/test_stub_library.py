"""Programs that try the stub library of the CUDA toolkit first, and then the driver.

Both have the SONAME `libcuda.so.1`. Build machines and images have the stub library in their search
path, and its cuInit returns CUDA_ERROR_STUB_LIBRARY.
"""

import pytest

from support.slices import GIB, MIB

HOW = ["close", "keep", "before", "both"]


@pytest.fixture
def libraries(artifacts, program):
    return {"LIBCUDA": str(artifacts.libcuda), "STUB_LIBRARY": str(program("stub_library"))}


@pytest.mark.parametrize("how", HOW)
def test_the_driver_works_after_it_as_without_us(how, trace_pair, libraries):
    bare, limited = trace_pair("after_a_stub_library", GIB, how, 512, env=libraries)
    assert limited == bare
    assert [line.split(" -> ")[1] for line in bare[:3]] == ["34", "34", "0"]


@pytest.mark.parametrize("how", HOW)
def test_the_limit_holds_after_it(how, gpu, run_limited, libraries):
    done = run_limited(gpu, GIB, "after_a_stub_library", how, 1024, env=libraries)
    assert f"total={GIB}" in done.out
    assert done.lines[-1].endswith(" -> 2 pointer=untouched")
    assert gpu.peak() == MIB


@pytest.mark.parametrize(
    "name", ["cuInit", "cuGetProcAddress_v2", "cuMemGetInfo_v2", "cuCtxSetCurrent"]
)
def test_a_driver_that_was_looked_up_and_closed(name, trace_pair, artifacts, program):
    """A plug-in that is linked with it loads it again, at another address."""
    plugin = {"PLUGIN": str(program("plugin_linked", str(artifacts.libcuda)))}
    bare, limited = trace_pair("looked_up_and_closed", 4 * GIB, name, env=plugin)
    assert limited == bare
    assert bare[-1] == "exit code: 0"
    assert sum(" -> 0" in line for line in bare) == 5
