"""The plugin is registered whenever the kubelet is there, whatever the kubelet forgets."""

import socket
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from hami_py.plugin import registration
from hami_py.plugin.api import deviceplugin_pb2 as api
from hami_py.plugin.devices import DeviceList
from hami_py.plugin.registration import Registration
from unit.plugin.conftest import RESOURCE
from unit.plugin.fake_kubelet import DEADLINE, FakeKubelet

Register = Callable[[], Registration]


def watched(kubelet: FakeKubelet) -> None:
    kubelet.wait(lambda kubelet: kubelet.devices == {"A::0": "Healthy"}, "the devices are watched")


def reports(wanted: dict[str, str], kubelet: FakeKubelet) -> bool:
    return kubelet.devices == wanted


def again(kubelet: FakeKubelet, before: int) -> None:
    kubelet.wait(
        lambda kubelet: len(kubelet.registered) > before and kubelet.devices, "registered again"
    )


def sockets(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "kubelet.sock")


def test_the_kubelet_learns_resource_socket_and_options(
    kubelet: FakeKubelet, folder: Path, register: Register
) -> None:
    plugin = register()
    watched(kubelet)
    assert plugin.is_registered
    (request,) = kubelet.registered
    assert (request.version, request.resource_name) == ("v1beta1", RESOURCE)
    assert sockets(folder) == [request.endpoint]
    assert kubelet.options == [request.options], "1.20 used those of Register"
    assert request.options.pre_start_required
    assert request.options.get_preferred_allocation_available


def test_changes_of_health_reach_the_kubelet(
    kubelet: FakeKubelet, devices: DeviceList, register: Register
) -> None:
    register()
    watched(kubelet)
    for change in ({"A::0": False}, {"A::0": True, "B::0": False}, {"B::0": True}, {}):
        devices.set(change)
        # Nothing has changed, so nothing is reported.
        devices.set(dict(change))
        wanted = {id: "Healthy" if healthy else "Unhealthy" for id, healthy in change.items()}
        kubelet.wait(partial(reports, wanted), "the health")
    assert len(kubelet.reports) == 5
    assert len(kubelet.registered) == 1


def test_devices_have_no_topology(kubelet: FakeKubelet, register: Register) -> None:
    """With it, a topology manager would offer the devices of one NUMA node only."""
    register()
    watched(kubelet)
    channel, stub = kubelet.plugin()
    with channel:
        stream = stub.ListAndWatch(api.Empty())
        report = next(stream)
        stream.cancel()
    assert [(each.ID, each.HasField("topology")) for each in report.devices] == [("A::0", False)]


def test_a_kubelet_that_starts_later(folder: Path, register: Register) -> None:
    register()
    with FakeKubelet(folder) as kubelet:
        watched(kubelet)


def test_after_a_restart_of_the_kubelet(
    kubelet: FakeKubelet, folder: Path, devices: DeviceList, register: Register
) -> None:
    """It removes all sockets."""
    plugin = register()
    for number in range(3):
        watched(kubelet)
        kubelet.kill()
        kubelet.wait(lambda kubelet: kubelet.devices is None, "the stream has ended")
        devices.set({"A::0": bool(number % 2)})
        devices.set({"A::0": True})
        kubelet.start()
    watched(kubelet)
    assert len(kubelet.registered) == 4
    assert sockets(folder) == [kubelet.registered[-1].endpoint]
    assert plugin.is_registered


def test_a_kubelet_that_was_killed_leaves_its_socket_and_is_awaited_without_a_pause(
    kubelet: FakeKubelet, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It admits running pods a fraction of a second after it opens the socket again."""
    monkeypatch.setattr(registration, "_RETRY_S", (1000.0, 1000.0))
    has_failed = threading.Event()
    monkeypatch.setattr(registration._log, "warning", lambda *unused: has_failed.set())
    register()
    watched(kubelet)
    kubelet.kill(leave_socket=True)
    assert has_failed.wait(DEADLINE)
    kubelet.start()
    again(kubelet, 1)


def test_after_the_end_of_its_stream(
    kubelet: FakeKubelet, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once: pods that the kubelet admits meanwhile fail."""
    monkeypatch.setattr(registration, "_CONFLICT_S", 1000.0)
    register()
    watched(kubelet)
    for before in (1, 2, 3):
        kubelet.end_streams()
        again(kubelet, before)
    watched(kubelet)


def test_after_registrations_that_failed(kubelet: FakeKubelet, register: Register) -> None:
    """A kubelet that still closes the connection to an older plugin refuses the new one."""
    kubelet.refusals = 3
    plugin = register()
    watched(kubelet)
    assert len(kubelet.registered) == 4
    assert plugin.is_registered


def test_after_registrations_without_a_stream(
    kubelet: FakeKubelet, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only an open stream means that the kubelet knows the devices."""
    monkeypatch.setattr(registration, "_REGISTER_S", 0.2)
    kubelet.ignored = 2
    register()
    watched(kubelet)
    assert len(kubelet.registered) == 3


def test_after_a_stream_that_ended_before_the_registration_was_answered(
    kubelet: FakeKubelet, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not wait for a stream that is over."""
    monkeypatch.setattr(registration, "_REGISTER_S", 1000.0)
    kubelet.closed = 2
    register()
    watched(kubelet)
    assert len(kubelet.registered) == 3


def test_after_the_removal_of_its_socket_alone(
    kubelet: FakeKubelet, folder: Path, register: Register
) -> None:
    register()
    watched(kubelet)
    (folder / kubelet.registered[0].endpoint).unlink()
    again(kubelet, 1)
    assert sockets(folder) == [kubelet.registered[-1].endpoint]


def test_a_new_plugin_stays_when_the_old_one_ends(
    kubelet: FakeKubelet, folder: Path, register: Register
) -> None:
    """The kubelet disconnects the new one, because both have the same resource."""
    old = register()
    watched(kubelet)
    new = register()
    kubelet.wait(lambda kubelet: len(kubelet.registered) >= 2, "both are registered")
    old.stop()
    watched(kubelet)
    kubelet.wait(lambda kubelet: new.is_registered, "the new one is watched")
    endpoints = [request.endpoint for request in kubelet.registered]
    assert len({*endpoints}) == 2
    assert sockets(folder) == [endpoints[-1]]


def test_a_plugin_that_is_stopped_leaves_nothing(
    kubelet: FakeKubelet, folder: Path, register: Register
) -> None:
    plugin = register()
    watched(kubelet)
    plugin.stop()
    kubelet.wait(lambda kubelet: kubelet.devices is None, "the stream has ended")
    assert sockets(folder) == []
    assert not plugin.is_registered
    assert len(kubelet.registered) == 1


def test_beside_another_device_plugin_it_is_not_registered(
    kubelet: FakeKubelet, folder: Path, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet would keep the one that registered last."""
    monkeypatch.setattr(registration, "_CONFLICT_S", 0.05)
    plugin = register()
    watched(kubelet)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(folder / "nvidia-gpu.sock"))
        other.listen()
        kubelet.wait(lambda kubelet: kubelet.devices is None, "it is not registered any more")
        why = f"another device plugin (NVIDIA's or HAMi's) listens on {folder}/nvidia-gpu.sock"
        assert plugin.conflict == why
        assert sockets(folder) == ["nvidia-gpu.sock"]
    again(kubelet, 1)
    watched(kubelet)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_plugin_can_be_stopped_while_it_is_not_registered(
    folder: Path, register: Register, is_there: bool
) -> None:
    if is_there:
        (folder / "kubelet.sock").touch()
    register().stop()
    assert sockets(folder) == []
