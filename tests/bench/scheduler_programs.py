"""Our programs as processes of their own, for measuring: started, waited for, ended."""

import contextlib
import http.client
import json
import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.results import ROOT
from bench.scheduler_state import Size, State
from cluster.servers import Server, accepts, free_ports

#: Seconds that a program may take to be ready: it is what is measured.
DEADLINE = 900.0


def fetch(port: int, path: str) -> tuple[int, str]:
    """Status and text of the answer to a plain GET there."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60.0)
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def says_ok(port: int, path: str) -> bool:
    """Whether a plain GET there is answered with 200."""
    try:
        return fetch(port, path)[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def python(*arguments: object, pinned: int | None = None) -> list[str]:
    """A Python program's command, on one processor if wanted."""
    pin = [] if pinned is None else ["taskset", "--cpu-list", str(pinned)]
    return [*pin, sys.executable, *map(str, arguments)]


@contextlib.contextmanager
def running(server: Server) -> Iterator[Server]:
    """The server, ready; ended at the end."""
    try:
        server.start(DEADLINE)
        yield server
    finally:
        server.stop()


class Extender:
    """`hami scheduler`, as a server whose start was timed."""

    def __init__(self, server: Server, port: int, start_s: float) -> None:
        self.server, self.port, self.start_s = server, port, start_s

    def processor_s(self) -> float:
        """The processor time of all its threads so far, without other programs on the machine."""
        tasks = Path(f"/proc/{self.server.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def resident_mib(self, which: str = "VmRSS") -> float:
        """Memory that it has now; VmHWM: that it had at most."""
        status = Path(f"/proc/{self.server.pid}/status").read_text()
        found = re.search(rf"{which}:\s+(\d+) kB", status)
        assert found, status
        return int(found[1]) / 1024

    def check_knows(self, state: State) -> None:
        """Of every node it counts just as much memory as given as all of the pods have there.

        One that has lost pods answers questions as well, and sooner.
        """
        status, text = fetch(self.port, "/metrics")
        assert status == 200, text
        gauge = r'^hami_scheduler_node_memory_allocated_bytes{node="([^"]*)"} (.*)$'
        told = {node: float(value) for node, value in re.findall(gauge, text, re.MULTILINE)}
        given = state.given()
        assert told == given, (
            f"{sum(told.values()):.0f} bytes on {len(told)} nodes are said to be given, and the "
            f"pods have {sum(given.values())} on {len(given)}"
        )


@contextlib.contextmanager
def extender(
    kubeconfig: Path, folder: Path, port: int | None = None, options: Sequence[str] = ()
) -> Iterator[Extender]:
    """`hami scheduler` on a port, or on a free one, once it knows the cluster."""
    port = port or free_ports(1)[0]
    listen = f"127.0.0.1:{port}"
    command = python(
        *("-m", "hami_py", "scheduler", "--listen", listen, "--kubeconfig", kubeconfig), *options
    )

    def ready() -> bool:
        return says_ok(port, "/readyz")

    server = Server(command, folder / "extender.log", ready, env=_paths())
    began = time.perf_counter()
    with running(server):
        yield Extender(server, port, time.perf_counter() - began)


@contextlib.contextmanager
def canned(size: Size, folder: Path) -> Iterator[Path]:
    """The kubeconfig of an API server that has the answers of such a cluster ready."""
    (port,) = free_ports(1)
    command = python("-m", "bench.scheduler_canned", port, size.nodes, size.pods)
    server = Server(command, folder / "canned.log", lambda: accepts(port), env=_paths())
    with running(server):
        yield kubeconfig_of(port, folder)


def kubeconfig_of(port: int, folder: Path) -> Path:
    """A new kubeconfig, of an API server without TLS on this machine."""
    kubeconfig = folder / "canned.kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    return kubeconfig


@contextlib.contextmanager
def floor(folder: Path, filtered: int, rated: int) -> Iterator[int]:
    """A server that returns so many bytes for every request; its port."""
    (port,) = free_ports(1)
    command = python("-m", "bench.scheduler_floor", port, filtered, rated)
    with running(Server(command, folder / "floor.log", lambda: accepts(port), env=_paths())):
        yield port


@contextlib.contextmanager
def webhook(kubeconfig: Path, folder: Path, options: Sequence[str], pinned: int) -> Iterator[int]:
    """`hami webhook` on one processor; its port."""
    (port,) = free_ports(1)
    command = python(
        *("-m", "hami_py", "webhook", "--listen", f"127.0.0.1:{port}"),
        *("--kubeconfig", kubeconfig, *options),
        pinned=pinned,
    )
    with running(Server(command, folder / "webhook.log", lambda: accepts(port), env=_paths())):
        yield port


def _paths() -> dict[str, str]:
    return {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
