"""Fixtures of these tests: a folder for sockets, a kubelet, a plugin that registers there."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from hami_py.plugin import registration, service
from hami_py.plugin.api import deviceplugin_pb2 as api
from hami_py.plugin.devices import DeviceList
from hami_py.plugin.registration import Registration
from unit.plugin.fake_kubelet import FakeKubelet

RESOURCE = "nvidia.com/gpu"


class Decisions:
    """Handlers that a test writes; they note what they were asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []
        self.error: Exception | None = None

    def prefer(self, available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
        self.asked.append((list(available), list(required), size))
        return sorted(available)[:size]

    def allocate(self, ids: Sequence[str]) -> api.ContainerAllocateResponse:
        self.asked.append(tuple(ids))
        return api.ContainerAllocateResponse(envs={"IDS": ",".join(ids)})

    def pre_start(self, ids: Sequence[str]) -> None:
        self.asked.append(tuple(ids))
        if self.error is not None:
            raise self.error


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path: that of a socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="hami-") as path:
        yield Path(path)


@pytest.fixture
def kubelet(folder: Path) -> Iterator[FakeKubelet]:
    """A kubelet that runs."""
    with FakeKubelet(folder) as kubelet:
        yield kubelet


@pytest.fixture
def decisions() -> Decisions:
    return Decisions()


@pytest.fixture
def devices() -> DeviceList:
    """One healthy device."""
    devices = DeviceList()
    devices.set({"A::0": True})
    return devices


@pytest.fixture
def register(
    folder: Path, devices: DeviceList, decisions: Decisions, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], Registration]]:
    """``register()`` starts a plugin that registers; its pauses are short."""
    monkeypatch.setattr(registration, "_RETRY_S", (0.01, 0.05))
    monkeypatch.setattr(service, "_POLL_S", 0.05)
    with ExitStack() as plugins:

        def start() -> Registration:
            plugin = Registration(folder, RESOURCE, devices, decisions)
            plugin.start()
            plugins.callback(plugin.stop)
            return plugin

        yield start
