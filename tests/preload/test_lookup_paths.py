"""However a program looks up the driver's functions, it gets the library's.

Each way is one program, `programs/lookup_by_*.c`. All programs make the same calls.
"""

from pathlib import Path

import pytest

from support import elf
from support.slices import GIB, MIB

LOOKUPS = sorted(path.stem for path in (Path(__file__).parent / "programs").glob("lookup_by_*.c"))


@pytest.fixture
def lookup_env(lookup, artifacts, program, tmp_path):
    """The variables that some of the programs need."""
    env = {"LIBCUDA": str(artifacts.libcuda), "PLUGIN": str(program("plugin_lookup"))}
    if lookup in {"lookup_by_dlvsym", "lookup_by_dlsym_of_dlvsym"}:
        folder = tmp_path / "without_versions"
        folder.mkdir()
        elf.without_versions(artifacts.libcuda, folder / "libcuda.so.1")
        env["LD_LIBRARY_PATH"] = str(folder)
    return env


@pytest.mark.parametrize("lookup", LOOKUPS)
def test_a_program_below_its_limit_sees_no_difference(lookup, trace_pair, lookup_env):
    bare, limited = trace_pair(lookup, GIB, 512, env=lookup_env)
    assert limited == bare
    assert bare[-1] == "exit code: 0"
    assert not any("FAILED" in line for line in bare)


@pytest.mark.parametrize("lookup", LOOKUPS)
def test_the_limit_is_the_total_that_the_program_reads_and_gets(
    lookup, gpu, run_limited, lookup_env
):
    done = run_limited(gpu, GIB, lookup, 2048, env=lookup_env)
    told = [line for line in done.lines if "total=" in line]
    assert len(told) == 2
    assert all(f"total={GIB}" in line for line in told)
    first, second = (line for line in done.lines if "cuMemAlloc" in line)
    assert " -> 0 " in first
    assert second.endswith(" -> 2 pointer=untouched")
    assert gpu.peak() == 64 * MIB


def test_a_driver_may_have_a_long_path(gpu, run_limited, artifacts, tmp_path):
    """The library opens the driver again by its path, and has two sizes of room for it."""
    folder = tmp_path / ("long" * 60) / ("longer" * 40)
    folder.mkdir(parents=True)
    (folder / "libcuda.so.1").symlink_to(artifacts.libcuda)
    env = {"LD_LIBRARY_PATH": str(folder)}
    done = run_limited(gpu, GIB, "lookup_by_soname", 2048, env=env)
    assert done.out.count(" -> 2 pointer=untouched") == 1
    assert done.code == 0


@pytest.fixture
def plugins(program, tmp_path):
    """Two libraries, each with its own dlopen of the driver."""
    paths = {name: tmp_path / f"{name}.so" for name in ("FIRST", "SECOND")}
    for path in paths.values():
        path.write_bytes(program("plugin_allocate").read_bytes())
    return {name: str(path) for name, path in paths.items()}


def test_two_plugins_share_one_limit(gpu, run_limited, plugins):
    done = run_limited(gpu, GIB, "two_plugins", 600, env=plugins)
    assert [line.split(" -> ")[1] for line in done.lines] == [
        "0 pointer=p0",
        "2 pointer=untouched",
        "0",
    ]
    assert gpu.peak() == 600 * MIB


def test_two_plugins_below_the_limit_see_no_difference(trace_pair, plugins):
    bare, limited = trace_pair("two_plugins", GIB, 400, env=plugins)
    assert limited == bare


def test_a_program_of_cuda_2_gets_the_old_versions_and_their_limit(gpu, run_limited):
    done = run_limited(gpu, GIB, "proc_address_2000", 1024)
    assert [line.split(" -> ")[1] for line in done.lines] == [
        "0 pointer=1",
        "2 pointer=0",
        f"0 free={GIB - 64 * MIB} total={GIB}",
        f"0 total={GIB}",
        "0",
    ]
    assert gpu.peak() == 64 * MIB


def test_a_program_of_cuda_2_below_its_limit_sees_no_difference(trace_pair):
    bare, limited = trace_pair("proc_address_2000", GIB, 512)
    assert limited == bare


def test_the_first_call_may_come_from_many_threads_at_once(trace_pair):
    bare, limited = trace_pair("first_call_threads", GIB)
    assert limited == bare
    assert sum(line.endswith("-> 0") for line in limited) == 8


def test_a_driver_closed_and_opened_again_is_the_same_driver(trace_pair):
    bare, limited = trace_pair("reopen", GIB)
    assert limited == bare
