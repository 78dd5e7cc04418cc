"""The CDI specification of a container, from NVIDIA's specification of the node's cards."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from hami_py.errors import StateError
from hami_py.node import cdi
from hami_py.node.paths import Paths
from hami_py.node.slot import Bind

#: In the shape that nvidia-ctk 1.17 writes, with fewer files.
NVIDIA: dict[str, Any] = {
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/gpu",
    "devices": [
        {
            "name": name,
            "containerEdits": {
                "deviceNodes": [{"path": f"/dev/nvidia{minor}"}],
                "hooks": [{"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook"}],
            },
        }
        for minor, name in enumerate(("GPU-a", "GPU-b"))
    ],
    "containerEdits": {
        "env": ["NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_DRIVER_CAPABILITIES=all"],
        "deviceNodes": [{"path": "/dev/nvidiactl"}],
        "mounts": [{"hostPath": "/lib/libcuda.so.1", "containerPath": "/lib/libcuda.so.1"}],
    },
}

HOOK = Path("/var/lib/hami/library/x/hami-hook")

BIND = Bind(Path("/run/hami/slices/s/limits"), Path("/usr/local/hami/limits"), read_only=True)

ALONE = "NVIDIA_VISIBLE_DEVICES=void"

NO_MPS = "CUDA_MPS_PIPE_DIRECTORY=/nonexistent"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    directories = (tmp_path / "etc", tmp_path / "run")
    for each in directories:
        each.mkdir()
    return Paths(cdi=directories)


@pytest.fixture
def cards(paths: Paths) -> cdi.NodeCards:
    return cdi.NodeCards(paths.cdi)


@pytest.fixture
def containers(paths: Paths) -> cdi.ContainerDevices:
    return cdi.ContainerDevices(paths.cdi[-1], HOOK, paths.hook_socket)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of the monotonic clock."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def defined(paths: Paths) -> dict[str, Any]:
    """What the runtime adds to a container, by its device: CDI adds lists to lists."""
    specification = json.loads((paths.cdi[-1] / "hami.json").read_text())
    assert specification["kind"] == "hami.io/card"
    return {
        device["name"]: {
            key: [
                *specification["containerEdits"].get(key, ()),
                *device["containerEdits"].get(key, ()),
            ]
            for key in specification["containerEdits"].keys() | device["containerEdits"].keys()
        }
        for device in specification["devices"]
    }


def put(directory: Path, name: str, specification: Any) -> Path:
    text = json.dumps if name.endswith(".json") else yaml.safe_dump
    path = directory / name
    path.write_text(text(specification))
    return path


def renamed(name: str, **edits: Any) -> dict[str, Any]:
    """A specification of one card."""
    return {**NVIDIA, "devices": [{"name": name, "containerEdits": edits}]}


@pytest.mark.parametrize("name", ["nvidia.yaml", "nvidia.json"])
def test_a_container_gets_what_nvidia_s_specification_has_for_its_cards(
    paths: Paths, cards: cdi.NodeCards, containers: cdi.ContainerDevices, name: str
) -> None:
    put(paths.cdi[0], name, NVIDIA)
    containers.define("s", cards.edits(["GPU-b", "GPU-a"]), [BIND])
    assert json.loads((paths.cdi[1] / "hami.json").read_text()) == {
        "cdiVersion": "0.6.0",
        "kind": "hami.io/card",
        "containerEdits": NVIDIA["containerEdits"],
        "devices": [
            {
                "name": "s",
                "containerEdits": {
                    "env": [NO_MPS, ALONE],
                    "deviceNodes": [{"path": "/dev/nvidia1"}, {"path": "/dev/nvidia0"}],
                    "hooks": [
                        # Both cards have it, and it runs once.
                        {"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook"},
                        # Behind it, because it sees what the others have made.
                        {
                            "hookName": "createContainer",
                            "path": str(HOOK),
                            "args": ["hami-hook", "ro", str(BIND.source), str(BIND.target)],
                            "timeout": 60,
                        },
                    ],
                    "mounts": [
                        {
                            "hostPath": str(BIND.source),
                            "containerPath": str(BIND.target),
                            "options": ["ro", "nosuid", "nodev", "bind"],
                        },
                    ],
                },
            }
        ],
    }


def test_no_hook_reads_what_a_container_asks_of_the_driver(
    paths: Paths, cards: cdi.NodeCards
) -> None:
    """Of NVIDIA's toolkit 1.20: it would guarantee a container memory of others."""
    hooks = [
        {"hookName": "createRuntime", "path": "/usr/bin/nvidia-cdi-hook", "args": args}
        for args in (
            ["nvidia-cdi-hook", "update-ldcache"],
            ["nvidia-cdi-hook", "apply-cuda-memory-limits", "--gpu-id", "GPU-a"],
            ["nvidia-ctk", "hook", "apply-cuda-memory-limits", "--gpu-id", "GPU-a"],
        )
    ]
    put(paths.cdi[0], "nvidia.json", renamed("GPU-a", hooks=hooks))
    assert cards.edits(["GPU-a"]).own["hooks"] == hooks[:1]


def test_no_limited_container_is_a_client_of_an_mps_daemon_on_the_node(
    paths: Paths, cards: cdi.NodeCards
) -> None:
    """NVIDIA's toolkit adds the daemon's pipes to the edits for all cards, if they are there."""
    paths_there = ("/tmp/nvidia-mps", "/run/nvidia-persistenced/socket")  # noqa: S108
    mounts = [{"hostPath": path, "containerPath": path} for path in paths_there]
    edits = {**NVIDIA["containerEdits"], "mounts": mounts}
    put(paths.cdi[0], "nvidia.json", {**NVIDIA, "containerEdits": edits})
    found = cards.edits(["GPU-a"])
    assert found.common == {**edits, "mounts": mounts[1:]}
    assert NO_MPS in found.own["env"]
    with_mps = cards.edits(["GPU-a"], allows_mps=True)
    assert with_mps.common == edits
    assert "CUDA_MPS" not in str(with_mps.own)


def test_containers_that_start_at_once_have_a_device_each(
    paths: Paths, cards: cdi.NodeCards, containers: cdi.ContainerDevices
) -> None:
    """Also with cards of several specifications, which differ in what they have for all cards."""
    for_all = {"env": ["A=1", ALONE]}
    put(paths.cdi[0], "a.yaml", {**NVIDIA, "containerEdits": for_all})
    other = renamed("GPU-c", env=["C=1", "NVIDIA_VISIBLE_DEVICES=all"])
    put(paths.cdi[0], "b.yaml", {**other, "containerEdits": None})
    expected = {}
    for name, of, variables in (
        ("first", ["GPU-a"], {"A": "1"}),
        ("second", ["GPU-b"], {"A": "1"}),
        ("third", ["GPU-c"], {"C": "1"}),
        ("fourth", ["GPU-a", "GPU-c"], {"A": "1", "C": "1"}),
    ):
        containers.define(name, cards.edits(of), [BIND])
        more = dict([NO_MPS.split("=")])
        expected[name] = {**variables, **more, "NVIDIA_VISIBLE_DEVICES": "void"}
        # Of a variable the last value counts.
        found = {
            name: dict(each.split("=") for each in edits["env"])
            for name, edits in defined(paths).items()
        }
        assert found == expected


def test_a_device_is_defined_anew(
    paths: Paths, cards: cdi.NodeCards, containers: cdi.ContainerDevices
) -> None:
    put(paths.cdi[0], "nvidia.yaml", NVIDIA)
    for card in ("GPU-a", "GPU-b"):
        containers.define("s", cards.edits([card]), [])
    assert defined(paths)["s"]["deviceNodes"][1:] == [{"path": "/dev/nvidia1"}]


def test_a_newer_version_of_cdi_is_kept(paths: Paths, cards: cdi.NodeCards) -> None:
    for version in ("0.10.0", "v1.1.0"):
        put(paths.cdi[0], "nvidia.yaml", {**NVIDIA, "cdiVersion": version})
        assert cards.edits(["GPU-a"]).version == version


def test_a_later_directory_counts_more(paths: Paths, cards: cdi.NodeCards) -> None:
    put(paths.cdi[0], "nvidia.yaml", renamed("GPU-a", env=["FROM=etc"]))
    put(paths.cdi[1], "nvidia.yaml", renamed("GPU-a", env=["FROM=run"]))
    assert cards.edits(["GPU-a"]).own["env"] == ["FROM=run", NO_MPS, ALONE]


def test_a_card_that_is_defined_twice_is_none(paths: Paths, cards: cdi.NodeCards) -> None:
    """The container runtime calls it a conflict."""
    put(paths.cdi[0], "a.yaml", NVIDIA)
    put(paths.cdi[1], "a.yaml", renamed("GPU-a"))
    put(paths.cdi[1], "b.yaml", renamed("GPU-a"))
    assert cards.missing(["GPU-a", "GPU-b"]) == ["GPU-a"]


@pytest.mark.parametrize("edits", [None, {}, {"env": None, "mounts": None}])
def test_edits_without_a_value_are_none(
    paths: Paths,
    cards: cdi.NodeCards,
    containers: cdi.ContainerDevices,
    edits: dict[str, None] | None,
) -> None:
    devices = [{"name": "GPU-a", "containerEdits": edits}]
    put(paths.cdi[0], "a.yaml", {**NVIDIA, "devices": devices, "containerEdits": edits})
    containers.define("s", cards.edits(["GPU-a"]), [])
    edits = defined(paths)["s"]
    assert (edits.pop("env"), edits.keys()) == ([NO_MPS, ALONE], {"hooks"})


def test_changes_on_disk_are_seen(paths: Paths, cards: cdi.NodeCards) -> None:
    assert cards.missing(["GPU-a"]) == ["GPU-a"]
    written = put(paths.cdi[1], "nvidia.yaml", renamed("GPU-a", env=["DRIVER=1"]))
    assert cards.missing(["GPU-a", "GPU-x"]) == ["GPU-x"]
    put(paths.cdi[1], "nvidia.yaml", renamed("GPU-a", env=["DRIVER=22"]))
    assert cards.edits(["GPU-a"]).own["env"] == ["DRIVER=22", NO_MPS, ALONE]
    written.unlink()
    with pytest.raises(StateError, match=r"no CDI specification in .*=GPU-a; ") as refused:
        cards.edits(["GPU-a"])
    assert f"--output={Paths().cdi[0]}/" in refused.value.fix, "it survives a reboot"


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", "\xff", "kind: 1", "kind: nvidia.com/gpu", "kind: other.com/gpu"],
)
def test_what_cannot_be_read_hides_nothing(
    paths: Paths, cards: cdi.NodeCards, content: str
) -> None:
    put(paths.cdi[0], "nvidia.yaml", NVIDIA)
    for directory in paths.cdi:
        for name in ("a.json", "a.yaml", "b.txt"):
            (directory / name).write_bytes(content.encode("latin-1"))
        (directory / "c.json").mkdir()
        (directory / "d.json").symlink_to("nowhere")
    assert cards.missing(["GPU-a", "GPU-b"]) == []


def test_a_missing_directory_has_no_cards(tmp_path: Path) -> None:
    assert cdi.NodeCards([tmp_path / "none"]).missing(["GPU-a"]) == ["GPU-a"]


def test_a_container_that_was_created_is_forgotten(
    paths: Paths, cards: cdi.NodeCards, containers: cdi.ContainerDevices, clock: list[float]
) -> None:
    """The runtime reads all devices after each change."""
    put(paths.cdi[0], "nvidia.json", NVIDIA)
    for name in ("one", "two", "three"):
        containers.define(name, cards.edits(["GPU-a"]), [])
        clock[0] += 15
    assert defined(paths).keys() == {"two", "three"}
    containers.remove_unneeded()
    assert defined(paths).keys() == {"two", "three"}
    clock[0] += 15
    containers.remove_unneeded()
    assert list(paths.cdi[1].iterdir()) == []
    containers.define("four", cards.edits(["GPU-a"]), [])
    assert defined(paths).keys() == {"four"}


def test_what_an_earlier_agent_has_left_is_removed_later(
    paths: Paths, cards: cdi.NodeCards, containers: cdi.ContainerDevices, clock: list[float]
) -> None:
    """Its containers may not have been created yet."""
    put(paths.cdi[1], "nvidia.json", NVIDIA)
    containers.define("one", cards.edits(["GPU-a"]), [])
    again = cdi.ContainerDevices(paths.cdi[1], HOOK, paths.hook_socket)
    again.remove_unneeded()
    assert defined(paths).keys() == {"one"}
    clock[0] += 30
    again.remove_unneeded()
    assert [each.name for each in paths.cdi[1].iterdir()] == ["nvidia.json"]


def test_a_specification_that_cannot_be_written_says_why(
    paths: Paths, cards: cdi.NodeCards, containers: cdi.ContainerDevices
) -> None:
    put(paths.cdi[0], "nvidia.json", NVIDIA)
    paths.cdi[1].rmdir()
    paths.cdi[1].touch()
    with pytest.raises(StateError, match=r"the CDI specification .*hami\.json"):
        containers.define("s", cards.edits(["GPU-a"]), [])
