"""The health of cards, on stubs whose cards fail in every way and recover."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from hami_py.gpu import health
from support import health as program
from support.running import Started
from support.stub import StubServer

ROOT = Path(__file__).parents[2]

LOST = "GPU is lost"
NO_RESPONSE = {health.ALL: "NVML does not respond"}


class Watched:
    """A program with a ``Health`` for the cards of a stub."""

    def __init__(self, started: Started) -> None:
        self._started = started.wait_for("ready")

    def next(self) -> dict[str, str]:
        """The next state that is published."""
        found: dict[str, str] = json.loads(self._started.next_line())
        return found

    def stop(self) -> None:
        """Stop it, and wait until it has stopped."""
        self._started.tell("stop")
        self._started.wait_for("stopped")


Watch = Callable[..., Watched]


@pytest.fixture
def watch() -> Iterator[Watch]:
    """``watch(server, quiet=1)`` starts such a program."""
    with ExitStack() as started:

        def start(server: StubServer, *, quiet: float, reopen: float = 60, **env: str) -> Watched:
            command = [sys.executable, program.__file__, str(quiet), str(reopen)]
            env = {**server.env, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", **env}
            return Watched(started.enter_context(Started(command, env)))

        yield start


def seen_by_nvml(server: StubServer, calls: int = 1) -> None:
    """Wait until the program reads the events of its cards."""
    name = "nvmlEventSetWait_v2"
    done = server.calls("nvml")[name]
    server.wait_until(lambda server: server.calls("nvml")[name] >= done + calls)


def sessions_of_all_cards(server: StubServer) -> int:
    """How many sessions have registered for the events of three cards."""
    calls = [process["calls"] for process in server.ledger()["processes"]]
    return sum(1 for each in calls if each.get("nvmlDeviceRegisterEvents") == 3)


def test_a_lost_card_is_unhealthy_until_it_is_back(
    stub_server: Callable[..., StubServer], watch: Watch
) -> None:
    server = stub_server("a100,t4,a100-mig-1g,gb10")
    watched = watch(server, quiet=0)
    seen_by_nvml(server)
    for card, uuid in enumerate(server.uuids()):
        server.control({"command": "lose", "card": card})
        assert watched.next() == {uuid: LOST}
        server.control({"command": "restore", "card": card})
        assert watched.next() == {}


def test_a_card_that_is_lost_from_the_start_is_found_when_it_is_back(
    stub_server: Callable[..., StubServer], watch: Watch
) -> None:
    server = stub_server("a100,a100,a100")
    first, second, third = server.uuids()
    server.control({"command": "lose", "card": 0})
    watched = watch(server, quiet=60, reopen=0.1)
    seen_by_nvml(server)
    server.control({"command": "lose", "card": 2})
    assert watched.next() == {third: LOST}
    server.control({"command": "restore", "card": 2})
    assert watched.next() == {}
    server.control({"command": "restore", "card": 0})
    # A session with events of all three cards.
    server.wait_until(lambda server: sessions_of_all_cards(server) > 0)
    server.control({"command": "lose", "card": 0})
    assert watched.next() == {first: LOST}
    server.control({"command": "lose", "card": 1})
    assert watched.next() == {first: LOST, second: LOST}


def test_a_card_that_has_left_the_list_is_unhealthy_until_it_is_listed(
    stub_server: Callable[..., StubServer], watch: Watch, tmp_path: Path
) -> None:
    server = stub_server("a100,a100")
    nodes = [tmp_path / f"nvidia{index}" for index in range(2)]
    for node in nodes:
        node.touch()
    watched = watch(server, quiet=60, reopen=0.1, STUB_GPU_DEVICES=str(tmp_path))
    seen_by_nvml(server)
    nodes[1].unlink()
    server.control({"command": "lose", "card": 1})
    uuid = server.uuids()[1]
    assert [watched.next(), watched.next()] == [{uuid: LOST}, {uuid: health.NOT_LISTED}]
    server.control({"command": "restore", "card": 1})
    nodes[1].touch()
    assert watched.next() == {}
    # It has events again.
    server.control({"command": "xid", "card": 1, "xid": 79})
    assert watched.next() == {uuid: "XID error 79"}


def test_a_card_recovers_from_a_critical_xid_after_quiet_seconds(
    gpu: StubServer, watch: Watch
) -> None:
    (uuid,) = gpu.uuids()
    watched = watch(gpu, quiet=1)
    seen_by_nvml(gpu)
    gpu.control({"command": "xid", "card": 0, "xid": 79})
    assert watched.next() == {uuid: "XID error 79"}
    assert watched.next() == {}


def test_the_quiet_seconds_begin_again_with_each_critical_xid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, errors = 100.0, [79]
    monkeypatch.setattr(health.time, "monotonic", lambda: now)
    card: Any = SimpleNamespace(xids=lambda: errors, remap_failed=lambda: False)
    watched = health.Health(lambda: None, quiet=60)
    watched._read_xids("GPU", card)
    now, errors = 150.0, [94, 13]
    watched._read_xids("GPU", card)
    now = 209.0
    assert watched._after_xid("GPU", card) == "XID error 94"
    now = 210.0
    assert watched._after_xid("GPU", card) is None


def test_the_xids_of_applications_leave_a_card_healthy(
    stub_server: Callable[..., StubServer], watch: Watch
) -> None:
    server = stub_server("a100,a100")
    watched = watch(server, quiet=60)
    seen_by_nvml(server)
    for xid in health.APPLICATION_XIDS:
        server.control({"command": "xid", "card": 0, "xid": xid})
    seen_by_nvml(server, calls=len(health.APPLICATION_XIDS) + 4)
    server.control({"command": "xid", "card": 1, "xid": 79})
    assert watched.next() == {server.uuids()[1]: "XID error 79"}


def test_a_card_does_not_recover_while_a_row_is_not_remapped(gpu: StubServer, watch: Watch) -> None:
    (uuid,) = gpu.uuids()
    watched = watch(gpu, quiet=0)
    seen_by_nvml(gpu)
    gpu.control({"command": "remap-failed", "card": 0, "failed": True})
    gpu.control({"command": "xid", "card": 0, "xid": 64})
    reason = "XID error 64, and a row of its memory could not be remapped"
    assert watched.next() == {uuid: reason}
    gpu.control({"command": "remap-failed", "card": 0, "failed": False})
    assert watched.next() == {}


def test_a_card_with_an_xid_does_not_recover_while_it_is_lost(
    gpu: StubServer, watch: Watch
) -> None:
    (uuid,) = gpu.uuids()
    watched = watch(gpu, quiet=0)
    seen_by_nvml(gpu)
    gpu.control({"command": "remap-failed", "card": 0, "failed": True})
    gpu.control({"command": "lose", "card": 0})
    gpu.control({"command": "xid", "card": 0, "xid": 79})
    assert watched.next() == {uuid: LOST}
    gpu.control({"command": "restore", "card": 0})
    assert watched.next()[uuid].startswith("XID error 79, ")


def test_a_card_that_is_back_gets_events_again(gpu: StubServer, watch: Watch) -> None:
    (uuid,) = gpu.uuids()
    watched = watch(gpu, quiet=60)
    seen_by_nvml(gpu)
    gpu.control({"command": "lose", "card": 0})
    assert watched.next() == {uuid: LOST}
    gpu.control({"command": "restore", "card": 0})
    assert watched.next() == {}
    gpu.control({"command": "xid", "card": 0, "xid": 79})
    assert watched.next() == {uuid: "XID error 79"}


@pytest.mark.parametrize("symbol", ["nvmlDeviceGetMemoryInfo", "nvmlEventSetWait_v2"])
def test_all_cards_are_unhealthy_while_nvml_hangs(
    gpu: StubServer, watch: Watch, symbol: str
) -> None:
    watched = watch(gpu, quiet=60)
    seen_by_nvml(gpu)
    gpu.control({"command": "slow", "symbol": symbol, "us": 600_000_000})
    assert watched.next() == NO_RESPONSE
    gpu.control({"command": "slow", "symbol": symbol, "us": 0})
    assert watched.next() == {}


def test_it_stops_while_nvml_hangs(gpu: StubServer, watch: Watch) -> None:
    """It does not wait for the end of the hang, which is in ten minutes."""
    watched = watch(gpu, quiet=60)
    seen_by_nvml(gpu)
    gpu.control({"command": "slow", "symbol": "nvmlDeviceGetMemoryInfo", "us": 600_000_000})
    calls = gpu.calls("nvml")["nvmlDeviceGetMemoryInfo"]
    gpu.wait_until(lambda gpu: gpu.calls("nvml")["nvmlDeviceGetMemoryInfo"] > calls)
    watched.stop()


def test_stopped_it_has_closed_its_session_and_had_no_context(
    gpu: StubServer, watch: Watch
) -> None:
    watched = watch(gpu, quiet=60)
    seen_by_nvml(gpu)
    watched.stop()
    gpu.wait_until(lambda gpu: gpu.ledger()["processes"][0]["state"] == "freed")
    (process,) = gpu.ledger()["processes"]
    assert process["library"] == "nvml"
    assert gpu.ledger()["cards"][0]["context"]["peak"] == 0


def test_all_cards_are_unhealthy_until_there_is_a_driver(
    gpu: StubServer, watch: Watch, tmp_path: Path
) -> None:
    socket = tmp_path / "later"
    watched = watch(gpu, quiet=60, STUB_GPU_SOCKET=str(socket))
    (reason,) = watched.next().items()
    assert reason[0] == health.ALL and "Driver Not Loaded" in reason[1]
    socket.symlink_to(gpu.client_socket)
    assert watched.next() == {}


def test_an_xid_of_a_mig_slice_concerns_that_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a made-up NVML: the stub's slices have no GPU."""
    instances = {"slice": (3, 0), "other": (4, 0)}
    monkeypatch.setattr(pynvml, "nvmlDeviceGetGpuInstanceId", lambda card: instances[card][0])
    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeInstanceId", lambda card: instances[card][1])
    registered = []
    monkeypatch.setattr(pynvml, "nvmlEventSetCreate", lambda: [])
    monkeypatch.setattr(
        pynvml, "nvmlDeviceRegisterEvents", lambda gpu, kind, queue: registered.append(gpu)
    )
    cards = [health._Card("gpu", name, is_mig=True) for name in instances]
    assert registered == ["gpu", "gpu"]

    def events() -> Iterator[SimpleNamespace]:
        for xid, gpu_instance, instance in [(48, 3, 0), (94, 4, 0), (79, 2**32 - 1, 2**32 - 1)]:
            yield SimpleNamespace(
                eventData=xid, gpuInstanceId=gpu_instance, computeInstanceId=instance
            )

    for card, expected in zip(cards, [[48, 79], [94, 79]], strict=True):
        left = events()

        def wait(queue: object, timeout: int, left: Iterator[SimpleNamespace] = left) -> object:
            event = next(left, None)
            if event is None:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
            return event

        monkeypatch.setattr(pynvml, "nvmlEventSetWait_v2", wait)
        assert card.xids() == expected
