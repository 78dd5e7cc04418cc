"""The doctor on a node of Kubernetes."""

import socket
from pathlib import Path

import pytest

from hami_py.cli.doctor import node
from hami_py.errors import HamiError

SETTING = "accept-nvidia-visible-devices-envvar-when-unprivileged"


def test_a_machine_that_is_no_node_passes(tmp_path: Path) -> None:
    for found in (
        node.device_plugins(tmp_path / "none"),
        node.container_toolkit(tmp_path / "config.toml", tmp_path / "none"),
    ):
        assert found == "this machine is no node of Kubernetes"


def test_another_device_plugin_is_found_while_it_listens(tmp_path: Path) -> None:
    none = "no device plugin listens on nvidia-gpu.sock"
    assert node.device_plugins(tmp_path) == none
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "nvidia-gpu.sock"))
        # The socket of one that was killed is left.
        assert node.device_plugins(tmp_path) == none
        listener.listen()
        with pytest.raises(
            HamiError, match=r"another device plugin .* listens on .*/nvidia-gpu\.sock"
        ):
            node.device_plugins(tmp_path)


@pytest.mark.parametrize(
    "text", ["", f"{SETTING} = true\n", f"# {SETTING} = false\n", f'[x]\n{SETTING} = "no"\n']
)
def test_a_toolkit_that_reads_the_variable_of_images_is_reported(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(HamiError, match=f"set {SETTING} = false"):
        node.container_toolkit(file, tmp_path)


def test_a_toolkit_that_does_not_is_fine(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f"disable-require = false\n{SETTING} = false\n")
    assert SETTING in str(node.container_toolkit(file, tmp_path))
    assert "does not exist" in str(node.container_toolkit(tmp_path / "none", tmp_path))
