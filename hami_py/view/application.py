"""The routes of the page. They answer from memory, so that a slow client holds no thread.

Every answer forbids the browser to load or run anything but the page's own files, and to keep it.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hami_py.errors import InvalidValue
from hami_py.model import check_object_name
from hami_py.serving import page
from hami_py.view.local import Machine
from hami_py.view.picture import Shown, node_picture
from hami_py.view.session import Session
from hami_py.view.sessions import Busy

_FILES = {
    "page.html": "text/html",
    "page.css": "text/css",
    "page.js": "text/javascript",
    "nodes.js": "text/javascript",
    "parts.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}

_POLICY = "; ".join(
    (
        "default-src 'none'",
        *("script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'"),
        *("base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"),
        # No text can become markup, whatever the script does.
        *("require-trusted-types-for 'script'", "trusted-types 'none'"),
    )
)

_HEADERS = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
]

_METHODS = ("GET", "HEAD")

_CHARACTERS = 500
"""The most characters of a problem in a header."""


class NoToken(Exception):
    """There is no token, or it cannot be one."""


Viewer: TypeAlias = Session | Machine
"""One user's view of a cluster or a machine."""

Find = Callable[[str | None, str], Viewer]
"""The viewer of a token and a namespace; it raises ``NoToken`` or ``Busy``."""


def application(find: Find, hosts: Collection[str] | None = None) -> ASGIApp:
    """The whole application.

    Args:
        find: finds the viewer of a request.
        hosts: the names by which the server may be called; ``None``: any. A page of another site
            whose name leads to a loopback address would otherwise be of the same origin.
    """
    routes = [
        _file("/", "page.html"),
        *(_file(f"/{name}", name) for name in _FILES),
        page("/healthz", lambda: (200, "alive\n")),
        page("/readyz", lambda: (200, "ready\n")),
        _route("/api/picture", find, _picture),
        _route("/api/node", find, _node),
    ]
    return _guarded(Router(routes), hosts)


def _guarded(inner: ASGIApp, hosts: Collection[str] | None) -> ASGIApp:
    """Refuses other methods and hosts, and adds the headers to every answer."""

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        app = inner
        if scope["method"] not in _METHODS:
            app = _problem(405, "only GET and HEAD", {"allow": ", ".join(_METHODS)})
        elif hosts is not None and _host(scope) not in hosts:
            app = _problem(421, "call this server by the address that it has printed")
        await app(scope, receive, guarded)

    return guard


def _file(path: str, name: str) -> Route:
    content = (Path(__file__).parent / name).read_bytes()
    return page(path, lambda: (200, content), _FILES[name])


Answer = Callable[[Request, Viewer, Shown], Awaitable[Response]]


def _route(path: str, find: Find, answer: Answer) -> Route:
    """A route that answers if the user has a picture."""

    async def endpoint(request: Request) -> Response:
        namespace = request.query_params.get("namespace", "")
        try:
            if namespace:
                check_object_name("namespace", namespace)
            viewer = find(_token(request), namespace)
        except InvalidValue as error:
            return _problem(400, str(error))
        except NoToken:
            return _problem(401, "sign in with a token", {"www-authenticate": "Bearer"})
        except Busy:
            return _problem(503, "too many users at once", {"retry-after": "2"})
        refused, shown = viewer.refused, viewer.shown
        if refused is not None:
            return _problem(refused.status, refused.why)
        if shown is None:
            return _problem(202, viewer.problem)
        return await answer(request, viewer, shown)

    return Route(path, endpoint, methods=["GET"])


async def _picture(request: Request, viewer: Viewer, shown: Shown) -> Response:
    # How many seconds ago it was read, and why not later.
    headers = {"etag": shown.tag, "age": str(int(time.monotonic() - shown.at_s))}
    if problem := viewer.problem:
        headers["hami-problem"] = quote(problem[:_CHARACTERS])
    if request.headers.get("if-none-match") == shown.tag:
        return Response(status_code=304, headers=headers)
    body = shown.body
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["content-encoding"] = "gzip"
    else:
        body = gzip.decompress(body)
    return Response(body, headers=headers, media_type="application/json")


async def _node(request: Request, viewer: Viewer, shown: Shown) -> Response:
    name = request.query_params.get("name", "")
    if name not in shown.containers:
        return _problem(404, "there is no such node")
    history = None
    if "history" in request.query_params:
        history = await run_in_threadpool(viewer.history, name)
    return Response(node_picture(shown, name, history), media_type="application/json")


def _token(request: Request) -> str | None:
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else None


def _host(scope: Scope) -> str:
    """The name in the header Host, without the port."""
    found = next((value for name, value in scope["headers"] if name == b"host"), b"")
    host = found.decode("latin-1")
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def _problem(status: int, why: str, headers: dict[str, str] | None = None) -> Response:
    body = msgspec.json.encode({"error": why})
    return Response(body, status, headers, media_type="application/json")
