"""A node's cards: the stub GPU, which containers get as they get NVIDIA's cards.

The stub's server runs in the node's namespaces, so that its processes have the node's numbers. The
stub's libraries are installed below a driver root, with the names of a driver's files, and NVIDIA's
toolkit (`toolkit`) finds them and the cards there. To its CDI specification we add how a program
reaches the server. A container gets devices by the kubelet's device plugins, or by the variable
NVIDIA_VISIBLE_DEVICES (UUIDs or "all"), as on a node whose default runtime is NVIDIA's. In the
second case containerd does not know the variables that reach the server, so `kubectl exec` starts
programs without them: there the stub runs in the program itself, with one card.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from cluster import toolkit
from cluster.node import Node
from cluster.servers import Server, accepts_unix
from support.artifacts import Artifacts
from support.running import run
from support.stub import StubServer, flag

#: Where a driver root has the libraries.
_LIBRARIES = Path("usr/lib") / f"{platform.machine()}-linux-gnu"

#: Where a container finds the server's socket.
_RUN = Path("/run/stub-gpu")

#: Where programs look for an MPS daemon.
MPS = "/tmp/nvidia-mps"  # noqa: S108

#: Prints the version of the driver, by NVML.
VERSION = """
import ctypes
nvml, version = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.create_string_buffer(80)
assert nvml.nvmlInit_v2() == 0
assert nvml.nvmlSystemGetDriverVersion(version, 80) == 0
print(version.value.decode())
"""


class NodeGpu(StubServer):
    """The cards of one node, such as "a100,a100"; used in `with`.

    It has the questions and answers of `StubServer`, and its ``options``. Attributes: ``runtime``
    (for `Node`), ``servers`` (the stub's), ``driver`` (the driver root). The cards are there after
    `start`.
    """

    def __init__(self, artifacts: Artifacts, folder: Path, cards: str, **options: object) -> None:
        self.cards, self._artifacts = cards, artifacts
        self._flags = [part for name, value in options.items() for part in flag(name, value)]
        self.driver = folder / "driver"
        # A container gets this folder, and so no access to the control socket.
        self._clients = folder / "clients"
        self._clients.mkdir(parents=True)
        self._socket, self._control = self._clients / "gpu.sock", folder / "control.sock"
        self._node: Node | None = None
        self._stub = self._stub_server(folder / "stub-gpu.log")
        self.servers = [self._stub]
        self.runtime = toolkit.make_default

    def start(self, node: Node) -> None:
        """Start the server on this node, and publish its cards."""
        self._node = node
        self._stub.start()
        # Every user of a container may use a card, as NVIDIA's device nodes allow.
        self._socket.chmod(0o666)
        if not (self.driver / _LIBRARIES).is_dir():
            self._install()
        toolkit.configure(node)
        made = toolkit.generate(node, env={"PATH": os.environ["PATH"], **self.toolkit_env})
        toolkit.publish(node, self._reaching(made))

    @property
    def toolkit_env(self) -> dict[str, str]:
        """Where `nvidia-ctk` finds the driver and the cards on the node."""
        return {"NVIDIA_CTK_DRIVER_ROOT": str(self.driver), "STUB_GPU_SOCKET": str(self._socket)}

    def show_instances(self, node: Node) -> None:
        """Show the node the table of MIG's device nodes, and let who has all cards monitor them.

        The driver has both on its own, and the CDI specification stays older than the instances.
        """
        table = "proc/driver"
        within = ["nsenter", "--mount", "--target", str(node.init_pid()), "--"]
        subprocess.run([*within, "mount", "--bind", self.driver / table, f"/{table}"], check=True)
        file = node.cdi / "nvidia.json"
        specification = json.loads(file.read_text())
        (every,) = [each for each in specification["devices"] if each["name"] == "all"]
        monitor = "/dev/nvidia-caps/nvidia-cap2"
        every["containerEdits"]["deviceNodes"].append(
            {"path": monitor, "hostPath": f"{self.driver}{monitor}"}
        )
        toolkit.publish(node, specification)

    def crash(self) -> None:
        """The server ends with the node."""
        self._stub.kill()

    @property
    def is_running(self) -> bool:
        """Whether the server answers."""
        return self._stub.is_running

    def __enter__(self) -> "NodeGpu":
        return self

    def __exit__(self, *unused: object) -> None:
        self._stub.stop()

    def _stub_server(self, log: Path) -> Server:
        def init_pid() -> int:
            assert self._node is not None, "the cards were not started"
            return self._node.init_pid()

        command = [str(self._artifacts.stub_gpu), "serve", "--cards", self.cards]
        sockets = ["--socket", str(self._socket), "--control", str(self._control)]
        sockets += ["--root", str(self.driver)]
        return Server(
            [*command, *sockets, *self._flags],
            log,
            lambda: accepts_unix(self._socket) and accepts_unix(self._control),
            within=init_pid,
        )

    def _install(self) -> None:
        """Install the driver: its files carry its version, and its cards are device nodes."""
        version = self._version()
        (self.driver / _LIBRARIES).mkdir(parents=True)
        for name in ("libcuda.so", "libnvidia-ml.so"):
            file = self.driver / _LIBRARIES / f"{name}.{version}"
            shutil.copyfile(self._artifacts.stub_dir / f"{name}.1", file)
            file.with_name(f"{name}.1").symlink_to(file.name)
        (self.driver / MPS[1:] / "control").mkdir(parents=True)
        null = Path("/dev/null").stat().st_rdev
        cards = [f"nvidia{index}" for index in range(len(self.uuids()))]
        for name in ("nvidiactl", *cards):
            os.mknod(self.driver / "dev" / name, 0o020666, null)
            (self.driver / "dev" / name).chmod(0o666)

    def _version(self) -> str:
        """The driver's version, by NVML."""
        done = run([sys.executable, "-S", "-c", VERSION], self.charging_env)
        assert done.code == 0, done.err
        return done.out.strip()

    def _reaching(self, specification: dict[str, Any]) -> dict[str, Any]:
        """The specification with what a program needs to reach the stub's server."""
        edits = specification["containerEdits"]
        variables = [f"STUB_GPU_SOCKET={_RUN / self._socket.name}", "STUB_GPU_DEVICES=/dev"]
        mount = {
            "hostPath": str(self._clients),
            "containerPath": str(_RUN),
            "options": ["ro", "nosuid", "nodev", "bind"],
        }
        # As NVIDIA's toolkit does where an MPS daemon runs.
        options = ["ro", "nosuid", "nodev", "bind"]
        pipes = {"hostPath": str(self.driver / MPS[1:]), "containerPath": MPS, "options": options}
        mounts = [*edits["mounts"], mount, pipes]
        more = {"env": [*edits["env"], *variables], "mounts": mounts}
        return {**specification, "containerEdits": {**edits, **more}}
