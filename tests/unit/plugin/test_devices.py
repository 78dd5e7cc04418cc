"""The list of devices that a stream reports."""

import threading

from hami_py.plugin.devices import DeviceList, Devices

DEADLINE = 30.0


def test_the_first_look_returns_at_once() -> None:
    devices = DeviceList()
    devices.set({"A::0": True})
    version, found = devices.wait(-1, DEADLINE)
    assert found == {"A::0": True}
    assert devices.wait(version, 0) == (version, found)


def test_a_change_ends_every_wait() -> None:
    devices = DeviceList()
    version, _ = devices.wait(-1, DEADLINE)
    found: list[Devices] = []
    threads = [
        threading.Thread(target=lambda: found.append(devices.wait(version, DEADLINE)[1]))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    devices.set({"A::0": False})
    for thread in threads:
        thread.join(DEADLINE)
    assert found == [{"A::0": False}] * 3


def test_equal_devices_are_no_change() -> None:
    devices = DeviceList()
    given = {"A::0": True}
    devices.set(given)
    version, _ = devices.wait(-1, DEADLINE)
    devices.set(dict(given))
    assert devices.wait(version, 0)[0] == version
    # The list keeps a copy.
    given["A::0"] = False
    devices.set(given)
    assert devices.wait(version, 0) == (version + 1, {"A::0": False})
