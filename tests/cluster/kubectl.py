"""`kubectl`, for tests with `@pytest.mark.programs("kubectl")`."""

import subprocess
from pathlib import Path

from cluster import binaries
from cluster.control_plane import ControlPlane


def kubectl(cluster: ControlPlane, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run it as cluster-admin; returns its output and exit code."""
    program = binaries.folder("kubectl") / "kubectl"
    command = [program, "--kubeconfig", cluster.kubeconfig, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
