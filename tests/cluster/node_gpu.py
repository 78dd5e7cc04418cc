"""A node's cards: the stub GPU, which containers get as they get NVIDIA's cards.

The stub's server runs in the node's namespaces, so that its processes have the node's numbers. A
CDI specification of the kind `nvidia.com/gpu` has the driver's files, and one device for each card,
named by its UUID, and `all`. A container gets devices by the kubelet's device plugins, or by the
variable NVIDIA_VISIBLE_DEVICES (UUIDs or "all"), as on a node whose default runtime is NVIDIA's.
"""

import json
import platform
import shlex
import sys
from pathlib import Path
from typing import Any

from cluster.node import Node, runc
from cluster.servers import Server, accepts_unix
from support.artifacts import Artifacts
from support.stub import StubServer

#: The kind of the CDI devices.
KIND = "nvidia.com/gpu"

#: Where a container finds the driver's files and the server's socket.
_LIBRARIES = Path(f"/usr/lib/{platform.machine()}-linux-gnu")
_RUN = Path("/run/stub-gpu")

#: In front of runc: `grep` is fast, and few containers have the variable with names of cards.
_RUNTIME = """#!/bin/sh
bundle=. create= before=
for word; do
    case $before in -b | --bundle) bundle=$word ;; esac
    [ "$word" = create ] && create=1
    before=$word
done
if [ "$create" ]; then
    devices=$(grep -o 'NVIDIA_VISIBLE_DEVICES=[^"]*' "$bundle/config.json")
    # hami's containers have it twice, and the last one counts.
    case ${{devices##*=}} in
        '' | void) ;;
        *) {inject} "$bundle/config.json" || exit ;;
    esac
fi
exec {runc} "$@"
"""


class NodeGpu(StubServer):
    """The cards of one node, such as "a100,a100"; used in `with`.

    It has the questions and answers of `StubServer`. Attributes: ``runtime`` (the node's container
    runtime, for `Node`), ``server`` (the stub's). The cards are there after `start`.
    """

    def __init__(self, artifacts: Artifacts, folder: Path, cards: str) -> None:
        self.cards, self._artifacts = cards, artifacts
        # A container gets this folder, and so no access to the control socket.
        self._clients = folder / "clients"
        self._clients.mkdir(parents=True)
        self._socket, self._control = self._clients / "gpu.sock", folder / "control.sock"
        self._node: Node | None = None
        self.server = self._stub_server(folder / "stub-gpu.log")
        self._specification = folder / "cdi.json"
        self.runtime = folder / "runtime"
        inject = [sys.executable, "-I", "-S", Path(__file__).with_name("nvidia_runtime.py")]
        script = shlex.join(map(str, [*inject, self._specification]))
        self.runtime.write_text(_RUNTIME.format(inject=script, runc=shlex.quote(runc())))
        self.runtime.chmod(0o755)

    def start(self, node: Node) -> None:
        """Start the server on this node, and publish its cards."""
        self._node = node
        self.server.start()
        # Every user of a container may use a card, as NVIDIA's device nodes allow.
        self._socket.chmod(0o666)
        text = json.dumps(self._cdi())
        self._specification.write_text(text)
        (node.cdi / "nvidia.json").write_text(text)

    def __enter__(self) -> "NodeGpu":
        return self

    def __exit__(self, *unused: object) -> None:
        self.server.stop()

    def _stub_server(self, log: Path) -> Server:
        def init_pid() -> int:
            assert self._node is not None, "the cards were not started"
            return self._node.init_pid()

        command = [str(self._artifacts.stub_gpu), "serve", "--cards", self.cards]
        sockets = ["--socket", str(self._socket), "--control", str(self._control)]
        return Server(
            [*command, *sockets],
            log,
            lambda: accepts_unix(self._socket) and accepts_unix(self._control),
            within=init_pid,
        )

    def _cdi(self) -> dict[str, Any]:
        nodes = [
            {"path": f"/dev/nvidia{index}", "hostPath": "/dev/null"}
            for index in range(len(self.uuids()))
        ]
        devices = {uuid: [node] for uuid, node in zip(self.uuids(), nodes, strict=True)}
        devices["all"] = nodes
        stub = self._artifacts.stub_dir
        files = {_LIBRARIES / name: stub / name for name in ("libcuda.so.1", "libnvidia-ml.so.1")}
        files[_RUN] = self._clients
        return {
            "cdiVersion": "0.6.0",
            "kind": KIND,
            "devices": [
                {"name": name, "containerEdits": {"deviceNodes": nodes}}
                for name, nodes in devices.items()
            ],
            "containerEdits": {
                "env": [f"STUB_GPU_SOCKET={_RUN / self._socket.name}", "STUB_GPU_DEVICES=/dev"],
                "mounts": [
                    {
                        "hostPath": str(source.resolve()),
                        "containerPath": str(place),
                        "options": ["ro", "nosuid", "nodev", "bind"],
                    }
                    for place, source in files.items()
                ],
            },
        }
