"""Debian's hashcat: a C program that sizes its buffers by what is free, and launches for seconds.

Its benchmark of MD4 compiles a kernel with NVRTC, asks how much of the card is free, and launches
the kernel over and over. On the stub no kernel computes anything, so it is told not to test itself.
"""

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from clients.harness import GIB, MIB, limited, stop
from clients.installed import require
from hami_py._native import Account
from support.artifacts import Artifacts
from support.running import Started, run
from support.stub import StubServer

#: Microseconds that every kernel takes.
KERNELS = {"*": 200}

_DEADLINE = 60.0

Env = Callable[[StubServer], dict[str, str]]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where it keeps compiled kernels: compiling takes longer than the rest of a run."""
    return tmp_path_factory.mktemp("hashcat")


@pytest.fixture(scope="module")
def nvrtc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """NVRTC from its wheel, under the name that a CUDA toolkit gives it."""
    spec = importlib.util.find_spec("nvidia")
    assert spec and spec.submodule_search_locations
    (wheel,) = Path(next(iter(spec.submodule_search_locations))).glob("cu*/lib")
    folder = tmp_path_factory.mktemp("nvrtc")
    for library in wheel.glob("libnvrtc*.so.*"):
        (folder / library.name).symlink_to(library)
        (folder / f"{library.name.split('.so')[0]}.so").symlink_to(library)
    return folder


@pytest.fixture
def env(artifacts: Artifacts, tmp_path: Path, home: Path, nvrtc: Path) -> Env:
    """`env(gpu)` is what `hami run` is run with."""
    require("hashcat")
    (tmp_path / "runtime").mkdir(mode=0o700)

    def environment(gpu: StubServer) -> dict[str, str]:
        gpu.control({"command": "kernels", "kernels": KERNELS})
        return {
            **gpu.env,
            "LD_LIBRARY_PATH": f"{gpu.env['LD_LIBRARY_PATH']}:{nvrtc}",
            "HAMI_LIBRARY": str(artifacts.library),
            "XDG_RUNTIME_DIR": str(tmp_path / "runtime"),
            "HOME": str(home),
        }

    return environment


def benchmark(session: int = 0) -> list[str]:
    """Its workload is fixed, so that it tunes nothing by the clock."""
    workload = ["--force", "-n", "32", "-u", "64", "-T", "256"]
    nothing_kept = ["--potfile-disable", "--logfile-disable", f"--session=test{session}"]
    only_cuda = ["--self-test-disable", "--backend-ignore-opencl"]
    return ["hashcat", "-b", "-m", "900", *workload, *only_cuda, *nothing_kept]


def test_the_benchmark_runs_within_its_limit(gpu: StubServer, env: Env) -> None:
    done = run(limited(GIB, benchmark()), env(gpu), deadline=_DEADLINE)
    assert done.code == 0, done
    assert re.search(r"^Speed\.#1", done.out, re.MULTILINE)
    assert re.findall(r"\d+/(\d+) MB", done.out) == ["1024"]
    assert 0 < gpu.peak() <= GIB
    assert gpu.calls()["cuLaunchKernel"] > 100
    assert gpu.held() == 0


def test_it_takes_the_same_memory_as_without_a_limit(
    stub_server: Callable[..., StubServer], env: Env
) -> None:
    bare, held = stub_server(), stub_server()
    run(benchmark(), env(bare), deadline=_DEADLINE)
    run(limited(4 * GIB, benchmark()), env(held), deadline=_DEADLINE)
    assert held.calls()["cuMemAlloc_v2"] == bare.calls()["cuMemAlloc_v2"] > 0
    assert held.peak() == bare.peak() > 0


def test_under_a_limit_that_does_not_fit_it_ends_with_its_own_error(
    gpu: StubServer, env: Env
) -> None:
    done = run(limited(64 * MIB, benchmark()), env(gpu), deadline=_DEADLINE)
    assert done.code > 0
    assert "Not enough allocatable device memory" in done.err + done.out
    assert gpu.peak() <= 64 * MIB


def test_four_of_them_share_the_limit_of_one_slice(
    gpu: StubServer, env: Env, tmp_path: Path
) -> None:
    """There is room for some of them; the others end with an error of their own."""
    alone = run(limited(GIB, benchmark()), env(gpu), deadline=_DEADLINE)
    assert alone.code == 0
    limit = 2 * gpu.peak() // MIB * MIB
    outputs = [tmp_path / f"output{session}" for session in range(4)]
    commands = " ".join(
        f"{' '.join(benchmark(session))} >{output} 2>&1 &" for session, output in enumerate(outputs)
    )
    run(limited(limit, ["sh", "-c", f"{commands} wait"]), env(gpu), deadline=_DEADLINE)
    said = [output.read_text() for output in outputs]
    ran = [text for text in said if re.search(r"^Speed\.#1", text, re.MULTILINE)]
    refused = [text for text in said if re.search("Not enough allocatable|out of memory", text)]
    assert ran
    assert len(ran) + len(refused) == 4, said
    assert gpu.peak() <= limit


def test_while_it_runs_the_account_is_the_ledger(gpu: StubServer, env: Env, tmp_path: Path) -> None:
    with Started(limited(GIB, benchmark()), env(gpu)):
        gpu.wait_until(lambda gpu: gpu.calls().get("cuLaunchKernel", 0) > 100, _DEADLINE)
        pid = stop(gpu)
        (directory,) = (tmp_path / "runtime" / "hami" / "slices").iterdir()
        (process,) = Account.open(directory / "account").snapshot().processes
        card = gpu.ledger()["cards"][0]
        # Its sizes are odd ones, and the account counts in units of 512 bytes.
        rounded_up = process.memory[0] - card["requested"]["now"]
        assert process.pid == pid
        assert 0 <= rounded_up < 512 * card["allocations"]
        assert process.memory[0] > 256 * MIB
