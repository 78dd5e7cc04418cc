"""Measures what the hook adds to the start of a container whose memory the driver limits.

The hook has the node agent set the limit before the program starts. Pods start one at a time on a
real node, in turn with the hook and without it: there, the runtime leaves it out. The driver is the
stub's, so what NVIDIA's takes is not in it.
"""

import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench import rows
from bench.node_clusters import Subject, prepare
from bench.node_pods import ONE, start
from bench.results import Row, write
from bench.rows import percentile
from cluster import crowd, toolkit
from cluster.kernel_pods import gpu, install_kernel_limits
from cluster.limited_pods import start_first
from cluster.node import Node, runc
from cluster.whole import WholeCluster

COMMAND = "make bench-hook"

#: Pods with the hook, and as many without it.
PODS = 60

#: Milliseconds that the hook may add, for 95 of 100 starts.
ADDED_MS = 20.0

row = partial(rows.row, COMMAND)


@dataclass(frozen=True)
class Times:
    """Milliseconds by pod: of the runtime's `create`, and from the pod's creation to its start."""

    create: Mapping[str, float]
    start: Mapping[str, float]


def main() -> None:
    """Measures all and writes docs/results/hook."""
    prepare()
    with (
        tempfile.TemporaryDirectory(prefix="hami-bench-") as folder,
        WholeCluster(Path(folder), gpu=gpu, kubelet_config=crowd.KUBELET) as cluster,
    ):
        install_kernel_limits(cluster)
        start_first(cluster)
        notes = Path(folder) / "created"
        _measure_create(cluster.node, notes)
        started = _starts(Subject(cluster, crowd.limits))
        created = dict(line.split() for line in notes.read_text().splitlines())
    times = Times({pod: int(took) / 1e6 for pod, took in created.items()}, started)
    write("hook", "What the hook adds to a start", _rows(times))


def _measure_create(node: Node, notes: Path) -> None:
    """Let the node's runtime note how long it takes."""
    program = Path(__file__).with_name("hook_runtime.py")
    wrapper = node.folder / "runc"
    command = f"{sys.executable} -IS {program} {runc()} {notes}"
    wrapper.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    wrapper.chmod(0o755)
    toolkit.change(node, f"nvidia-container-runtime.runtimes={wrapper}")


def _starts(subject: Subject) -> dict[str, float]:
    """Milliseconds from the creation of a pod to the start of its program, by pod."""
    found = {}
    for number in range(PODS):
        for kind, more in (("with", {}), ("without", {"WITHOUT_HOOK": "1"})):
            name = f"{kind}-{number}"
            container = crowd.container("main", "wait", subject.requests(ONE))
            variables = {"BENCH_POD": name, **more}
            container["env"] += [{"name": key, "value": text} for key, text in variables.items()]
            created = time.time()
            found[name] = 1000 * (start(subject, name, container) - created)
    return found


def _rows(times: Times) -> list[Row]:
    found = []
    for name, values, target in (
        ("the runtime creates a container", times.create, ADDED_MS),
        ("from the creation of a pod to the start of its program", times.start, None),
    ):
        for percent in (50, 95):
            plain, hooked = (
                percentile([values[f"{kind}-{number}"] for number in range(PODS)], percent)
                for kind in ("without", "with")
            )
            most = target if percent == 95 else None
            found += [
                row(f"{name}, without the hook, p{percent}", [plain], "ms", n=PODS),
                row(f"{name}, p{percent}", [hooked], "ms", n=PODS),
                row(f"{name}, p{percent}, added", [hooked - plain], "ms", most, n=PODS),
            ]
    return found
