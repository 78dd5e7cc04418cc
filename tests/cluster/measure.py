"""Measures and prints how fast the control plane starts and binds pods, and its memory.

    PYTHONPATH=tests python -m cluster.measure

The numbers depend on the machine. `cluster.measure_node` measures those with a node.
"""

import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from cluster import binaries, extender, objects, waiting
from cluster.control_plane import ControlPlane, Programs
from cluster.extender import Extender
from cluster.objects import NODES, PODS

GPU = "nvidia.com/gpu"
CARD = {GPU: 100, "nvidia.com/gpumem": 1_000_000, "nvidia.com/gpucores": 10_000}
SHARE = {GPU: 1, "nvidia.com/gpumem": 1000, "nvidia.com/gpucores": 10}


@contextlib.contextmanager
def timed(what: str) -> Iterator[None]:
    begin = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - begin:.2f} s", flush=True)


def resident(pid: int) -> int:
    """The resident memory of a process in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) // 1024


def control_plane(folder: Path) -> None:
    """Start-up, memory, and the rate at which pods are bound through an extender in Python."""
    with contextlib.ExitStack() as stack:
        answers = stack.enter_context(Extender())
        scheduler = {**extender.config(answers.url), "percentageOfNodesToScore": 100}
        with timed("etcd, API server and scheduler ready"):
            programs = Programs(binaries.folder("control-plane"))
            cluster = stack.enter_context(ControlPlane(programs, folder, scheduler=scheduler))
        answers.api = cluster.api
        for number in range(20):
            cluster.api.create(NODES, objects.node(f"n{number}", CARD))
        with timed("500 pods created and bound on 20 nodes"):
            for number in range(500):
                cluster.api.create(PODS, objects.pod(f"p{number}", SHARE))
            with timed("  after the last was created"):
                unbound = f"{PODS}?fieldSelector=spec.nodeName="
                waiting.until(lambda: not cluster.api.list(unbound), "all are bound")
        filters = {
            call.body["Pod"]["metadata"]["name"]: call.at for call in answers.calls("/filter")
        }
        binds = [call.at for call in answers.calls("/bind")]
        later = sum(at < binds[i] for i, at in enumerate(list(filters.values())[1:]))
        print(f"filtered before the last pod's bind had come: {later} of {len(binds) - 1}")
        print("MiB:", {server.name: resident(server.pid) for server in cluster.servers})


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="hami-measure-") as folder:
        control_plane(Path(folder))


if __name__ == "__main__":
    main()
