"""A thread may have the smallest stack that there is, and make the process's first driver call."""

import pytest

from support.running import run
from support.slices import GIB, environment, make

#: PTHREAD_STACK_MIN of x86-64. The thread's own data takes a part of it.
SMALLEST = 16 << 10
UUID = "GPU-00000000-0000-0000-0000-000000000001"
CALLS = ["init", "alloc", "memory", "launch", "nvml", "processes"]


@pytest.fixture
def tiny(program, tmp_path):
    """The environment of a driver and an NVML that need next to no stack."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    for name, flags in (("libcuda.so.1", ()), ("libnvidia-ml.so.1", ("-DNVML",))):
        built = program("tiny_driver", f"-Wl,-soname,{name}", *flags)
        (folder / name).write_bytes(built.read_bytes())
    return {"LD_LIBRARY_PATH": str(folder)}


@pytest.fixture(params=["slice", "nested slices", "share", "variables"])
def limited(request, artifacts, tmp_path):
    """The environment of a program with a limit of 1 GiB, or with a share as well."""
    env = {"LD_PRELOAD": str(artifacts.library)}
    if request.param == "variables":
        cache = tmp_path / "cache"
        return {**env, "CUDA_DEVICE_MEMORY_LIMIT": "1g", "CUDA_DEVICE_MEMORY_SHARED_CACHE": cache}
    share = 30 if request.param == "share" else None
    names = ["outer", "inner"] if request.param == "nested slices" else ["only"]
    slices = [make(tmp_path / name, {UUID: GIB}, share) for name in names]
    return environment(artifacts.library, *slices)


@pytest.mark.parametrize("first", CALLS)
def test_the_first_call_of_a_process(program, tiny, limited, first):
    """The reported crash; the driver alone needs no more than this."""
    calls = [first, *(call for call in CALLS if call != first)]
    command = [program("small_stack"), str(SMALLEST), *calls]
    assert run(command, tiny).code == 0
    done = run(command, {**tiny, **limited})
    assert (done.code, done.err) == (0, "")
    results = dict(line.split(" -> ") for line in done.lines)
    assert {call: result.split()[0] for call, result in results.items()} == dict.fromkeys(
        CALLS, "0"
    )
    free = 1024 if first == "memory" else 512
    assert (results["memory"], results["nvml"]) == (f"0 {free}", "0 1024")
