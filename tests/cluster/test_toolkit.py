"""The files that NVIDIA's toolkit writes, as we read them; no node is started."""

import os
import subprocess
from pathlib import Path

import pytest

from cluster import toolkit
from hami_py.cli.doctor import node
from hami_py.errors import HamiError
from support.artifacts import ROOT

pytestmark = [
    # Only root builds the toolkit, with the programs of a node.
    pytest.mark.programs("node", "toolkit"),
    pytest.mark.usefixtures("programs"),
]

SETTING = "accept-nvidia-visible-devices-envvar-when-unprivileged"


def config(file: Path, *arguments: str) -> None:
    """`nvidia-ctk config` writes this file; with `--set`, it changes one that is there."""
    file.parent.mkdir(parents=True, exist_ok=True)
    command = [str(toolkit.program("nvidia-ctk")), "config", f"--config-file={file}", *arguments]
    subprocess.run([*command, f"--output={file}"], check=True, timeout=60, env={**os.environ})


@pytest.mark.parametrize("path", node.TOOLKITS, ids=["package", "operator"])
def test_the_doctor_reports_a_runtime_that_reads_the_variable_of_images(
    tmp_path: Path, path: Path
) -> None:
    """By default, and until the setting of docs/install.md is made in every file."""
    (setting,) = {
        line.split("--set ")[1].split()[0]
        for line in (ROOT / "docs" / "install.md").read_text().splitlines()
        if line.strip().startswith("nvidia-ctk config --set ")
    }
    for each in node.TOOLKITS:
        config(tmp_path / each)
        if each != path:
            config(tmp_path / each, f"--set={setting}")
    for more in ((), (f"--set={SETTING}=true",)):
        config(tmp_path / path, *more)
        with pytest.raises(HamiError, match=f"set {SETTING} = false in /{path}"):
            node.container_toolkit(tmp_path, tmp_path)
    config(tmp_path / path, f"--set={setting}")
    assert node.container_toolkit(tmp_path, tmp_path) == f"{SETTING} = false"
    # Only the setting is one, not a text like it.
    file = tmp_path / path
    file.write_text(file.read_text().replace(f"\n{SETTING}", f"\n#{SETTING}"))
    file.write_text(f"{file.read_text()}\n[other]\n{SETTING} = false\n")
    with pytest.raises(HamiError, match=f"set {SETTING} = false"):
        node.container_toolkit(tmp_path, tmp_path)
