"""Limits that the control plane has put into a container's environment.

The page of the slice records them. A variable with a recorded value sets no limit, so that the page
can raise it while programs run. Any other value is the program's own, and lowers the limit.
"""

import pytest

from hami_py import limits
from hami_py._native import LimitsPage
from preload.test_share_settings import ENDLESS, LAUNCH, WORK, holds_each_share
from support.slices import GIB, MIB, inject
from support.world import Container

MEMORY, SHARE = "CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_SM_LIMIT"


@pytest.fixture
def page(gpu, slice_dir, preload):
    """The page of a slice with 1 GiB of one card; `page.env` is the environment of its programs."""
    directory = slice_dir(dict.fromkeys(gpu.uuids(), GIB))
    return Page(directory, gpu.uuids()[0], preload(gpu, directory))


class Page:
    def __init__(self, directory, uuid, env):
        self.directory, self._uuid, self.env = directory, uuid, env

    def record(self, **values):
        inject(self.directory, self._uuid, **values)

    def resize(self, bytes):
        LimitsPage.open(self.directory / "limits").set_memory_limits({self._uuid: bytes})


def largest(probe, env):
    """The most MiB, of these, that a process with this environment gets at once."""
    slice = probe(env)
    return max(size for size in (0, 256, 512, 1024, 2048) if size == 0 or slice.grants(size))


def test_a_slice_grows_and_shrinks_under_programs_with_injected_limits(page, probe):
    page.record(memory=GIB)
    running = probe({**page.env, MEMORY: "1024m"})
    assert running.grants(1024) and not running.grants(1025)
    page.resize(2 * GIB)
    assert running.grants(2048) and not running.grants(2049)
    page.resize(512 * MIB)
    assert running.grants(512) and not running.grants(513)


@pytest.mark.parametrize(
    ("recorded", "value", "expected"),
    [
        (GIB, "1g", 2048),
        (512 * MIB, "512m", 2048),
        # What a program sets itself.
        (None, "1g", 1024),
        (GIB, "512m", 512),
    ],
)
def test_a_recorded_value_sets_no_limit(page, probe, recorded, value, expected):
    page.record(memory=recorded)
    page.resize(2 * GIB)
    assert largest(probe, {**page.env, MEMORY: value}) == expected


def test_values_are_recorded_for_each_card(stub_server, slice_dir, preload, probe):
    gpu = stub_server("a100,a100")
    directory = slice_dir(dict.fromkeys(gpu.uuids(), 2 * GIB))
    page = Page(directory, gpu.uuids()[1], preload(gpu, directory))
    page.record(memory=GIB)
    one = probe({**page.env, MEMORY: "1g"})
    assert not one.grants(2048, 0) and one.grants(2048, 1)
    other = probe({**page.env, f"{MEMORY}_0": "1g", f"{MEMORY}_1": "1g"})
    assert not other.grants(2048, 0) and other.grants(2048, 1)


def test_python_shows_the_same_limits(page, monkeypatch):
    page.record(memory=GIB, share=30)
    page.resize(2 * GIB)
    monkeypatch.setenv("LD_PRELOAD", page.env["LD_PRELOAD"])
    for value, share, expected in (("1g", "30", (2 * GIB, None)), ("512m", "20", (512 * MIB, 20))):
        monkeypatch.setenv(MEMORY, value)
        monkeypatch.setenv(SHARE, share)
        (card,) = limits().cards
        assert (card.memory, card.share) == expected


@pytest.mark.parametrize("recorded", [True, False])
def test_an_injected_share_keeps_the_fast_path(launcher, gpu, page, recorded):
    """Without a share on the page, no launch is metered, and no thread of ours runs."""
    page.resize(None)
    if recorded:
        page.record(share=30)
    script = launcher(gpu, slice=page.directory, env={SHARE: "30"})
    script.do(*WORK, *LAUNCH)
    assert ("hami-meter" in script.tasks()) is not recorded


def test_a_share_changes_under_a_program_with_an_injected_share(world):
    container = Container("one", [ENDLESS], 30, injected=30)
    holds_each_share(world, container, [30, None, 60, None])
