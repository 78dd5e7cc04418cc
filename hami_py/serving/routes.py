"""Routes from typed functions: read the body within limits, decode it strictly, answer.

An invalid request gets a 4xx with the reason at once, and costs no more than the bytes that were
read. An unexpected exception becomes a 500 and is logged with its traceback.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from hami_py.errors import HamiError, InvalidValue
from hami_py.serving.bodies import Bodies, NoRoom

if sys.version_info >= (3, 11):
    from asyncio import timeout
else:
    from async_timeout import timeout

_log = logging.getLogger(__name__)

_BODY_S = 10.0
"""The most seconds for a body; the clients are in the same cluster."""

A = TypeVar("A")


class _Refused(Exception):
    """The request is refused with this status."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(status, why)
        self.status = status
        self.body = msgspec.json.encode({"error": why})


def json_route(
    path: str,
    decode: Callable[[bytes], A],
    answer: Callable[[A], object],
    *,
    most_bytes: int,
    bodies: Bodies | None = None,
    blocks: bool = False,
) -> Route:
    """A POST route.

    ``decode`` raises ``InvalidValue``. The answer becomes JSON; bytes are sent as they are. A
    function that ``blocks`` gets a thread. ``bodies`` bounds all bodies together.
    """
    shared = bodies or Bodies(sys.maxsize)
    endpoint = _Endpoint(path, decode, answer, most_bytes, shared, blocks)
    return Route(path, endpoint, methods=["POST"])


@dataclass(frozen=True)
class _Endpoint(Generic[A]):
    """An ASGI endpoint without Starlette's requests and responses.

    Those would take as long as a review does.
    """

    path: str
    decode: Callable[[bytes], A]
    answer: Callable[[A], object]
    most_bytes: int
    bodies: Bodies
    blocks: bool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            status, body = 200, await self._answered(scope, receive)
        except _Refused as refusal:
            status, body = refusal.status, refusal.body
        length = str(len(body)).encode()
        headers = [(b"content-length", length), (b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answered(self, scope: Scope, receive: Receive) -> bytes:
        try:
            async with timeout(_BODY_S):
                body = await self._read(scope, receive)
            argument = self.decode(body)
        except asyncio.TimeoutError:
            raise _Refused(408, f"the body was not complete after {_BODY_S:g} s") from None
        except InvalidValue as error:
            raise _Refused(400, str(error)) from None
        try:
            if self.blocks:
                result = await run_in_threadpool(self.answer, argument)
            else:
                result = self.answer(argument)
            return result if isinstance(result, bytes) else msgspec.json.encode(result)
        except HamiError as error:
            status = 422 if isinstance(error, InvalidValue) else 503
            raise _Refused(status, str(error)) from None
        except Exception:
            _log.exception("%s", self.path)
            raise _Refused(500, "internal error; see the log") from None

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        too_large = f"the body is larger than {self.most_bytes} bytes"
        for name, value in scope["headers"]:
            # The HTTP parser has checked that it is a number.
            if name == b"content-length" and int(value) > self.most_bytes:
                raise _Refused(413, too_large)
        body = self.bodies.new()
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise _Refused(400, "the connection ended before the body did")
                body.add(message.get("body", b""))
                if len(body.data) > self.most_bytes:
                    raise _Refused(413, too_large)
                if not message.get("more_body", False):
                    return bytes(body.data)
        except NoRoom:
            raise _Refused(503, "too many large bodies at once; try again later") from None
        finally:
            # The task keeps its error, and the error keeps this frame, until the garbage collector
            # runs. By then there may be hundreds of them, each with megabytes.
            body.close()


def page(
    path: str,
    text: Callable[[], tuple[int, str | bytes]],
    media_type: str = "text/plain",
    *,
    blocks: bool = False,
) -> Route:
    """A GET route: ``text`` returns a status and a text, in a thread if it ``blocks``."""

    async def endpoint(_: Request) -> Response:
        status, body = await run_in_threadpool(text) if blocks else text()
        return Response(body, status, media_type=media_type)

    return Route(path, endpoint, methods=["GET"])
