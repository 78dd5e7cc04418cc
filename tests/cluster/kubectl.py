"""The kubectl of the tests, as cluster-admin; and our own commands."""

import subprocess
import sys
from pathlib import Path

from cluster import binaries
from cluster.control_plane import ControlPlane


def kubectl_command(cluster: ControlPlane) -> list[str | Path]:
    """The beginning of its command line."""
    program = binaries.folder("kubectl") / "kubectl"
    # Without HOME, its cache would be in the working directory.
    cache = ("--cache-dir", cluster.folder / "kubectl")
    return [program, "--kubeconfig", cluster.kubeconfig, *cache]


def kubectl(cluster: ControlPlane, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run it; for tests with `@pytest.mark.programs("kubectl")`."""
    command = [*kubectl_command(cluster), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def hami(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command of ours."""
    command = [sys.executable, "-m", "hami_py", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
