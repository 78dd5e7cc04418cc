"""The machine's own driver, as the cards of a node: NVIDIA's toolkit finds it as on any node."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from cluster import toolkit
from cluster.node import Node
from cluster.servers import Server

#: Prints the folder of the driver that a program finds.
_FIND = """
import ctypes, pathlib
ctypes.CDLL("libcuda.so.1")
for line in open("/proc/self/maps"):
    if "libcuda.so" in line:
        print(pathlib.Path(line.split()[-1]).parent)
        break
"""


class MachineGpu:
    """As `cluster.node_gpu.NodeGpu`, without the questions to a stub."""

    servers: Sequence[Server] = ()

    def __init__(self, folder: Path) -> None:
        self.runtime = toolkit.make_default

    def __enter__(self) -> "MachineGpu":
        return self

    def __exit__(self, *unused: object) -> None:
        pass

    def start(self, node: Node) -> None:
        """Publish the cards on this node."""
        enter = ["nsenter", "--mount", "--target", str(node.init_pid()), "--"]
        # The toolkit looks where ldconfig does; some machines name the folder in a variable only.
        find = [sys.executable, "-S", "-c", _FIND]
        found = subprocess.run(find, capture_output=True, text=True, check=True).stdout.strip()
        subprocess.run([*enter, "ldconfig", found], capture_output=True, check=False)
        toolkit.configure(node)
        options = (f"--ldconfig-path={path}" for path in _LDCONFIG if path.exists())
        made = toolkit.generate(node, "--driver-root=/", *list(options)[:1], env=dict(os.environ))
        toolkit.publish(node, made)


_LDCONFIG = (Path("/sbin/ldconfig.real"), Path("/sbin/ldconfig"))
