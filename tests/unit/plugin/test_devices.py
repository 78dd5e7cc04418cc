"""The list of devices that a stream reports."""

from hami_py.plugin.devices import DeviceList

DEADLINE = 30.0


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
