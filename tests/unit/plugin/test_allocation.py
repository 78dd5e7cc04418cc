"""The answer to Allocate depends on the devices alone, and there is always one."""

import random
import re
from pathlib import Path

import pytest

from hami_py.node.paths import Paths
from hami_py.plugin.allocation import STRATEGIES, Answers, Strategy, slot_of
from hami_py.plugin.api import deviceplugin_pb2 as api

PATHS = Paths()
LIBRARY = Path("/var/lib/hami/library/2-0123456789abcdef/libvgpu.so")

A, B = "GPU-aaaaaaaa-0000-0000-0000-000000000000", "GPU-bbbbbbbb-0000-0000-0000-000000000000"
MIG = "MIG-cccccccc-0000-0000-0000-000000000000"

SLOT = re.compile(r"[0-9a-f]{16}")


def answer(strategy: Strategy, *ids: str) -> api.ContainerAllocateResponse:
    return Answers(PATHS, LIBRARY, strategy).container(ids)


def slot(found: api.ContainerAllocateResponse) -> str:
    name = Path(found.mounts[0].host_path).name
    assert SLOT.fullmatch(name)
    return name


def without_slot(found: api.ContainerAllocateResponse) -> str:
    """The answer as text, with another name of the slot."""
    return str(found).replace(slot(found), "SLOT")


def mounts(found: api.ContainerAllocateResponse) -> list[tuple[str, str, bool]]:
    return [(each.host_path, each.container_path, each.read_only) for each in found.mounts]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_mounts_of_the_slot_come_first_and_in_order(strategy: Strategy) -> None:
    found = answer(strategy, f"{A}::3")
    there = f"/run/hami/slices/{slot(found)}"
    assert mounts(found)[:4] == [
        (there, "/usr/local/hami", True),
        (f"{there}/account", "/usr/local/hami/account", False),
        (str(LIBRARY), "/usr/local/hami/libvgpu.so", True),
        ("/var/lib/hami/library/2-0123456789abcdef/ld.so.preload", "/etc/ld.so.preload", True),
    ]


NAMED: dict[Strategy, dict[str, object]] = {
    "envvar": {"envs": {"NVIDIA_VISIBLE_DEVICES": f"{A},{B}"}},
    "cdi-cri": {
        "envs": {"NVIDIA_VISIBLE_DEVICES": "void"},
        "cdi_devices": [f"nvidia.com/gpu={A}", f"nvidia.com/gpu={B}"],
    },
    "cdi-annotations": {
        "envs": {"NVIDIA_VISIBLE_DEVICES": "void"},
        "annotations": {"cdi.k8s.io/hami_SLOT": f"nvidia.com/gpu={A},nvidia.com/gpu={B}"},
    },
    "volume-mounts": {
        "envs": {"NVIDIA_VISIBLE_DEVICES": "/var/run/nvidia-container-devices"},
        "mounts": [
            ("/dev/null", f"/var/run/nvidia-container-devices/{card}", True) for card in (A, B)
        ],
    },
}
"""How each strategy names the cards:
https://github.com/NVIDIA/k8s-device-plugin#configuration-option-details"""


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("ids", [[f"{B}::0", f"{A}::3"], [f"{A}::3", f"{B}::0", f"{A}::4"]])
def test_each_card_is_named_once(strategy: Strategy, ids: list[str]) -> None:
    found = answer(strategy, *ids)
    name = slot(found)
    named = {
        "envs": dict(found.envs),
        "annotations": {
            key.replace(name, "SLOT"): value
            for key, value in found.annotations.items()
            if value != name
        },
        "cdi_devices": [each.name for each in found.cdi_devices],
        "mounts": mounts(found)[4:],
    }
    assert {key: value for key, value in named.items() if value} == NAMED[strategy]
    assert not found.devices, "device nodes come from the container runtime"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_same_devices_have_the_same_answer_and_another_slot(strategy: Strategy) -> None:
    chance = random.Random(1)  # noqa: S311
    slots = set()
    for _ in range(50):
        cards = chance.sample([A, B, MIG], chance.randint(1, 3))
        ids = [f"{card}::{chance.randrange(32)}" for card in cards]
        first = answer(strategy, *ids)
        second = answer(strategy, *chance.sample(ids, len(ids)))
        other_numbers = answer(strategy, *(f"{card}::99" for card in cards))
        assert without_slot(first) == without_slot(second) == without_slot(other_numbers)
        slots |= {slot(each) for each in (first, second, other_numbers)}
    assert len(slots) == 150


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    "ids", [[], ["GPU-gone::0"], ["no number"], ["::"], ["A::0"] * 3, ["é::0"]]
)
def test_there_is_always_an_answer(strategy: Strategy, ids: list[str]) -> None:
    """An error would fail the pod for good; what is wrong is found before the container starts."""
    found = answer(strategy, *ids)
    assert api.ContainerAllocateResponse.FromString(found.SerializeToString()) == found
    assert slot_of(found) == (slot(found), str(LIBRARY))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_annotations_have_valid_keys(strategy: Strategy) -> None:
    """containerd reads those of CDI; a name has at most 63 characters."""
    for key in answer(strategy, f"{A}::0").annotations:
        prefix, _, name = key.partition("/")
        assert prefix in ("cdi.k8s.io", "hami.io")
        assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", name)


def test_the_answer_of_another_plugin_has_no_slot() -> None:
    for found in (
        api.ContainerAllocateResponse(),
        api.ContainerAllocateResponse(envs={"NVIDIA_VISIBLE_DEVICES": A}),
        api.ContainerAllocateResponse(
            mounts=[api.Mount(host_path="/usr/local/vgpu", container_path="/usr/local/hami")]
        ),
        api.ContainerAllocateResponse(
            mounts=[
                api.Mount(host_path="/run/hami/slices/0123/account", container_path="/a"),
                api.Mount(host_path="/run/hami/slices/", container_path="/usr/local/hami"),
            ]
        ),
    ):
        assert slot_of(found) is None


def test_a_container_whose_library_the_webhook_mounts_has_no_slot() -> None:
    found = Answers(PATHS, LIBRARY, "cdi-cri", mounts_slot=False).container([f"{A}::0"])
    assert not found.mounts
    assert [each.name for each in found.cdi_devices] == [f"nvidia.com/gpu={A}"]
    named = slot_of(found)
    assert named is not None
    assert named[1] == ""
