"""The answer to Allocate: a fresh CDI device, and nothing else that reaches the container."""

import re
from pathlib import Path

from hami_py.plugin.allocation import answer, slot_of
from hami_py.plugin.api import deviceplugin_pb2 as api

LIBRARY = Path("/var/lib/hami/library/2-0123456789abcdef/libvgpu.so")


def test_it_names_a_device_that_is_defined_later() -> None:
    found = answer(LIBRARY)
    slot, recorded = slot_of(found) or ("", "")
    assert re.fullmatch(r"[0-9a-f]{16}", slot)
    assert recorded == str(LIBRARY)
    assert [each.name for each in found.cdi_devices] == [f"hami.io/card={slot}"]
    # For a container runtime that ignores CDI devices.
    assert found.envs == {"NVIDIA_VISIBLE_DEVICES": "void"}
    assert not (found.mounts or found.devices)


def test_no_two_containers_have_the_same_device() -> None:
    names = [answer(LIBRARY).cdi_devices[0].name for _ in range(1000)]
    assert len({*names}) == 1000


def test_annotations_have_valid_keys() -> None:
    """A name has at most 63 characters."""
    for key in answer(LIBRARY).annotations:
        prefix, _, name = key.partition("/")
        assert prefix == "hami.io"
        assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", name)


def test_the_answer_of_another_plugin_has_no_slot() -> None:
    for found in (
        api.ContainerAllocateResponse(),
        api.ContainerAllocateResponse(envs={"NVIDIA_VISIBLE_DEVICES": "GPU-a"}),
        # An older agent's: it names the card that the kubelet has picked.
        api.ContainerAllocateResponse(
            annotations={"hami.io/slot": "0123"},
            cdi_devices=[api.CDIDevice(name="nvidia.com/gpu=GPU-a")],
        ),
        api.ContainerAllocateResponse(cdi_devices=[api.CDIDevice(name="nvidia.com/gpu=GPU-a")]),
    ):
        assert slot_of(found) is None
