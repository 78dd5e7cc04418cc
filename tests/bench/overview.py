"""Measures how long `kubectl hami` takes on a large cluster, against prepared answers.

The server of the answers runs on the same processors, so a figure has its time too.
"""

import contextlib
import multiprocessing
import os
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import view
from bench.results import write
from bench.rows import row
from bench.scheduler_programs import Pages, cluster, kubeconfig_of, pages_of, serve
from bench.scheduler_state import Size, cards, fill, limits, node_name
from cluster import objects, waiting
from cluster.servers import accepts, free_ports
from hami_py.model import NodeCard, SliceUse
from hami_py.monitor import NodeFigures, encode
from support.slice_uses import container

COMMAND = "make bench"
RUNS = 9
SIZE = Size(nodes=200, pods=3_200)

#: Pods that wait, of as many kinds: all are judged on every node.
WAITING, KINDS = 400, 20

REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
AGENTS = "/api/v1/namespaces/hami-system/pods"
MIB = 1 << 20


def main() -> None:
    """Measures and writes docs/results/overview."""
    program = Path(sysconfig.get_path("scripts"), "kubectl-hami")
    rows = []
    with tempfile.TemporaryDirectory() as temporary, _answers() as port:
        kubeconfig = kubeconfig_of(port, Path(temporary))
        for arguments in (["inspect"], ["top", "pod", "-A"]):
            command = [program, *arguments, "--kubeconfig", kubeconfig]
            _seconds(command)
            took = [_seconds(command) for _ in range(RUNS)]
            rows.append(row(COMMAND, f"kubectl hami {' '.join(arguments)}", took, "s", 2))
        rows += view.rows(COMMAND, kubeconfig, SIZE.nodes)
    write("overview", f"kubectl hami of {SIZE}, and {WAITING} that wait", rows)


def _seconds(command: list[Any]) -> float:
    began = time.monotonic()
    # Without what forbids Python to keep compiled files: those of an installed package are there.
    env = {"PATH": os.environ["PATH"]}
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=env)
    took = time.monotonic() - began
    assert not done.stderr and node_name(SIZE.nodes - 1) in done.stdout, done
    return took


@contextlib.contextmanager
def _answers() -> Iterator[int]:
    (port,) = free_ports(1)
    server = multiprocessing.Process(target=serve, args=(port, _pages()), daemon=True)
    server.start()
    try:
        waiting.until(lambda: accepts(port), "the server accepts connections", 60)
        yield port
    finally:
        server.kill()
        server.join()


def _pages() -> Pages:
    """The objects of the cluster, and the figures of its node agents."""
    pages = cluster(SIZE)
    state = fill(SIZE)
    pages["/api/v1/pods"] = pages_of([*state.pods(), *map(_waiting, range(WAITING))])
    pages[REVIEWS] = [b'{"status":{"userInfo":{"username":"admin"}}}']
    pages["/api/v1/events"] = pages_of([])
    pages[AGENTS] = pages_of(map(_agent, range(SIZE.nodes)))
    on_node: dict[str, list[SliceUse]] = {}
    for at, assignment in enumerate(state.assignments):
        for given in assignment.containers["main"]:
            size = given.memory_mib * MIB
            figures = container(
                *("default", f"job-{at}", "main", given.card),
                limit=size,
                share=given.cores,
                share_used=given.cores / 100,
                memory_used=size // 2,
                memory_peak=size,
                node=assignment.node,
            )
            on_node.setdefault(assignment.node, []).append(figures)
    for at in range(SIZE.nodes):
        name = node_name(at)
        pages[f"{AGENTS}/agent-{at}%3A9382/proxy/figures"] = [
            encode(
                NodeFigures(name, _seen(at, used), on_node[name], registered=True, level="preload")
            )
            for used in (0, 10_000 * MIB)
        ]
    return pages


def _seen(at: int, used: int) -> tuple[NodeCard, ...]:
    return tuple(
        NodeCard(each.uuid, each.index, each.model, each.memory_mib * MIB, used, 0, 0.0, 0, True)
        for each in cards(at)
    )


def _agent(at: int) -> dict[str, Any]:
    made = objects.pod(f"agent-{at}", nodeName=node_name(at))
    made["metadata"]["namespace"] = "hami-system"
    return {**made, "status": {"phase": "Running"}}


def _waiting(at: int) -> dict[str, Any]:
    metadata = {"namespace": "default", "uid": f"waits-{at}", "labels": {"hami.io/pod": "true"}}
    asked = limits(81_000 + at % KINDS, 0, 1)
    made = objects.pod(f"waits-{at}", asked, metadata=metadata)
    return {**made, "status": {"phase": "Pending"}}
