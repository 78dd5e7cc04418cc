"""A whole cluster on one machine: `kubectl apply -k deploy/` as it is, its pods on a real node.

    with WholeCluster(tmp_path, cards="a100,a100") as cluster:
        cluster.apply()
        cluster.rolled_out("deployment/hami-webhook")

The API server, etcd, the scheduler and all controllers are processes of the host, as in
`control_plane`. The node (`node`) has the images that deploy/ names and the stub GPU's cards
(`node_gpu`). Pods reach the API server as everywhere, at the first address of the Services'
network: the API server itself listens there, because no proxy runs. It reaches a webhook by its
endpoints. Needs root; nothing is left on the host.
"""

import contextlib
import ipaddress
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster import binaries, images
from cluster.api import Api
from cluster.control_plane import ControlPlane, Programs, Settings
from cluster.deployed import DEPLOY, apply
from cluster.images import Image
from cluster.kubectl import kubectl
from cluster.leftovers import Leftovers
from cluster.node import Node
from cluster.node_gpu import NodeGpu
from cluster.servers import Server
from support import artifacts

#: The groups of programs that a whole cluster needs.
GROUPS = ("control-plane", "controllers", "kubectl", "node", "toolkit")

#: The network of Services, of 32 addresses. Each process that starts a cluster has its own: several
#: may do so at once.
_SERVICES = ipaddress.IPv4Network((0x0A400000 + os.getpid() % (1 << 16) * 32, 27))

#: The Service `kubernetes`.
_ADDRESS = str(_SERVICES[1])

#: Seconds until a Deployment or a DaemonSet is ready.
_DEADLINE = 90


class WholeCluster:
    """A control plane and a node; used in `with`.

    ``cards`` are profile names of the stub. ``kubelet_config`` is merged over the node's.
    ``audits``: as of `Settings`. ``wanted`` are its images, by default `images.whole`. ``gpu``
    makes other cards than the stub's, in a folder of their own.
    Attributes: ``control_plane``, ``api`` (as cluster-admin), ``node``, ``gpu``.
    """

    def __init__(
        self,
        folder: Path,
        *,
        cards: str = "a100,a100",
        kubelet_config: Mapping[str, Any] | None = None,
        audits: bool = False,
        wanted: Sequence[Image] | None = None,
        gpu: Callable[[Path], Any] | None = None,
    ) -> None:
        if wanted is None:
            wanted = images.whole()
        # Short: the path of a socket has 108 bytes.
        self._folder = Path(tempfile.mkdtemp(prefix="hami-cluster-"))
        self._undo = contextlib.ExitStack()
        leftovers = Leftovers(self._folder, [], _ADDRESS)
        leftovers.guard()
        self._undo.callback(leftovers.remove)
        settings = Settings(
            controllers=["*"],
            address=_ADDRESS,
            port=443,
            apiserver={"service-cluster-ip-range": str(_SERVICES)},
            audits=audits,
        )
        programs = Programs(binaries.folder("control-plane"), binaries.folder("controllers"))
        self.control_plane = ControlPlane(programs, folder / "control-plane", settings=settings)
        self.gpu: NodeGpu = (
            gpu(self._folder / "gpu")
            if gpu
            else NodeGpu(artifacts.find(), self._folder / "gpu", cards)
        )
        self.node = Node(
            binaries.folder("node"),
            self.control_plane,
            folder / "node",
            kubelet_config=kubelet_config,
            images=wanted,
            runtime=self.gpu.runtime,
        )

    @property
    def api(self) -> Api:
        """Requests as cluster-admin."""
        return self.control_plane.api

    @property
    def servers(self) -> list[Server]:
        """All processes that are not in a pod."""
        return [*self.control_plane.servers, *self.node.servers, *self.gpu.servers]

    def __enter__(self) -> "WholeCluster":
        with self._undo:
            add = ["ip", "address", "replace", f"{_ADDRESS}/32", "dev", "lo"]
            subprocess.run(add, check=True)
            self._undo.enter_context(self.control_plane)
            self._undo.enter_context(self.node)
            self._undo.enter_context(self.gpu)
            self.gpu.start(self.node)
            self._undo = self._undo.pop_all()
        return self

    def __exit__(self, *unused: object) -> None:
        self._undo.close()

    def reboot(self) -> None:
        """The power of the node fails, and comes back."""
        self.gpu.crash()
        self.node.crash()
        self.node.boot()
        self.gpu.start(self.node)

    def processes(self, uid: str) -> Iterator[int]:
        """The processes of the containers of a pod, as this namespace numbers them."""
        for process in Path("/proc").iterdir():
            if process.name.isdecimal():
                with contextlib.suppress(OSError):
                    cgroups = (process / "cgroup").read_text()
                    # The sandbox only keeps the pod's namespaces.
                    is_sandbox = (process / "comm").read_text() == "sleep\n"
                    if self.node.cgroups[0].name in cgroups and uid in cgroups and not is_sandbox:
                        yield int(process.name)

    def apply(self, folder: Path = DEPLOY) -> str:
        """`kubectl apply -k`, of deploy/ or of a folder that has more."""
        return apply(self.control_plane, folder)

    def kubectl(self, *arguments: str | Path) -> str:
        """The output of a command that has to succeed."""
        done = kubectl(self.control_plane, *arguments)
        assert done.returncode == 0, f"kubectl {arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def rolled_out(self, what: str, namespace: str = "hami-system") -> None:
        """Wait until all pods of a Deployment or a DaemonSet are ready."""
        wait = ("rollout", "status", what, f"--timeout={_DEADLINE}s")
        done = kubectl(self.control_plane, "--namespace", namespace, *wait)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{self.state()}"

    def state(self) -> str:
        """All pods and events, for an error."""
        pods = self.kubectl("get", "pods", "--all-namespaces", "--output=wide")
        events = self.kubectl("get", "events", "--all-namespaces", "--sort-by=.lastTimestamp")
        return f"{pods}\n{events}"
