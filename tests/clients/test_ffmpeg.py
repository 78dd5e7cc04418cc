"""Debian's ffmpeg: a C program that looks the driver up by dlsym, with frames on the card."""

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from clients.harness import GIB, MIB, engine, launched, limited, stop
from clients.installed import require
from hami_py._native import Account
from support.running import Run, Started, run
from support.stub import StubServer

# Their packages are large.
pytestmark = pytest.mark.tier("ci")

FRAMES = 50
SOURCE = ["-f", "lavfi", "-i", "testsrc=size=1280x720:rate=25"]
ON_THE_CARD = ["-init_hw_device", "cuda=gpu:0", "-filter_hw_device", "gpu"]
THROUGH_THE_CARD = "format=nv12,hwupload_cuda,hwdownload,format=nv12"
#: The output has passed through the card. Kernels also make each frame smaller: one for brightness
#: and one for colours. The stub computes nothing, so the tests ignore the result of the kernels.
WITH_KERNELS = (
    "format=nv12,hwupload_cuda,split[whole][copy];[whole]hwdownload,format=nv12[out];"
    "[copy]scale_cuda=640:360,hwdownload,format=nv12,nullsink"
)

#: Percent of the card's time.
SHARE = 25

#: Prints the engine time in seconds that the program's slice was billed.
BILLED = "import hami_py; print(hami_py.usage().cards[0].engine_time)"


Env = Callable[[StubServer], dict[str, str]]


@pytest.fixture(autouse=True)
def _installed() -> None:
    require("ffmpeg")


def ffmpeg(*options: str, frames: int = FRAMES, output: str = "-") -> list[str]:
    """Frames of a test picture; their checksums on standard output."""
    quiet = ["ffmpeg", "-nostdin", "-v", "error", "-y"]
    return [*quiet, *options, "-frames:v", str(frames), "-f", "framemd5", output]


def by_processor() -> Run:
    return run(ffmpeg(*SOURCE, "-vf", "format=nv12"), {})


def by_card(*, frames: int = FRAMES, output: str = "-") -> list[str]:
    options = [*ON_THE_CARD, *SOURCE, "-vf", THROUGH_THE_CARD]
    return ffmpeg(*options, frames=frames, output=output)


def test_frames_from_a_limited_card_equal_those_of_the_processor(gpu: StubServer, env: Env) -> None:
    done = run(limited(256 * MIB, by_card()), env(gpu))
    assert (done.code, done.err) == (0, "")
    assert len([line for line in done.lines if not line.startswith("#")]) == FRAMES
    assert done == by_processor()
    assert 0 < gpu.peak() <= 256 * MIB


def test_the_driver_gets_as_many_allocations_as_without_a_limit(
    stub_server: Callable[..., StubServer], env: Env
) -> None:
    bare, held = stub_server(), stub_server()
    run(by_card(), env(bare))
    run(limited(GIB, by_card()), env(held))
    assert held.calls()["cuMemAlloc_v2"] == bare.calls()["cuMemAlloc_v2"] > 0
    assert held.peak() == bare.peak()


def test_under_a_limit_that_does_not_fit_it_ends_with_its_own_error(
    gpu: StubServer, env: Env
) -> None:
    done = run(limited(1 * MIB, by_card()), env(gpu))
    assert done.code > 0
    assert "CUDA_ERROR_OUT_OF_MEMORY: out of memory" in done.err
    assert gpu.peak() <= 1 * MIB


def test_four_of_them_in_one_slice_make_the_same_frames_and_share_its_limit(
    gpu: StubServer, env: Env, tmp_path: Path
) -> None:
    outputs = [tmp_path / f"frames{i}" for i in range(4)]
    commands = " & ".join(" ".join(by_card(output=str(output))) for output in outputs)
    done = run(limited(256 * MIB, ["sh", "-c", f"{commands} & wait"]), env(gpu))
    assert (done.code, done.err) == (0, "")
    expected = by_processor().out
    assert [output.read_text() for output in outputs] == [expected] * 4
    assert gpu.peak() <= 256 * MIB


def with_kernels(gpu: StubServer, env: Env, outputs: list[Path], frame_us: int, mode: str) -> float:
    """One process for each output in one slice with a share: the engine time that it was billed."""
    gpu.control({"command": "kernels", "kernels": {"*": frame_us // 2 // len(outputs)}})
    options = [*ON_THE_CARD, *SOURCE, "-filter_complex", WITH_KERNELS, "-map", "[out]"]
    commands = " & ".join(shlex.join(ffmpeg(*options, output=str(output))) for output in outputs)
    billed = shlex.join([sys.executable, "-c", BILLED])
    share = ["--gpucores", str(SHARE), "--mode", mode]
    command = ["sh", "-c", f"{commands} & wait; {billed}"]
    done = run(limited(256 * MIB, command, *share), env(gpu))
    assert (done.code, done.err) == (0, "")
    assert list(launched(gpu).values()) == [FRAMES * len(outputs)] * 2
    return float(done.out)


@pytest.mark.parametrize("processes", [1, 4], ids=["one", "four"])
@pytest.mark.parametrize("mode", ["hard", "soft"])
def test_with_a_share_it_makes_the_same_frames(
    gpu: StubServer, env: Env, tmp_path: Path, processes: int, mode: str
) -> None:
    """All its launches were made and metered. tests/share tests how much time they get."""
    outputs = [tmp_path / f"frames{i}" for i in range(processes)]
    assert with_kernels(gpu, env, outputs, 6_000, mode) > 0
    assert [output.read_text() for output in outputs] == [by_processor().out] * processes


@pytest.mark.tier("torture")
@pytest.mark.parametrize("processes", [1, 4], ids=["one", "four"])
def test_it_gets_its_share_of_the_time(
    gpu: StubServer, env: Env, tmp_path: Path, processes: int
) -> None:
    with_kernels(gpu, env, [tmp_path / f"frames{i}" for i in range(processes)], 20_000, "hard")
    assert engine(gpu).within(SHARE)
    assert engine(gpu).makes_use_of(SHARE)


def test_while_it_runs_account_and_ledger_agree(gpu: StubServer, env: Env, runtime: Path) -> None:
    endless = by_card(frames=1_000_000, output=os.devnull)
    with Started(limited(GIB, endless), env(gpu)):
        # Its frames are all there, and it goes on with them.
        gpu.wait_until(lambda gpu: gpu.calls()["cuMemcpy2DAsync_v2"] > 100)
        pid = stop(gpu)
        (directory,) = (runtime / "hami" / "slices").iterdir()
        charged = {
            row.pid: row.memory[0]
            for row in Account.open(directory / "account").snapshot().processes
        }
        assert charged == {pid: gpu.held()}
        assert gpu.held() > 0
