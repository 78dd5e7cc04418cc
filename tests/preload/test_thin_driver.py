"""Drivers that reach their own exports through the loader, as WSL2's `libcuda.so.1` does.

A thin driver looks every function up in an inner library of the same SONAME, which is the stub
here. Some drivers also call their own exports by name, or look them up. The library must not take
such a call or lookup for the program's.
"""

import contextlib
import os
import platform
from pathlib import Path

import pytest

from support.elf import exported
from support.launcher import LaunchPermission, until
from support.running import run
from support.scripts import Script
from support.slices import GIB
from support.traces import value
from support.world import Container, Event

LOOKUPS = {path.stem for path in (Path(__file__).parent / "programs").glob("lookup_by_*.c")} - {
    # They open the stub by another name, or need a driver without versions.
    "lookup_by_linker_name",
    "lookup_by_dlvsym",
    "lookup_by_dlsym_of_dlvsym",
    # The driver's lookups go through the program's dlsym, and are the program's.
    "lookup_by_own_dlsym",
}

#: How the driver calls its own exports.
OWN = {
    "by name": (),
    "dlsym of the global scope": ("-DOWN=BY_DEFAULT",),
    "dlsym of its handle": ("-DOWN=BY_HANDLE",),
    "cuGetProcAddress": ("-DOWN=BY_PROC_ADDRESS",),
}


@pytest.fixture
def thin(program, artifacts, tmp_path):
    """`thin(*flags)` is the environment in which the thin driver is the driver."""

    def env(*flags):
        folder = tmp_path / "thin"
        folder.mkdir()
        driver = folder / "libcuda.so.1"
        driver.write_bytes(program("thin_driver", *flags).read_bytes())
        return {
            "LD_LIBRARY_PATH": f"{folder}:{artifacts.stub_dir}",
            "INNER": str(artifacts.libcuda),
            "LIBCUDA": str(driver),
            "PLUGIN": str(program("plugin_lookup")),
        }

    return env


@pytest.mark.parametrize("lookup", sorted(LOOKUPS))
def test_a_program_below_its_limit_sees_no_difference(lookup, trace_pair, thin):
    """The reported crash: each function called itself until the stack was full."""
    bare, limited = trace_pair(lookup, GIB, 512, env=thin())
    assert limited == bare
    assert bare[-1] == "exit code: 0"
    assert not any("FAILED" in line for line in bare)


@pytest.mark.parametrize("lookup", sorted(LOOKUPS))
def test_the_limit_is_exact(lookup, gpu, run_limited, thin):
    """64 MiB are held when the program requests the rest of the limit; 1 MiB more is too much."""
    env = thin()
    fits, too_much = (run_limited(gpu, GIB, lookup, 960 + more, env=env) for more in (0, 1))
    for done, result in ((fits, "0"), (too_much, "2")):
        (second,) = (line for line in done.lines if "&second" in line)
        assert f" -> {result} " in second
    assert gpu.peak() == GIB


@pytest.mark.parametrize("function", ["pitched", "managed", "called back"])
@pytest.mark.parametrize("own", OWN.values(), ids=OWN.keys())
@pytest.mark.parametrize("more", [0, 512])
def test_memory_is_charged_once(stub_server, program, slice_env, thin, *, own, function, more):
    """A size that fits exactly is allocated, freed and allocated again; 512 bytes more are refused.

    A callback of the program that the driver calls is limited like the program.
    """
    command = [program("calls_of_its_own"), function, str(GIB + more)]
    bare_gpu, gpu, env = stub_server(), stub_server(), thin(*own)
    bare = run(command, {**bare_gpu.env, **env})
    assert bare.out.count(" -> 0") == 5
    done = run(command, {**slice_env(gpu, GIB), **env})
    total, first, info, *others = done.lines
    assert total == bare.lines[0]  # the driver's own calls are not virtualised either
    assert value(info, "total") == GIB
    assert gpu.peak() == (0 if more else GIB)
    if more:
        assert (first.split(" -> ")[1], others) == ("2 pointer=untouched", [])
        assert value(info, "free") == GIB
    else:
        assert value(info, "free") == 0
        assert [line.split(" -> ")[1][0] for line in (first, *others)] == ["0", "0", "0"]


SETUP = ["stream s 1", "kernel k m short_200us"]


@pytest.fixture
def thin_launches(program, artifacts, thin):
    """`thin_launches(*flags)` is the environment in which the thin driver has all functions.

    Its cuLaunchKernel calls its own cuLaunchKernelEx.
    """
    if platform.machine() != "x86_64":
        pytest.skip("NOT TESTED: the trampolines are written for x86-64")
    others = exported(artifacts.libcuda) - exported(program("thin_driver"))
    functions = "".join(f"X({name})" for name in sorted(others) if name.startswith("cu"))
    return lambda *flags: thin(*flags, f"-DFUNCTIONS={functions}")


@pytest.mark.parametrize("own", OWN.values(), ids=OWN.keys())
def test_launches_are_made_and_billed_once(world, kit, tmp_path, thin_launches, own):
    work = ["launch cuLaunchKernel k s 1 100", "launch cuLaunchKernelEx k s 1 1", "sync s"] * 5
    script = Script.of(kit, tmp_path, [*SETUP, *work])
    container = Container("thin", [script.program], 75, variables=thin_launches(*own))
    look = Event(0.9, "look", "thin")
    played = world(coordinator=False).play([container], 2.0, [look])
    script.succeeded()
    assert played.launched["thin"] == [{"short_200us": 505}]
    (account,) = played.looks["thin"]
    assert account["used_ns"][0] == pytest.approx(505 * 200_000, rel=0.01)


def test_a_launch_waits_for_permission_once(launcher, gpu, thin_launches, tmp_path):
    """The permission is revoked while the driver is between its two functions."""
    pause = tmp_path / "pause"
    os.mkfifo(pause)
    script = launcher(gpu, env={**thin_launches(), "PAUSE": str(pause)})
    script.do(*SETUP)
    permission = LaunchPermission(script.slice)
    script.do("start t launch cuLaunchKernel k s")
    ends = []

    def driver_reads():
        with contextlib.suppress(OSError):  # ENXIO until then
            ends.append(os.open(pause, os.O_WRONLY | os.O_NONBLOCK))
        return ends != []

    until(driver_reads, "the driver was not called")
    permission.revoke()
    os.close(ends[0])
    script.do("finish t")
    assert script.launched() == {"short_200us": 1}
