"""Other people's programs on the virtual clock: their work takes exactly as long as the share says.

In tests/clients the same programs run as people run them, on the real clock. Other programs of the
machine disturb that, so those tests measure no share, except in the torture tier.
"""

import shlex

import pytest

import clients.test_ffmpeg as ffmpeg
import clients.test_hashcat as hashcat
from clients.harness import CLIENTS, python
from clients.installed import require
from support.world import Container, Program

#: Fixtures: the folder in which hashcat keeps compiled kernels, and its compiler.
home = hashcat.home
nvrtc = hashcat.nvrtc

#: Launches of a client, and microseconds of each.
_LAUNCHES, _KERNEL_US = 200, 2000

#: Microseconds of the two kernels that ffmpeg launches for a frame.
_FRAME_US = 20_000


def _command(words, output, **variables):
    """A program whose output is kept; without a shell that would wait for it."""
    env = [f"{name}={value}" for name, value in variables.items()]
    exact = shlex.join(["env", *env, *words])
    return Program(("sh", "-c", f"exec {exact} >{shlex.quote(str(output))}"), command=True)


def _span(played):
    """Seconds from the first kernel to the last, in hundredths."""
    busy = [index for index, spent in enumerate(played.history("client")) if spent > 0]
    return (busy[-1] + 1 - busy[0]) / 100


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_library_s_loop_takes_the_time_of_its_share(world, tmp_path, client):
    kernels = {"spin_500us": _KERNEL_US, "*": _KERNEL_US}
    work = python(client.program, "work", "8", "--launches", str(_LAUNCHES))
    program = _command(work, tmp_path / "said")
    played = world(kernels=kernels).play([Container("client", [program], share=30)], 3.0)
    busy = played.busy("client")
    assert sum(played.launched["client"][0].values()) >= _LAUNCHES
    assert busy >= _LAUNCHES * _KERNEL_US / 1e6
    assert 100 * busy / _span(played) == pytest.approx(30, abs=1.0)


@pytest.mark.tier("ci")
def test_ffmpeg_makes_its_frames_in_the_time_of_its_share(world, tmp_path):
    require("ffmpeg")
    frames = tmp_path / "frames"
    options = [*ffmpeg.ON_THE_CARD, *ffmpeg.SOURCE, "-filter_complex", ffmpeg.WITH_KERNELS]
    command = ffmpeg.ffmpeg(*options, "-map", "[out]", output=str(frames))
    program = _command(command, tmp_path / "said")
    each_us = _FRAME_US // 2
    played = world(kernels={"*": each_us}).play([Container("client", [program], share=25)], 8.0)
    assert frames.read_text() == ffmpeg.by_processor().out
    busy = ffmpeg.FRAMES * _FRAME_US / 1e6
    assert played.busy("client") == pytest.approx(busy)
    assert _span(played) == pytest.approx(busy / 0.25, rel=0.04)


@pytest.mark.tier("ci")
def test_hashcat_s_benchmark_has_the_speed_of_its_share(world, artifacts, tmp_path, home, nvrtc):
    """Runs a real program twice, which measures its own speed on the virtual clock."""
    require("hashcat")

    def speed(share):
        said = tmp_path / f"said{share}"
        command = [*hashcat.benchmark(), "--hwmon-disable"]
        paths = f"{artifacts.stub_dir}:{nvrtc}"
        program = _command(command, said, **hashcat.folders(home), LD_LIBRARY_PATH=paths)
        container = Container("client", [program], share=share)
        played = world(kernels=hashcat.KERNELS).play([container], 8.0)
        if share:
            assert 100 * played.busy("client") / _span(played) == pytest.approx(share, abs=1.0)
        return hashcat.speed(said.read_text())

    whole = speed(None)
    assert speed(hashcat.SHARE) / whole == pytest.approx(hashcat.SHARE / 100, abs=0.02)
