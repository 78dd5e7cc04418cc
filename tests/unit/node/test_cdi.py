"""The CDI specification of a container, from NVIDIA's specification of the node's cards."""

import json
import os
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

BIND = Bind(Path("/run/hami/slices/s/limits"), Path("/usr/local/hami/limits"), read_only=True)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    directories = (tmp_path / "etc", tmp_path / "run")
    for each in directories:
        each.mkdir()
    return Paths(cdi=directories)


@pytest.fixture
def cards(paths: Paths) -> cdi.NodeCards:
    return cdi.NodeCards(paths.cdi)


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
    paths: Paths, cards: cdi.NodeCards, name: str
) -> None:
    put(paths.cdi[0], name, NVIDIA)
    cdi.write(paths, "s", cards.edits(["GPU-b", "GPU-a"]), [BIND])
    assert json.loads((paths.cdi[1] / "hami-s.json").read_text()) == {
        "cdiVersion": "0.6.0",
        "kind": "hami.io/card",
        "devices": [
            {
                "name": "s",
                "containerEdits": {
                    # Last, because the last value of a variable counts.
                    "env": ["NVIDIA_DRIVER_CAPABILITIES=all", "NVIDIA_VISIBLE_DEVICES=void"],
                    "deviceNodes": [
                        {"path": "/dev/nvidiactl"},
                        {"path": "/dev/nvidia1"},
                        {"path": "/dev/nvidia0"},
                    ],
                    # Both cards have it, and it runs once.
                    "hooks": [{"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook"}],
                    "mounts": [
                        *NVIDIA["containerEdits"]["mounts"],
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


def test_a_newer_version_of_cdi_is_kept(paths: Paths, cards: cdi.NodeCards) -> None:
    for version in ("0.10.0", "v1.1.0"):
        put(paths.cdi[0], "nvidia.yaml", {**NVIDIA, "cdiVersion": version})
        assert cards.edits(["GPU-a"])[0] == version


def test_a_later_directory_counts_more(paths: Paths, cards: cdi.NodeCards) -> None:
    put(paths.cdi[0], "nvidia.yaml", renamed("GPU-a", env=["FROM=etc"]))
    put(paths.cdi[1], "nvidia.yaml", renamed("GPU-a", env=["FROM=run"]))
    assert "FROM=run" in cards.edits(["GPU-a"])[1]["env"]


def test_a_card_that_is_defined_twice_is_none(paths: Paths, cards: cdi.NodeCards) -> None:
    """The container runtime calls it a conflict."""
    put(paths.cdi[0], "a.yaml", NVIDIA)
    put(paths.cdi[1], "a.yaml", renamed("GPU-a"))
    put(paths.cdi[1], "b.yaml", renamed("GPU-a"))
    assert cards.missing(["GPU-a", "GPU-b"]) == ["GPU-a"]


@pytest.mark.parametrize("edits", [None, {}, {"env": None, "mounts": None}])
def test_edits_without_a_value_are_none(
    paths: Paths, cards: cdi.NodeCards, edits: dict[str, None] | None
) -> None:
    devices = [{"name": "GPU-a", "containerEdits": edits}]
    put(paths.cdi[0], "a.yaml", {**NVIDIA, "devices": devices, "containerEdits": edits})
    cdi.write(paths, "s", cards.edits(["GPU-a"]), [])
    (device,) = json.loads((paths.cdi[1] / "hami-s.json").read_text())["devices"]
    assert device["containerEdits"]["env"] == ["NVIDIA_VISIBLE_DEVICES=void"]


def test_changes_on_disk_are_seen(paths: Paths, cards: cdi.NodeCards) -> None:
    assert cards.missing(["GPU-a"]) == ["GPU-a"]
    written = put(paths.cdi[1], "nvidia.yaml", renamed("GPU-a", env=["DRIVER=1"]))
    assert cards.missing(["GPU-a", "GPU-x"]) == ["GPU-x"]
    put(paths.cdi[1], "nvidia.yaml", renamed("GPU-a", env=["DRIVER=22"]))
    assert "DRIVER=22" in cards.edits(["GPU-a"])[1]["env"]
    written.unlink()
    with pytest.raises(StateError, match=r"card GPU-a: no CDI specification in .* has a device"):
        cards.edits(["GPU-a"])


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


def test_only_specifications_of_other_containers_are_removed(
    paths: Paths, cards: cdi.NodeCards
) -> None:
    put(paths.cdi[1], "nvidia.json", NVIDIA)
    for slot in ("one", "two"):
        cdi.write(paths, slot, cards.edits(["GPU-a"]), [])
    (paths.cdi[1] / "hami-killed.new").touch()
    cdi.keep(paths, ["one"])
    assert {each.name for each in paths.cdi[1].iterdir()} == {"nvidia.json", "hami-one.json"}


def test_the_specification_of_a_container_that_runs_is_removed(
    paths: Paths, cards: cdi.NodeCards
) -> None:
    """The runtime reads all of them after each change."""
    put(paths.cdi[0], "nvidia.json", NVIDIA)
    cdi.write(paths, "one", cards.edits(["GPU-a"]), [])
    cdi.keep(paths, ["one"])
    (written,) = paths.cdi[1].iterdir()
    long_ago = written.stat().st_mtime - 60
    os.utime(written, (long_ago, long_ago))
    cdi.keep(paths, ["one"])
    assert list(paths.cdi[1].iterdir()) == []


def test_a_specification_that_cannot_be_written_says_why(
    paths: Paths, cards: cdi.NodeCards
) -> None:
    put(paths.cdi[0], "nvidia.json", NVIDIA)
    paths.cdi[1].rmdir()
    paths.cdi[1].touch()
    with pytest.raises(StateError, match="the CDI specification of slot s"):
        cdi.write(paths, "s", cards.edits(["GPU-a"]), [])
