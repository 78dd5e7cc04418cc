"""The kubelet's record of devices: a real one, and such with our answers."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from cluster import recordings
from hami_py.errors import StateError
from hami_py.node.devices import DeviceRecord
from hami_py.node.paths import Paths
from hami_py.plugin.allocation import answer, slot_of
from hami_py.plugin.api import deviceplugin_pb2 as api
from hami_py.plugin.checkpoint import read_devices, read_records
from unit.plugin.conftest import RESOURCE

LIBRARY = Path("/var/lib/hami/library/2-0123456789abcdef/libvgpu.so")


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths(kubelet=tmp_path)
    paths.device_plugins.mkdir()
    return paths


def encoded(message: api.ContainerAllocateResponse) -> str:
    return base64.b64encode(message.SerializeToString()).decode()


def entry(answer: str | None, **more: Any) -> dict[str, Any]:
    """An entry as the kubelet writes it."""
    return {
        "PodUID": "709d5a94-28d9-4d25-8ae3-2cbfa1dc52c9",
        "ContainerName": "main",
        "ResourceName": RESOURCE,
        "DeviceIDs": {"-1": ["GPU-a::0"]},
        "AllocResp": answer,
        **more,
    }


def write(paths: Paths, *entries: dict[str, Any]) -> None:
    """The record with these entries, otherwise as it was recorded."""
    content = recordings.read("kubelet-checkpoint")
    content["Data"]["PodDeviceEntries"] = list(entries)
    paths.checkpoint.write_text(json.dumps(content))


def test_a_recorded_one_of_another_plugin(paths: Paths) -> None:
    """Its entries are of our resource, but not of our answers."""
    content = recordings.read("kubelet-checkpoint")
    assert {each["ResourceName"] for each in content["Data"]["PodDeviceEntries"]} == {RESOURCE}
    paths.checkpoint.write_text(json.dumps(content))
    assert read_records(paths, RESOURCE) == []


def test_a_recorded_one_with_our_answers(paths: Paths) -> None:
    """An init container and the app that has inherited its device."""
    content = recordings.read("kubelet-checkpoint")
    answers = []
    for each in content["Data"]["PodDeviceEntries"]:
        answers.append(answer(LIBRARY))
        each["AllocResp"] = encoded(answers[-1])
    paths.checkpoint.write_text(json.dumps(content))
    pod = "709d5a94-28d9-4d25-8ae3-2cbfa1dc52c9"
    slots = [slot[0] for each in answers if (slot := slot_of(each))]
    assert read_records(paths, RESOURCE) == [
        DeviceRecord(pod, "init", frozenset(["GPU-a::0"]), slots[0], str(LIBRARY)),
        DeviceRecord(pod, "main", frozenset(["GPU-a::0"]), slots[1], str(LIBRARY)),
    ]
    assert slots[0] != slots[1]


def test_a_container_keeps_the_library_of_an_earlier_agent(paths: Paths) -> None:
    earlier = Path("/var/lib/hami/library/1-00000000000000ff/libvgpu.so")
    write(paths, entry(encoded(answer(earlier))))
    assert [each.library for each in read_records(paths, RESOURCE)] == [str(earlier)]


def test_devices_of_several_numa_nodes(paths: Paths) -> None:
    ids = {"0": ["GPU-a::0", "GPU-a::1"], "1": ["GPU-b::7"]}
    write(paths, entry(encoded(answer(LIBRARY)), DeviceIDs=ids))
    (record,) = read_records(paths, RESOURCE)
    assert record.ids == {"GPU-a::0", "GPU-a::1", "GPU-b::7"}


def test_other_resources_are_ignored(paths: Paths) -> None:
    ours = encoded(answer(LIBRARY))
    write(paths, entry(ours, ResourceName="example.com/nic"), entry(ours))
    assert len(read_records(paths, RESOURCE)) == 1
    assert len(read_records(paths, "example.com/nic")) == 1


def test_the_devices_of_all_resources(paths: Paths) -> None:
    """In the recorded one, an app container has inherited the device of an init container."""
    content = recordings.read("kubelet-checkpoint")
    nic = entry(None, ResourceName="example.com/nic", DeviceIDs={"1": ["b"], "0": ["a"]})
    content["Data"]["PodDeviceEntries"].append(nic)
    content["Data"]["RegisteredDevices"]["example.com/nic"] = None
    paths.checkpoint.write_text(json.dumps(content))
    devices = read_devices(paths)
    pod = nic["PodUID"]
    assert devices.of(pod, "init") == {RESOURCE: ("GPU-a::0",)}
    assert devices.of(pod, "main") == {RESOURCE: ("GPU-a::0",), "example.com/nic": ("a", "b")}
    assert devices.of(pod, "other") == devices.of("other", "main") == {}
    assert len(devices.registered[RESOURCE]) == 8
    assert devices.registered["example.com/nic"] == ()


@pytest.mark.parametrize(
    "written",
    [None, "", "!", "AAA", "bm90IGEgbWVzc2FnZQ==", "é", "Cgdub3QgYSBt"],
)
def test_an_answer_that_cannot_be_read_is_not_ours(paths: Paths, written: str | None) -> None:
    write(paths, entry(written), entry(encoded(answer(LIBRARY)), ContainerName="ours"))
    assert [each.container for each in read_records(paths, RESOURCE)] == ["ours"]


@pytest.mark.parametrize("entries", [None, []])
def test_no_entries(paths: Paths, entries: Any) -> None:
    content = {"Data": {"PodDeviceEntries": entries, "RegisteredDevices": {}}, "Checksum": 1}
    paths.checkpoint.write_text(json.dumps(content))
    assert read_records(paths, RESOURCE) == []


def test_no_devices(paths: Paths) -> None:
    write(paths, entry(encoded(answer(LIBRARY)), DeviceIDs=None))
    assert [each.ids for each in read_records(paths, RESOURCE)] == [frozenset()]


def test_no_record_yet(paths: Paths) -> None:
    """The kubelet writes it when it allocates the first device."""
    assert read_records(paths, RESOURCE) == []
    assert read_devices(paths).registered == {}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"garbage",
        b"\xff\xfe",
        b'{"Data":{"PodDeviceEntries":[{"PodUID":"\xff"}]}}',
        b"[]",
        b"{}",
        b'{"Data":null}',
        b'{"Data":{}}',
        b'{"Data":{"PodDeviceEntries":{}}}',
        b'{"Data":{"PodDeviceEntries":[{"PodUID":"u"}]}}',
        b'{"Data":{"PodDeviceEntries":[],"RegisteredDevices":[]}}',
        # Before Kubernetes 1.20 the IDs were not by NUMA node.
        json.dumps({"Data": {"PodDeviceEntries": [entry("", DeviceIDs=["A::0"])]}}).encode(),
    ],
)
def test_another_format_is_an_error_that_names_the_file(paths: Paths, content: bytes) -> None:
    paths.checkpoint.write_bytes(content)
    for read in (lambda: read_records(paths, RESOURCE), lambda: read_devices(paths)):
        with pytest.raises(StateError, match="kubelet_internal_checkpoint") as raised:
            read()
        assert "check the kubelet's version" in str(raised.value)


def test_every_truncation_is_an_error(paths: Paths) -> None:
    write(paths, entry(encoded(answer(LIBRARY))))
    content = paths.checkpoint.read_bytes()
    for length in range(0, len(content), 7):
        paths.checkpoint.write_bytes(content[:length])
        with pytest.raises(StateError):
            read_records(paths, RESOURCE)


def test_a_record_that_cannot_be_read(paths: Paths) -> None:
    paths.checkpoint.mkdir()
    with pytest.raises(StateError, match="Is a directory"):
        read_records(paths, RESOURCE)
