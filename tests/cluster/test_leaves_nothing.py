"""A cluster that has ended leaves the host as it was, however the test process ended."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cluster import node_init, waiting
from cluster.control_plane import Programs
from support.running import Started

pytestmark = [pytest.mark.programs("node"), pytest.mark.timeout(300), pytest.mark.alone]

#: A cluster with a node and a running pod; it ends when it is told to.
PROGRAM = """
import sys
from pathlib import Path
from cluster import images, objects, waiting
from cluster.control_plane import ControlPlane, Programs
from cluster.node import Node

control_plane, node, folder = map(Path, sys.argv[1:])
with ControlPlane(Programs(control_plane), folder / "c") as c, Node(node, c, folder / "n") as n:
    command = {"image": images.BUSYBOX, "imagePullPolicy": "Never"}
    pod = objects.pod("one", containers=[objects.container(**command)])
    c.api.create("/api/v1/namespaces/default/pods", pod)
    waiting.until(
        lambda: c.api.get("/api/v1/namespaces/default/pods/one")["status"]["phase"] == "Running",
        "the pod runs",
    )
    print("pids", *(server.pid for server in [*c.servers, *n.servers]), flush=True)
    sys.stdin.read()
"""


def host() -> dict[str, list[str]]:
    """State that a cluster might change: mounts, addresses, cgroups, sysctls, folders, links."""
    addresses = subprocess.run(["ip", "-o", "address"], check=True, capture_output=True, text=True)
    mounts = Path("/proc/self/mountinfo").read_text()
    folders = ["/var/lib/kubelet", "/var/lib/cni", "/var/log/containers", "/var/log/pods"]
    folders += ["/usr/libexec/kubernetes", "/run/containerd", "/run/netns", "/run/nri"]
    cgroups = Path("/sys/fs/cgroup").glob("*/*")
    return {
        "mounts": sorted(line.split()[4] for line in mounts.splitlines()),
        "addresses": [line.split()[3] for line in addresses.stdout.splitlines()],
        "cgroups": sorted(str(path) for path in cgroups if path.is_dir()),
        "sysctls": [(Path("/proc/sys") / name).read_text() for name in node_init.SYSCTLS],
        "folders": [folder for folder in folders if Path(folder).exists()],
        "nodes": sorted(str(path) for path in Path(tempfile.gettempdir()).glob("hami-node-*")),
    }


@pytest.mark.parametrize("end", ["in order", "killed", "interrupted"])
def test_a_cluster_leaves_nothing(
    programs: Programs, node_programs: Path, tmp_path: Path, end: str
) -> None:
    """Starts and ends a whole node: nothing else shows that our tests leave the host as it was."""
    before = host()
    folders = [str(folder) for folder in (programs.control_plane, node_programs, tmp_path)]
    environment = {"PYTHONPATH": str(Path(__file__).parents[1])}
    with Started([sys.executable, "-c", PROGRAM, *folders], environment) as program:
        word, *pids = program.next_line(120.0).split()
        assert word == "pids"
        assert len(pids) == 5
        assert host() != before, "the node's folder and cgroups are there"
        if end == "killed":
            program.kill()
        else:
            if end == "interrupted":
                os.kill(program.pid, signal.SIGINT)
            program.finish()
    waiting.until(
        lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "all servers have ended"
    )
    waiting.until(lambda: host() == before, f"the host is as before: {before}")
