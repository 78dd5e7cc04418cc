"""One route per typed function: the body is read within limits, decoded strictly, and answered.

Whoever sends rubbish gets a 4xx with the reason, at once, and costs no more than the bytes that
were read. A fault of ours is a 500, logged with its trace, and counted by who watches the log.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from typing import TypeVar

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from hami_py.errors import HamiError, InvalidValue
from hami_py.serving.bodies import Bodies, GivenUp

__all__ = ["json_route", "page"]

_log = logging.getLogger(__name__)

_BODY_S = 10.0
"""A body that is not whole by then was never meant to be: the callers are near."""

A = TypeVar("A")


class _Refused(Exception):
    """The request is turned away with this status."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(status, why)
        self._status = status
        self._why = why

    def response(self) -> Response:
        body = msgspec.json.encode({"error": self._why})
        return Response(body, self._status, media_type="application/json")


def json_route(
    path: str,
    decode: Callable[[bytes], A],
    answer: Callable[[A], object],
    *,
    most_bytes: int,
    bodies: Bodies | None = None,
    waits: bool = False,
) -> Route:
    """A POST route.

    Args:
        path: where.
        decode: makes the function's argument of the body; raises ``InvalidValue``.
        answer: the function; what it returns becomes JSON.
        most_bytes: a larger body is refused.
        bodies: bounds what is read of all requests at once; ``None``: each one's own bound is all.
        waits: the function waits for somebody else, and gets a thread to do so.
    """
    shared = bodies or Bodies(sys.maxsize)

    async def endpoint(request: Request) -> Response:
        try:
            argument = decode(await asyncio.wait_for(_read(request, most_bytes, shared), _BODY_S))
        except _Refused as refusal:
            return refusal.response()
        except asyncio.TimeoutError:
            return _Refused(408, f"the body was not whole after {_BODY_S:g} s").response()
        except InvalidValue as error:
            return _Refused(400, str(error)).response()
        try:
            result = await run_in_threadpool(answer, argument) if waits else answer(argument)
        except HamiError as error:
            return _Refused(422 if isinstance(error, InvalidValue) else 503, str(error)).response()
        except Exception:
            _log.exception("%s", path)
            return _Refused(500, "a fault of ours; the log has more").response()
        return Response(msgspec.json.encode(result), media_type="application/json")

    return Route(path, endpoint, methods=["POST"])


def page(
    path: str,
    text: Callable[[], tuple[int, str | bytes]],
    media_type: str = "text/plain",
    *,
    waits: bool = False,
) -> Route:
    """A GET route: a status and a text.

    Args:
        path: where.
        text: the function.
        media_type: of the text.
        waits: it takes its time, and gets a thread to do so.
    """

    async def endpoint(_: Request) -> Response:
        status, body = await run_in_threadpool(text) if waits else text()
        return Response(body, status, media_type=media_type)

    return Route(path, endpoint, methods=["GET"])


async def _read(request: Request, most_bytes: int, bodies: Bodies) -> bytes:
    too_large = f"the body is larger than {most_bytes} bytes"
    # HTTP parsers have made sure that it is a number.
    if int(request.headers.get("content-length", "0")) > most_bytes:
        raise _Refused(413, too_large)
    body = bodies.open()
    try:
        async for chunk in request.stream():
            body.add(chunk)
            if len(body.data) > most_bytes:
                raise _Refused(413, too_large)
        return bytes(body.data)
    except ClientDisconnect:
        raise _Refused(400, "the connection ended before the body did") from None
    except GivenUp:
        raise _Refused(503, "too many large bodies at once; try again later") from None
    finally:
        # An error holds this frame, and asyncio's task the error, until the garbage collector
        # comes: of a hundred such, each with its megabytes, there may be many by then.
        body.close()
