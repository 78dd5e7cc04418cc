"""An API server with prepared answers, to measure our start-up and a large cluster.

    python -m bench.scheduler_canned PORT NODES PODS

It serves the lists of a filled cluster page by page, and watches in which nothing ever happens.
"""

import http.server
import json
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

from bench.scheduler_state import Size, fill, node

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
    def nodes() -> Iterator[dict[str, Any]]:
        for at in range(size.nodes):
            yield node(at)

    return {
        "/api/v1/nodes": pages_of(nodes()),
        "/api/v1/pods": pages_of(fill(size).pods()),
        "/api/v1/resourcequotas": pages_of([]),
    }


def serve(port: int, pages: Pages) -> None:
    """Answers until it is ended."""
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


if __name__ == "__main__":
    serve(int(sys.argv[1]), cluster(Size(int(sys.argv[2]), int(sys.argv[3]))))
