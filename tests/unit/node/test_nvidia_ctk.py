"""NVIDIA's CDI specification, made by a program that behaves like nvidia-ctk."""

import os
from pathlib import Path

import pytest

from hami_py.errors import StateError
from hami_py.node import nvidia_ctk
from hami_py.node.cdi import NodeCards
from hami_py.node.nvidia_ctk import make_specification

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may change its root")

#: As nvidia-ctk 1.17 writes it to standard output, shortened.
WRITES = """[ "$*" = "cdi generate --device-name-strategy=uuid" ] || exit 9
echo 'level=info msg="Generated CDI spec with version 0.8.0"' >&2
cat <<EOF
---
cdiVersion: 0.8.0
containerEdits:
  env:
  - NVIDIA_VISIBLE_DEVICES=void
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: GPU-a
kind: nvidia.com/gpu
EOF
"""


def program(folder: Path, script: str) -> str:
    path = folder / "nvidia-ctk"
    path.write_text(f"#!/bin/sh\n{script}")
    path.chmod(0o755)
    return str(path)


def test_its_cards_can_be_given_to_containers(tmp_path: Path) -> None:
    made = tmp_path / "state" / "cdi"
    make_specification(program(tmp_path, WRITES), made, node=Path("/"))
    edits = NodeCards([made]).edits(["GPU-a"])
    assert edits.version == "0.8.0"
    assert edits.own["deviceNodes"] == [{"path": "/dev/nvidia0"}]


def test_the_path_of_the_agents_image_need_not_have_chroot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    make_specification(program(tmp_path, WRITES), tmp_path, node=Path("/"))
    assert (tmp_path / "nvidia.yaml").exists()


def test_the_drivers_files_may_be_below_another_directory(tmp_path: Path) -> None:
    heard = program(tmp_path, 'printf "%s\n" "$@" > "$0.arguments"')
    make_specification(heard, tmp_path, "/run/nvidia/driver", node=Path("/"))
    assert "--driver-root=/run/nvidia/driver" in Path(f"{heard}.arguments").read_text().split()


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo one >&2; echo 'no driver' >&2; exit 1", "no driver"),
        ("exit 3", "exit code 3"),
        ("exec sleep 60", "timed out"),
    ],
)
def test_a_failure_says_why_and_keeps_the_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, why: str
) -> None:
    make_specification(program(tmp_path, WRITES), tmp_path, node=Path("/"))
    monkeypatch.setattr(nvidia_ctk, "_DEADLINE_S", 0.5 if "sleep" in script else 30.0)
    with pytest.raises(StateError, match=why):
        make_specification(program(tmp_path, script), tmp_path, node=Path("/"))
    assert NodeCards([tmp_path]).missing(["GPU-a"]) == []


def test_a_node_without_the_program(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="nowhere cdi generate on the node"):
        make_specification("/nowhere", tmp_path, node=Path("/"))
