"""The doctor on a node of Kubernetes."""

import re
import socket
from pathlib import Path

import pytest

from hami_py.cli.doctor import gpu_operator, node
from hami_py.errors import HamiError, InvalidValue


def test_a_machine_that_is_no_node_passes(tmp_path: Path) -> None:
    for found in (
        node.device_plugins(tmp_path / "none"),
        node.container_toolkit(tmp_path, tmp_path / "none"),
    ):
        assert found == "this machine is no node of Kubernetes"


@pytest.mark.parametrize("name", ["nvidia-gpu.sock", "nvidia-mig-1g.5gb.sock"])
def test_another_device_plugin_is_found_while_it_listens(tmp_path: Path, name: str) -> None:
    none = "no device plugin listens on nvidia-gpu.sock or nvidia-mig-*.sock"
    assert node.device_plugins(tmp_path) == none
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / name))
        # The socket of one that was killed is left.
        assert node.device_plugins(tmp_path) == none
        listener.listen()
        with pytest.raises(
            HamiError, match=rf"another device plugin .* listens on .*/{re.escape(name)}"
        ):
            node.device_plugins(tmp_path)


def test_where_others_allocate_another_device_plugin_may_serve_the_cards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = {"hami.io/owner": "others"}
    monkeypatch.setattr(gpu_operator, "labels_of", lambda node: labels)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "nvidia-gpu.sock"))
        listener.listen()
        found = node.device_plugins(tmp_path, "gpu-a")
        assert str(found).startswith("others allocate the cards of this node")
        labels["hami.io/owner"] = "nobody"
        with pytest.raises(InvalidValue, match="write hami or others"):
            node.device_plugins(tmp_path, "gpu-a")


def test_without_nvidia_s_runtime_no_variable_gives_cards(tmp_path: Path) -> None:
    """tests/cluster/test_toolkit.py has the files that NVIDIA's toolkit writes."""
    assert "does not exist" in str(node.container_toolkit(tmp_path, tmp_path))


def test_an_mps_daemon_is_named(tmp_path: Path) -> None:
    for pid, command in ((7, "python3"), (30, "nvidia-cuda-mps"), (9, "nvidia-cuda-mps")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "comm").write_text(f"{command}\n")
    found, fix = node.mps_daemon(tmp_path)
    assert found == "a daemon runs: process 9, 30"
    assert "quit | nvidia-cuda-mps-control" in fix
    assert node.mps_daemon(tmp_path / "7") == "no daemon runs"


#: As NVIDIA's GPU Operator and its GPU feature discovery label a node.
OPERATED = {
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB",
    "nvidia.com/gpu.deploy.container-toolkit": "true",
    "nvidia.com/gpu.deploy.device-plugin": "true",
    "nvidia.com/gpu.deploy.driver": "true",
}

LABEL = "kubectl label --overwrite node {} nvidia.com/gpu.deploy.device-plugin=false"


def test_the_commands_for_the_operator_are_those_of_this_node() -> None:
    said = gpu_operator.how_to_stop("gpu-a", OPERATED)
    assert f"`{LABEL.format('gpu-a')}`" in said
    assert """'{"spec":{"devicePlugin":{"enabled":false}}}'""" in said
    assert "devicePlugin.enabled=false" in said
    assert "DaemonSet" not in said


def test_without_the_operator_its_commands_are_not_named() -> None:
    # Feature discovery also runs without the Operator.
    said = gpu_operator.how_to_stop("gpu-a", {"nvidia.com/gpu.present": "true"})
    assert "exclude gpu-a" in said
    assert "kubectl" not in said


def test_outside_of_a_pod_both_ways_are_named() -> None:
    assert gpu_operator.labels_of(None) is None
    said = gpu_operator.how_to_stop(None, None)
    assert f"`{LABEL.format('NODE')}`" in said
    assert "exclude NODE" in said
