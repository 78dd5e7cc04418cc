"""Debian's hashcat: a C program that sizes its buffers by what is free, and launches for seconds.

Its benchmark of MD4 compiles a kernel with NVRTC, asks how much of the card is free, and launches
the kernel over and over. On the stub no kernel computes anything, so it is told not to test itself.
"""

import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from clients.harness import GIB, MIB, engine, limited, stop
from clients.installed import require
from hami_py._native import Account
from support.artifacts import Artifacts
from support.running import Run, Started, run
from support.stub import StubServer

# Their packages are large.
pytestmark = pytest.mark.tier("ci")

#: Microseconds that every kernel takes.
KERNELS = {"*": 2000}

#: Percent of the card's time.
SHARE = 25

_DEADLINE = 60.0

Env = Callable[[StubServer], dict[str, str]]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where it keeps compiled kernels: compiling takes longer than the rest of a run."""
    return tmp_path_factory.mktemp("hashcat")


def folders(home: Path) -> dict[str, str]:
    """The variables for that. It keeps the PIDs of its sessions there, too: one run for each."""
    return dict.fromkeys(["HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"], str(home))


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


@pytest.fixture(scope="module")
def bare_env(home: Path, nvrtc: Path) -> Env:
    """`bare_env(gpu)` is what hashcat needs."""
    require("hashcat")

    def environment(gpu: StubServer) -> dict[str, str]:
        gpu.control({"command": "kernels", "kernels": KERNELS})
        libraries = f"{gpu.env['LD_LIBRARY_PATH']}:{nvrtc}"
        return {**gpu.env, "LD_LIBRARY_PATH": libraries, **folders(home)}

    return environment


@pytest.fixture
def env(env: Env, bare_env: Env) -> Env:
    """The same, with what hashcat needs."""
    return lambda gpu: {**env(gpu), **bare_env(gpu)}


@dataclass(frozen=True)
class Bare:
    """The speed of the benchmark without us."""

    speed: float
    peak: int
    allocations: int


@pytest.fixture(scope="module")
def bare(artifacts: Artifacts, tmp_path_factory: pytest.TempPathFactory, bare_env: Env) -> Bare:
    folder = tmp_path_factory.mktemp("bare")
    with StubServer(artifacts, folder / "stub", "a100") as gpu:
        # The first run compiles, and then has less time to compute.
        for _ in range(2):
            done = run(benchmark(), bare_env(gpu), deadline=_DEADLINE)
        return Bare(speed(done.out), gpu.peak(), gpu.calls()["cuMemAlloc_v2"] // 2)


def benchmark(session: int = 0) -> list[str]:
    """Its workload is fixed, so that it tunes nothing by the clock."""
    workload = ["--force", "-n", "32", "-u", "64", "-T", "256"]
    nothing_kept = ["--potfile-disable", "--logfile-disable", f"--session=test{session}"]
    only_cuda = ["--self-test-disable", "--backend-ignore-opencl"]
    return ["hashcat", "-b", "-m", "900", *workload, *only_cuda, *nothing_kept]


def four_of_them(
    limit: int, env: dict[str, str], folder: Path, *options: str
) -> tuple[Run, list[str]]:
    """In one slice: how that ended, and what each of them said."""
    outputs = [folder / f"output{session}" for session in range(4)]
    commands = " ".join(
        f"{' '.join(benchmark(session))} >{output} 2>&1 &" for session, output in enumerate(outputs)
    )
    command = ["sh", "-c", f"{commands} wait"]
    done = run(limited(limit, command, *options), env, deadline=_DEADLINE)
    return done, [output.read_text() for output in outputs]


def speed(said: str) -> float:
    """Hashes in a second on the first card, as it says."""
    found = re.search(r"^Speed\.#1\.+: +([\d.]+) ([kMGT]?)H/s", said, re.MULTILINE)
    assert found, said
    return float(found[1]) * 1000.0 ** " kMGT".index(found[2] or " ")


def test_the_benchmark_runs_within_its_limit(gpu: StubServer, env: Env) -> None:
    """The whole benchmark, which runs for seconds, as its buffers depend on the free memory."""
    done = run(limited(GIB, benchmark()), env(gpu), deadline=_DEADLINE)
    assert done.code == 0, done
    assert speed(done.out) > 0
    assert re.findall(r"\d+/(\d+) MB", done.out) == ["1024"]
    assert 0 < gpu.peak() <= GIB
    assert gpu.calls()["cuLaunchKernel"] > 100
    assert gpu.held() == 0


@pytest.mark.alone
@pytest.mark.tier("torture")
@pytest.mark.parametrize("mode", ["hard", "soft"])
def test_with_a_share_it_uses_the_same_memory_at_reduced_speed(
    gpu: StubServer, env: Env, bare: Bare, mode: str
) -> None:
    """The speed is measured on this machine beside its other work, so the bounds are wide."""
    share = ["--gpucores", str(SHARE), "--mode", mode]
    done = run(limited(4 * GIB, benchmark(), *share), env(gpu), deadline=_DEADLINE)
    assert done.code == 0, done
    assert gpu.calls()["cuMemAlloc_v2"] == bare.allocations > 0
    assert gpu.peak() == bare.peak > 0
    part = speed(done.out) / bare.speed
    if mode == "hard":
        assert engine(gpu).within(SHARE)
        assert engine(gpu).makes_use_of(SHARE)
        assert 0.1 < part < 0.5
    else:
        # It is alone, so idle time of others is lent to it.
        assert part > 0.5


@pytest.mark.tier("torture")
def test_four_of_them_share_the_time_of_one_slice(
    gpu: StubServer, env: Env, tmp_path: Path
) -> None:
    share = ["--gpucores", str(SHARE)]
    done, said = four_of_them(4 * GIB, env(gpu), tmp_path, *share)
    assert done.code == 0, done
    assert all(speed(text) > 0 for text in said)
    assert engine(gpu).within(SHARE)
    assert engine(gpu).makes_use_of(SHARE)


def test_under_a_limit_that_does_not_fit_it_ends_with_its_own_error(
    gpu: StubServer, env: Env
) -> None:
    done = run(limited(64 * MIB, benchmark()), env(gpu), deadline=_DEADLINE)
    assert done.code > 0
    assert "Not enough allocatable device memory" in done.err + done.out
    assert gpu.peak() <= 64 * MIB


@pytest.mark.tier("ci")
def test_four_of_them_share_the_limit_of_one_slice(
    gpu: StubServer, env: Env, tmp_path: Path
) -> None:
    """There is room for some of them; the others end with an error of their own."""
    alone = run(limited(GIB, benchmark()), env(gpu), deadline=_DEADLINE)
    assert alone.code == 0
    limit = 2 * gpu.peak() // MIB * MIB
    _done, said = four_of_them(limit, env(gpu), tmp_path)
    ran = [text for text in said if re.search(r"^Speed\.#1", text, re.MULTILINE)]
    refused = [text for text in said if re.search("Not enough allocatable|out of memory", text)]
    assert ran
    assert len(ran) + len(refused) == 4, said
    assert gpu.peak() <= limit


def test_while_it_runs_account_and_ledger_agree(gpu: StubServer, env: Env, runtime: Path) -> None:
    with Started(limited(GIB, benchmark()), env(gpu)):
        gpu.wait_until(lambda gpu: gpu.calls()["cuLaunchKernel"] > 100, _DEADLINE)
        pid = stop(gpu)
        (directory,) = (runtime / "hami" / "slices").iterdir()
        (process,) = Account.open(directory / "account").snapshot().processes
        card = gpu.ledger()["cards"][0]
        # Its sizes are odd ones, and the account counts in units of 512 bytes.
        rounded_up = process.memory[0] - card["requested"]["now"]
        assert process.pid == pid
        assert 0 <= rounded_up < 512 * card["allocations"]
        assert process.memory[0] > 256 * MIB
