"""The stub's drivers of older CUDA versions have the exports, and the version, of their time.

Limits hold with them as with the newest.
"""

import pytest

from support import elf, slices
from support.console import OUT_OF_MEMORY, Console
from support.drivers import OLDER, environment, since
from support.memory_use import accounted, agreed, refusals
from support.slices import GIB, MIB

NOT_FOUND = 500
"""The console's result where the driver lacks the function."""


@pytest.mark.parametrize("version", OLDER)
def test_an_older_driver_has_the_exports_of_its_time(artifacts, version):
    later = {symbol for symbol, number in since().items() if number > OLDER[version]}
    newest = elf.exported(artifacts.libcuda)
    assert later <= newest and len(later) > 40
    older = elf.exported(artifacts.older_driver(version) / "libcuda.so.1")
    assert older == newest - later


@pytest.mark.parametrize(
    ("card", "number", "finds"),
    [("h200", 12020, 1), ("h200@11080", 11080, 0)],
    ids=["its own version", "the card's version"],
)
def test_lookups_follow_the_driver_version(program, artifacts, card, number, finds):
    """The card's profile may have another version than the library; exports are the library's."""
    folder = artifacts.older_driver("12.2")
    env = {"LD_LIBRARY_PATH": str(folder), "STUB_GPU_PROFILE": card}
    with Console(program("console"), env) as console:
        assert console.value("version", "version") == number
        console.do("init", "device 0", "exports cuLibraryLoadData")
        assert console.outputs == "1"
        console.do("exports cuCtxCreate_v4")
        assert console.outputs == "0"
        console.do("lookup proc_address")
        assert (console("library l") == 0) == bool(finds)


#: What prepares, calls with a size in the place of {}, and what frees.
KINDS = {
    "linear": ([], "alloc a {}", ["free a"]),
    "pitched": ([], "pitch a 1M {}/1M 4", ["free a"]),
    "managed": ([], "managed a {} 1", ["free a"]),
    "stream-ordered": ([], "async a {} -", ["free_async a -", "sync -"]),
    "per thread": ([], "ptsz async a {} -", ["free a", "sync -"]),
    "a pool": (["pool m 0"], "from_pool a {} m -", ["free_async a -", "sync -"]),
    "an array": ([], "array a 8192 {}/8192", ["array_free a"]),
    "a mipmapped array": ([], "mipmap a 8192 {}/8192 0 1", ["mipmap_free a"]),
    "physical": ([], "create h {}", ["release h"]),
    "external": ([], "external e {}", ["external_destroy e"]),
    "a graph": (
        ["graph g"],
        "alloc_node n g {}; instantiate x g; launch cuGraphLaunch x -",
        ["free n", "sync -", "graph_trim 0"],
    ),
    "a capture": (
        ["stream s"],
        "begin s; async n {} s; end s g; instantiate x g; launch cuGraphLaunch x s",
        ["free n", "sync -", "graph_trim 0"],
    ),
}


def sized(command, bytes):
    """The calls, with the bytes, or a quotient of them, in place of {}."""
    units = {"/1M": MIB, "/8192": 8192}
    for unit, divisor in units.items():
        command = command.replace("{}" + unit, str(bytes // divisor))
    return command.replace("{}", str(bytes)).split("; ")


@pytest.mark.parametrize("lookup", ["link", "dlsym", "proc_address"])
@pytest.mark.parametrize("version", OLDER)
def test_memory_of_every_kind_is_limited_with_an_older_driver(
    artifacts, program, gpu, preload, slice_dir, *, version, lookup
):
    ours = slice_dir({gpu.uuids()[0]: 64 * MIB})
    env = {**preload(gpu, ours), **environment(artifacts, version)}
    with Console(program("console"), env, ours) as script:
        script.do(f"lookup {lookup}", "init", "device 0")
        for before, command, frees in KINDS.values():
            script.do(*before)
            *others, too_large = sized(command, 66 * MIB)
            script.do(*others)
            assert script(too_large) == OUT_OF_MEMORY, too_large
            assert agreed(gpu, ours) == 0
            script.do(*before, *sized(command, 64 * MIB))
            assert agreed(gpu, ours) == 64 * MIB, command
            assert script.value("info", "free") == 0
            script.do(*frees)
            assert agreed(gpu, ours) == 0, command
        assert refusals(ours) == len(KINDS)
    assert gpu.peak() == 64 * MIB


@pytest.mark.parametrize("version", OLDER)
def test_contexts_are_charged_with_an_older_driver(
    artifacts, program, gpu, preload, tmp_path, *, version
):
    """In the forms that it has."""
    limits = dict.fromkeys(gpu.uuids(), GIB)
    ours = slices.make(tmp_path / "slice", limits, context_memory=413 * MIB)
    env = {**preload(gpu, ours), **environment(artifacts, version)}
    with Console(program("console"), env, ours) as script:
        script.do("lookup dlsym", "init")
        for command in ("context c 0", "context_v3 c 0", "context_v4 c 0", "device 0"):
            if script(command) == NOT_FOUND:
                assert OLDER[version] < 12050 and command == "context_v4 c 0"
                continue
            assert gpu.booked("context") == sum(accounted(ours).values()) == 413 * MIB
            script.do("reset 0" if command == "device 0" else "destroy c")
            assert gpu.booked("context") == sum(accounted(ours).values()) == 0
