"""A whole node: containerd and a kubelet, in mount and PID namespaces of their own. Needs root.

    with Node(folder_of_programs, cluster, tmp_path, "n1") as node:
        ...  # node.device_plugins / "kubelet.sock" is where a plugin registers

The kubelet's changes to the host stay inside these namespaces (`node_init`). The unavoidable ones
outside, cgroups and an address of the loopback device, are removed at the end. `leftovers` removes
them even if the test process was killed.
"""

import contextlib
import ipaddress
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster import binaries, image_store, waiting
from cluster.control_plane import ControlPlane
from cluster.images import BUSYBOX, Image, busybox, write
from cluster.leftovers import Leftovers, remove_cgroups
from cluster.objects import NODES
from cluster.servers import Server, accepts_unix, free_ports

#: The node's address, which must not be 127.x, and the network of its pods, of 256 addresses. Each
#: process that starts a node has its own: several may do so at once.
ADDRESS = f"10.98.{os.getpid() // 250 % 250}.{os.getpid() % 250 + 1}"
_PODS = ipaddress.IPv4Network((0x0A800000 + os.getpid() % (1 << 15) * 256, 24))

#: The network of the pods of a second node of the same process.
OTHER_PODS = ipaddress.IPv4Network((0x64400000 + os.getpid() % (1 << 14) * 256, 24))

_CGROUPS = Path("/sys/fs/cgroup")


class Node:
    """A running node; used in `with`.

    ``kubelet_config`` is merged over our KubeletConfiguration. ``images`` are there beside busybox.
    ``runtime`` changes containerd's configuration, a file, for another runtime than runc. ``pods``
    is the network of its pods.
    Attributes: ``kubelet`` and ``containerd`` (servers, to be stopped and started), ``state`` (the
    kubelet's /var/lib/kubelet), ``cdi`` (the folder that containerd reads CDI specs from; the
    node's pods find it at /run/cdi), ``pod_logs`` (what containers write; it outlives the node),
    ``cgroups`` (all of the node, one in each hierarchy).
    """

    def __init__(
        self,
        programs: Path,
        cluster: ControlPlane,
        logs: Path,
        name: str = "n1",
        *,
        kubelet_config: Mapping[str, Any] | None = None,
        images: Sequence[Image] = (),
        runtime: Callable[[Path], None] | None = None,
        pods: ipaddress.IPv4Network = _PODS,
    ) -> None:
        self._images = [*images]
        if BUSYBOX not in {image.name for image in images}:
            self._images.insert(0, busybox())
        self._runtime, self._pods = runtime, pods
        self._programs, self.cluster, self.name = programs, cluster, name
        logs.mkdir(parents=True, exist_ok=True)
        self.pod_logs = logs / "pods"
        # Short: the path of a socket has 108 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="hami-node-"))
        self._cgroup = self.folder.name
        self.cgroups = _hierarchies(self._cgroup)
        self._leftovers = Leftovers(self.folder, self.cgroups, ADDRESS)
        self._leftovers.guard()
        self._undo = contextlib.ExitStack()
        self._undo.callback(self._leftovers.remove)
        self._init: subprocess.Popen[str] | None = None
        self.state, self.cdi = self.folder / "kubelet", self.folder / "cdi"
        for folder in (self.state, self.cdi):
            folder.mkdir()
        self.device_plugins = self.state / "device-plugins"
        self.checkpoint = self.device_plugins / "kubelet_internal_checkpoint"
        self.pod_resources = self.state / "pod-resources" / "kubelet.sock"
        self.containerd = self._containerd(logs)
        self.kubelet = self._kubelet(logs, dict(kubelet_config or {}))

    @property
    def servers(self) -> list[Server]:
        """containerd and the kubelet."""
        return [self.containerd, self.kubelet]

    def __enter__(self) -> "Node":
        with contextlib.ExitStack() as undo:
            undo.callback(self.stop)
            subprocess.run(["ip", "address", "replace", f"{ADDRESS}/32", "dev", "lo"], check=True)
            _make_cgroups(self._cgroup)
            self._enter_namespaces()
            self._start_containerd()
            self._start_kubelet()
            undo.pop_all()
        return self

    def __exit__(self, *unused: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop all that runs on the node, and take back what it changed."""
        self.kubelet.stop()
        self.containerd.stop()
        self._kill_all()
        self._undo.close()

    def crash(self) -> None:
        """The power fails: all processes end, and with them all but the disk's files."""
        for server in self.servers:
            server.kill()
        self._kill_all()
        remove_cgroups(self.cgroups)
        shutil.rmtree(self.folder / "ctd" / "state")

    def boot(self) -> None:
        """Start again after a crash."""
        _make_cgroups(self._cgroup)
        self._enter_namespaces()
        self.containerd.start()
        self._start_kubelet()

    @property
    def is_running(self) -> bool:
        """Whether it is on."""
        return self._init is not None

    @property
    def root(self) -> Path:
        """The node's file system: it has a /run and a /var of its own."""
        return Path(f"/proc/{self.init_pid()}/root")

    def ctr(self, *arguments: str) -> str:
        """Ask containerd, in the kubelet's namespace of names; its answer."""
        done = subprocess.run(
            [*self._ctr, *arguments], capture_output=True, text=True, timeout=120.0, check=False
        )
        assert done.returncode == 0, f"ctr {arguments}: {done.stderr}\n{self.containerd.tail()}"
        return done.stdout

    def log(self, pod: str, container: str = "main", namespace: str = "default") -> str:
        """What the runtime logs of a container of this pod: its output, each line with a prefix."""
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
        uid = self.cluster.api.get(path)["metadata"]["uid"]
        folder = self.pod_logs / f"{namespace}_{pod}_{uid}" / container
        # One for each time that it started, from 0.log on.
        files = sorted(folder.glob("*.log"), key=lambda file: int(file.stem))
        return "".join(file.read_text() for file in files)

    def output(self, pod: str, container: str = "main", namespace: str = "default") -> str:
        """The output of a container of this pod."""
        return "".join(map(_output, self.log(pod, container, namespace).splitlines()))

    def _kill_all(self) -> None:
        if self._init is not None:
            # unshare's child goes with it, and with that all processes of the namespace.
            self._init.kill()
            self._init.communicate(timeout=60.0)
            self._init = None

    def _start_kubelet(self) -> None:
        self.kubelet.start()
        waiting.until(self._is_ready, f"node {self.name} is ready")

    def _start_containerd(self) -> None:
        """Start it with the images, which are imported if no node has done so before."""
        root, kept = self.folder / "ctd" / "root", image_store.folder(self._images, self._programs)
        root.parent.mkdir()
        if is_there := kept.is_dir():
            image_store.link(kept, root)
        self.containerd.start()
        if not is_there:
            self._import_images()
            self.containerd.stop()
            image_store.keep(root, kept)
            self.containerd.start()

    def _import_images(self) -> None:
        with subprocess.Popen(
            [*self._ctr, "images", "import", "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as ctr:
            assert ctr.stdin is not None
            assert ctr.stderr is not None
            # One that fails early says why.
            with contextlib.suppress(BrokenPipeError), ctr.stdin:
                write(self._images, ctr.stdin)
            said = ctr.stderr.read().decode()
        assert ctr.returncode == 0, f"ctr images import: {said}\n{self.containerd.tail()}"

    @property
    def _ctr(self) -> list[str]:
        program = [str(self._programs / "ctr"), "--address", str(self._socket)]
        return [*program, "--namespace", "k8s.io"]

    @property
    def _socket(self) -> Path:
        return self.folder / "ctd" / "containerd.sock"

    def _is_ready(self) -> bool:
        for node in self.cluster.api.list(NODES):
            if node["metadata"]["name"] == self.name:
                conditions = {c["type"]: c["status"] for c in node["status"].get("conditions", [])}
                return conditions.get("Ready") == "True"
        return False

    def _enter_namespaces(self) -> None:
        inside = Path(__file__).with_name("node_init.py")
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]
        self._init = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", *unshare, sys.executable, inside, self.folder],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._init.stdout is not None
        assert self._init.stderr is not None
        if self._init.stdout.readline() != "ready\n":
            self._init.kill()
            raise AssertionError(f"the node's namespaces: {self._init.stderr.read()}")

    def init_pid(self) -> int:
        """The first process in the node's namespaces, as this namespace numbers it."""
        assert self._init is not None, f"node {self.name} was not started"
        children = Path(f"/proc/{self._init.pid}/task/{self._init.pid}/children")
        return int(children.read_text().split()[0])

    def _server(self, command: list[str], log: Path, ready: Callable[[], bool]) -> Server:
        # containerd finds its shim, and CNI its plugins' helpers, by the path.
        env = {"PATH": f"{self._programs}:{os.environ['PATH']}"}
        return Server(command, log, ready, env=env, within=self.init_pid)

    def _containerd(self, logs: Path) -> Server:
        path = self.folder / "containerd.toml"
        path.write_text(_containerd_config(self.folder, self._socket, self.cdi, self._programs))
        if self._runtime is not None:
            self._runtime(path)
        network = self.folder / "cni"
        network.mkdir()
        reached = [ADDRESS, self.cluster.settings.address]
        (network / "10-ptp.conflist").write_text(
            json.dumps(_network(self.folder, self._pods, reached))
        )
        command = [str(self._programs / "containerd"), "--config", str(path)]
        return self._server(command, logs / "containerd.log", lambda: accepts_unix(self._socket))

    def _kubelet(self, logs: Path, wanted: dict[str, Any]) -> Server:
        cluster, folder = self.cluster, self.folder
        port, health = free_ports(2)
        identity = cluster.authority.issue(
            f"system:node:{self.name}", groups=["system:nodes"], hosts=[ADDRESS, self.name]
        )
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": ADDRESS,
            "port": port,
            "healthzPort": health,
            "authentication": {
                "anonymous": {"enabled": False},
                "x509": {"clientCAFile": str(cluster.authority.certificate)},
            },
            "tlsCertFile": str(identity.certificate),
            "tlsPrivateKeyFile": str(identity.key),
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            "imageServiceEndpoint": f"unix://{self._socket}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self._cgroup}",
            "enforceNodeAllocatable": [],
            # The default from 1.35 on; the override is there in 1.37 still.
            "failCgroupV1": False,
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            "resolvConf": "",
            "podLogsDir": str(self.pod_logs),
            "volumePluginDir": str(folder / "volume-plugins"),
            # To lower it takes CAP_SYS_RESOURCE, which root does not have everywhere.
            "oomScoreAdj": 0,
            "evictionHard": {"memory.available": "1Mi"},
            "nodeStatusUpdateFrequency": "1s",
            "kubeAPIQPS": 1000,
            "kubeAPIBurst": 2000,
            **wanted,
        }
        path = folder / "kubelet.json"
        path.write_text(json.dumps(config))
        flags = {
            "config": path,
            "kubeconfig": cluster.kubeconfig_for(identity),
            "hostname-override": self.name,
            "node-ip": ADDRESS,
            "v": 4,
        }
        command = [str(self._programs / "kubelet"), *(f"--{k}={v}" for k, v in flags.items())]
        registry = self.device_plugins / "kubelet.sock"
        return self._server(command, logs / "kubelet.log", lambda: accepts_unix(registry))


def runc() -> str:
    """The program that starts containers."""
    found = shutil.which("runc")
    assert found, "missing: runc; install it with: apt-get install runc"
    return found


def _hierarchies(name: str) -> list[Path]:
    """This cgroup in every hierarchy that is mounted; there is one where all is cgroup v2."""
    if (_CGROUPS / "cgroup.controllers").exists():
        return [_CGROUPS / name]
    return [hierarchy / name for hierarchy in sorted(_CGROUPS.iterdir()) if hierarchy.is_dir()]


def _make_cgroups(name: str) -> None:
    controllers = _CGROUPS / "cgroup.controllers"
    if controllers.exists():
        # With cgroup v2, a cgroup has the controllers that its parent has enabled for it.
        for controller in controllers.read_text().split():
            (_CGROUPS / "cgroup.subtree_control").write_text(f"+{controller}")
    for cgroup in _hierarchies(name):
        cgroup.mkdir()
        # A v1 cpuset has to be given what its parent has before anybody may enter it.
        for file in ("cpuset.cpus", "cpuset.mems"):
            if (cgroup.parent / file).exists():
                (cgroup / file).write_text((cgroup.parent / file).read_text())


def _output(line: str) -> str:
    """What a container wrote; the runtime says when and where, and whether it ends the line."""
    _time, _stream, tag, text = line.split(" ", 3)
    return text if tag == "P" else f"{text}\n"


def _network(folder: Path, pods: ipaddress.IPv4Network, reached: Sequence[str]) -> dict[str, Any]:
    """Point to point between a pod and the host, with these addresses; nothing else is routed."""
    return {
        "cniVersion": "1.0.0",
        "name": "test",
        "plugins": [
            {
                "type": "ptp",
                "ipam": {
                    "type": "host-local",
                    "dataDir": str(folder / "addresses"),
                    "ranges": [[{"subnet": str(pods)}]],
                    "routes": [{"dst": f"{address}/32"} for address in reached],
                },
            }
        ],
    }


def _containerd_config(folder: Path, socket: Path, cdi: Path, programs: Path) -> str:
    """Containerd's configuration, all of it in the node's folder: version 3, or 2 for its 1.7."""
    if os.environ.get(binaries.OTHER_CONTAINERD, "").startswith("1."):
        cri = _cri_of_containerd_1(folder, cdi)
        version = 2
    else:
        cri = _cri(folder, cdi, programs)
        version = 3
    return f"""
version = {version}
root = "{folder}/ctd/root"
state = "{folder}/ctd/state"
disabled_plugins = [
  "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.erofs",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.tracing.processor.v1.otlp",
]
[grpc]
  address = "{socket}"
[ttrpc]
  address = "{socket}.ttrpc"
{cri}[plugins."io.containerd.nri.v1.nri"]
  socket_path = "{folder}/nri.sock"
"""


def _cri(folder: Path, cdi: Path, programs: Path) -> str:
    return f"""
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{BUSYBOX}"
[plugins."io.containerd.cri.v1.runtime"]
  # Without it: "can't get final child's PID from pipe: EOF", where CAP_SYS_RESOURCE is missing.
  restrict_oom_score_adj = true
  cdi_spec_dirs = ["{cdi}"]
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{programs}", "/usr/lib/cni", "/opt/cni/bin"]
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      BinaryName = "{runc()}"
      SystemdCgroup = false
"""


def _cri_of_containerd_1(folder: Path, cdi: Path) -> str:
    return f"""
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{BUSYBOX}"
  restrict_oom_score_adj = true
  enable_cdi = true
  cdi_spec_dirs = ["{cdi}"]
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "{runc()}"
        SystemdCgroup = false
"""
