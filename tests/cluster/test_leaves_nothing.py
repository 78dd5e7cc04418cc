"""A cluster that has ended leaves the host as it was, however the test process ended."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cluster import node_init, waiting
from support.running import Started

pytestmark = [
    pytest.mark.programs("controllers", "node", "toolkit"),
    pytest.mark.timeout(300),
    pytest.mark.alone,
]

#: A whole cluster with a running pod that has a card; it ends when it is told to.
PROGRAM = """
import sys
from pathlib import Path
from cluster import images, objects, waiting
from cluster.whole import WholeCluster

with WholeCluster(Path(sys.argv[1]), cards="a100") as c:
    command = {"image": images.BUSYBOX, "imagePullPolicy": "Never"}
    command["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    pod = objects.pod("one", containers=[objects.container(**command)])
    waiting.takes(c.api, pod)
    c.api.create("/api/v1/namespaces/default/pods", pod)
    waiting.until(
        lambda: c.api.get("/api/v1/namespaces/default/pods/one")["status"]["phase"] == "Running",
        "the pod runs",
    )
    print("pids", *(server.pid for server in c.servers), flush=True)
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
        "nodes": sorted(
            str(path)
            for name in ("hami-cluster-*", "hami-node-*")
            for path in Path(tempfile.gettempdir()).glob(name)
        ),
    }


@pytest.mark.parametrize("end", ["in order", "killed", "interrupted"])
@pytest.mark.usefixtures("node_programs")
def test_a_cluster_leaves_nothing(tmp_path: Path, end: str) -> None:
    """Starts and ends a cluster: nothing else shows that our tests leave the host as it was."""
    before = host()
    environment = {"PYTHONPATH": str(Path(__file__).parents[1]), "HOME": str(Path.home())}
    with Started([sys.executable, "-c", PROGRAM, str(tmp_path)], environment) as program:
        word, *pids = program.next_line(120.0).split()
        assert word == "pids"
        assert len(pids) == 7
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
