"""As much of an API server as `hami webhook` and `hami scheduler` need to start and to go on.

It keeps one Secret, has two nodes of eight cards and no pods, and says 404 to everything else. What
it tells of them never changes, so its watches are silent.
"""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from hami_py.model import pods
from hami_py.model.pods import wire

KEPT = "/api/v1/namespaces/hami-system/secrets/hami-webhook"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/"


def _node(name: str) -> dict[str, Any]:
    cards = tuple(
        wire.Card(f"GPU-{name}-{i}", i, "NVIDIA A100-SXM4-80GB", 81_920) for i in range(8)
    )
    annotations = {pods.annotations.CARDS: pods.encode_cards(cards)}
    return {"metadata": {"name": name, "annotations": annotations, "resourceVersion": "1"}}


LISTS = {
    "/api/v1/nodes": [_node("a"), _node("b")],
    "/api/v1/pods": [],
    "/api/v1/resourcequotas": [],
}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_Server"

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        version = {"resourceVersion": "1"}
        if path in LISTS and "watch=1" in query:
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            self.server.ending.wait()
        elif path in LISTS:
            self._answer(200, {"kind": "List", "metadata": version, "items": LISTS[path]})
        elif path.startswith(CONFIGURATIONS):
            self._answer(200, {"metadata": version, "webhooks": []})
        elif path == KEPT:
            self._answer(200, self.server.secret)
        else:
            self._answer(404, {"kind": "Status", "reason": "NotFound", "code": 404})

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == KEPT:
            self.server.secret = json.loads(body)
            self._answer(200, self.server.secret)
        else:
            self._answer(404, {"kind": "Status", "reason": "NotFound", "code": 404})

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.ending = threading.Event()
        self.secret: dict[str, Any] = {"metadata": {"resourceVersion": "1"}}


@contextlib.contextmanager
def api_server(folder: Path) -> Iterator[Path]:
    """Its kubeconfig."""
    server = _Server()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    kubeconfig = folder / "kubeconfig"
    named = {
        "clusters": [
            {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
        ],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    kubeconfig.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **named}))
    try:
        yield kubeconfig
    finally:
        server.ending.set()
        server.shutdown()
        server.server_close()
        thread.join()
