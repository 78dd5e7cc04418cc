"""Hooked functions called as no sane program would: the driver's answer is the program's answer.

The functions are those that the library exports, so a new hook is tested without a word here. The
arguments come from the generated signatures.
"""

import re

import pytest

from support import drivers
from support.drivers import signatures
from support.elf import exported
from support.slices import GIB

LOOKUPS = {"dlsym", "dlvsym"}
STATES = ["loaded", "initialised", "context"]

#: Letters that `call_each` understands, by what a parameter is.
NULL, ONE, BUFFER = "0", "1", "b"


def is_number(kind):
    """Whether a parameter is counted, and no handle, pointer or enumerator."""
    return re.fullmatch(r"[iu](8|16|32|64|size)", kind) is not None


def all_null(types):
    """Zero for every argument."""
    return NULL * len(types)


def plausible(types):
    """Valid outputs, no handle, and a count of one."""
    return "".join(BUFFER if "*" in t else ONE if is_number(t) else NULL for t in types)


def no_outputs(types):
    """A count of one, and nowhere to write."""
    return "".join(ONE if is_number(t) else NULL for t in types)


def unknown_handles(types):
    """Valid outputs, a count of one, and handles that were never returned."""
    return "".join(ONE if is_number(t) else BUFFER for t in types)


each_arguments = pytest.mark.parametrize(
    "arguments", [all_null, plausible, no_outputs, unknown_handles]
)


@each_arguments
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("share", ["100", "30"])
@pytest.mark.parametrize(
    "library", [("cuda", "cu", "libcuda.so.1"), ("nvml", "nvml", "libnvidia-ml.so.1")]
)
def test_every_hooked_function_answers_as_the_driver(
    artifacts, trace_pair, *, library, state, arguments, share
):
    header, prefix, soname = library
    hooked = sorted(exported(artifacts.library) - LOOKUPS)
    known = signatures(header)
    mine = [name for name in hooked if name.startswith(prefix)]
    assert mine
    assert not set(mine) - set(known)
    calls = "\n".join(f"{name} {arguments(known[name])}" for name in mine)
    shares = {"CUDA_DEVICE_SM_LIMIT": share, "GPU_CORE_UTILIZATION_POLICY": "force"}
    env = {"LIBRARY": soname, "STATE": state, **shares}
    bare, limited = trace_pair("call_each", GIB, env=env, input=calls + "\n")
    assert [line.partition("(")[0] for line in bare[:-2]] == mine
    assert limited == bare


@pytest.fixture
def calls_are_the_same(artifacts, trace_pair):
    """`calls_are_the_same(version, names, state, arguments)` fails where a call differs."""

    def check(version, names, state, arguments):
        known = signatures("cuda")
        calls = "".join(f"{name} {arguments(known[name])}\n" for name in names)
        shares = {"CUDA_DEVICE_SM_LIMIT": "30", "GPU_CORE_UTILIZATION_POLICY": "force"}
        driver = drivers.environment(artifacts, version)
        env = {"LIBRARY": "libcuda.so.1", "STATE": state, **shares, **driver}
        bare, limited = trace_pair("call_each", GIB, env=env, input=calls)
        assert [line.partition("(")[0] for line in bare[:-2]] == names
        assert limited == bare
        return bare

    return check


@each_arguments
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("version", drivers.OLDER)
def test_every_hooked_function_answers_as_an_older_driver(
    artifacts, calls_are_the_same, *, version, state, arguments
):
    """A function that the driver lacks is missing with the library, too."""
    hooked = exported(artifacts.library) & set(signatures("cuda"))
    lacking = hooked - exported(artifacts.older_driver(version) / "libcuda.so.1")
    bare = calls_are_the_same(version, sorted(hooked), state, arguments)
    missing = {line.partition("(")[0] for line in bare if line.endswith(" -> missing")}
    assert missing == lacking != set()


@each_arguments
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    "version",
    [
        drivers.NEWEST,
        *(pytest.param(older, marks=pytest.mark.tier("torture")) for older in drivers.OLDER),
    ],
)
def test_every_other_function_answers_as_the_driver(
    artifacts, calls_are_the_same, *, version, state, arguments
):
    """Our books must not make the driver behave differently where nothing is hooked."""
    others = set(signatures("cuda")) - exported(artifacts.library)
    calls_are_the_same(version, sorted(others), state, arguments)


def test_memory_info_accepts_null_for_either_output(trace_pair):
    bare, limited = trace_pair("memory_info_null", GIB)
    assert limited == bare
