"""Programs as processes of their own, for measuring: started, waited for, ended.

Two of them are in this file: an API server with prepared answers, and a server that answers every
request with so many bytes.

    python -m bench.scheduler_programs canned PORT NODES PODS
    python -m bench.scheduler_programs floor PORT FILTERED_BYTES RATED_BYTES
"""

import contextlib
import http.client
import http.server
import json
import re
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.routing import Router

from bench.results import ROOT
from bench.scheduler_state import Size, State, fill, node
from cluster.servers import Server, accepts, free_ports
from hami_py import serving

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
    command = python("-m", "bench.scheduler_programs", "canned", port, size.nodes, size.pods)
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
    command = python("-m", "bench.scheduler_programs", "floor", port, filtered, rated)
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


PAGE = 500

#: Where an agent has several figures, they follow each other at multiples of so many seconds.
CHANGES_S = 4

#: The pages of each list, by path.
Pages = dict[str, list[bytes]]


def pages_of(objects: Iterable[dict[str, Any]]) -> list[bytes]:
    """A list's answers, one after the other."""

    def page(items: list[bytes], number: int, more: bool) -> bytes:
        metadata = {"resourceVersion": "1", **({"continue": str(number)} if more else {})}
        head = json.dumps({"kind": "List", "metadata": metadata}).encode()
        return head[:-1] + b', "items": [' + b",".join(items) + b"]}"

    made: list[list[bytes]] = [[]]
    for each in objects:
        if len(made[-1]) == PAGE:
            made.append([])
        made[-1].append(json.dumps(each, separators=(",", ":")).encode())
    return [page(items, at + 1, at + 1 < len(made)) for at, items in enumerate(made)]


def cluster(size: Size) -> Pages:
    """The lists of a filled cluster."""
    return {
        "/api/v1/nodes": pages_of(map(node, range(size.nodes))),
        "/api/v1/pods": pages_of(fill(size).pods()),
        "/api/v1/resourcequotas": pages_of([]),
    }


def serve(port: int, pages: Pages) -> None:
    """An API server with prepared answers, and watches in which nothing ever happens."""
    for_ever = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            query = parse_qs(asked.query)
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            if "watch" in query:
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for_ever.wait()
            bodies = pages[asked.path]
            if asked.path.endswith("/proxy/figures"):
                at = int(time.time() / CHANGES_S) % len(bodies)
            else:
                at = int(query.get("continue", ["0"])[0])
            body = bodies[at]
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, *unused: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    server.serve_forever()


def _serve_bytes(port: int, filtered: int, rated: int) -> None:
    """The extender's server without the extender: the cost of HTTP alone on this machine."""
    routes = []
    for path, size in (("/filter", filtered), ("/prioritize", rated)):
        answer = b'"' + b"x" * (size - 2) + b'"'
        routes.append(
            serving.json_route(path, len, lambda _, answer=answer: answer, most_bytes=1 << 24)
        )
    serving.Server(Router(routes), serving.Listen(port=port)).start()
    signal.pause()


if __name__ == "__main__":
    name, *numbers = sys.argv[1:]
    if name == "canned":
        serve(int(numbers[0]), cluster(Size(*map(int, numbers[1:]))))
    else:
        _serve_bytes(*map(int, numbers))
