"""Lists on the API server, page by page: whole ones, or none.

One strange object must not hide all others: it is logged, and handed on as such.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import msgspec

from hami_py.kube.errors import Unavailable
from hami_py.kube.followed import Naming, Undecoded
from hami_py.kube.server import ApiServer

__all__ = ["PAGE", "Page", "decoded", "decoded_object", "list_objects", "page_of", "pages"]

_log = logging.getLogger(__name__)

PAGE = 500
"""Objects per page of a list: what client-go asks for; a page of pods is about 2 MB."""

_LIST_S = 60.0


class ListMeta(msgspec.Struct, rename="camel"):
    """Where a list ends, and at which version it was read."""

    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class Page(msgspec.Struct):
    """Part of a list. API servers write ``items`` of an empty one, too, and always as an array."""

    kind: str
    metadata: ListMeta
    items: list[msgspec.Raw]


class _Named(msgspec.Struct):
    metadata: Naming


T = TypeVar("T")


def list_objects(
    server: ApiServer,
    path: str,
    kind: type[T],
    *,
    query: Mapping[str, str] | None = None,
    deadline_s: float = _LIST_S,
) -> tuple[list[T], list[Undecoded]]:
    """All objects of a list, once, as a sink's ``replace`` takes them.

    Args:
        server: where.
        path: of the list.
        kind: what its objects are decoded as.
        query: selectors.
        deadline_s: how long all pages together may take.

    Returns:
        Those that are as their kind says, and those that are not.

    Raises:
        KubeError: see there.
    """
    decoder = msgspec.json.Decoder(kind)
    objects: list[T] = []
    undecoded: list[Undecoded] = []
    ends_at = time.monotonic() + deadline_s

    def left_s() -> float:
        left = ends_at - time.monotonic()
        if left <= 0:
            raise Unavailable(f"GET {path}", f"not whole after {deadline_s:g} s", "try again later")
        return left

    for page in pages(server, path, query or {}, left_s):
        for raw in page.items:
            item = decoded_object(decoder, path, raw)
            if isinstance(item, Undecoded):
                undecoded.append(item)
            elif item is not None:
                objects.append(item)
    return objects, undecoded


def decoded_object(
    decoder: msgspec.json.Decoder[T], path: str, raw: msgspec.Raw
) -> T | Undecoded | None:
    """``None``: nobody can say which object it is."""
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        why = str(error)
    try:
        named = msgspec.json.decode(raw, type=_Named).metadata
    except msgspec.ValidationError:
        _log.warning("%s: an object without a name is left out: %s", path, why)
        return None
    # A copy: else it would keep the whole page.
    return Undecoded(named, raw.copy(), why)


def pages(
    server: ApiServer,
    path: str,
    query: Mapping[str, str],
    left_s: Callable[[], float],
    limit: int = PAGE,
) -> Iterator[Page]:
    """The pages of a list, each asked for with what is left then; ``left_s`` may raise."""
    rest = ""
    while True:
        page = page_of(server, path, query, rest, deadline_s=left_s(), limit=limit)
        yield page
        rest = page.metadata.continue_
        if not rest:
            return


def page_of(
    server: ApiServer,
    path: str,
    query: Mapping[str, str],
    rest: str,
    *,
    deadline_s: float,
    limit: int = PAGE,
) -> Page:
    """One page: the first, or the one that ``continue_`` of the page before names.

    What says 200 and is no list must not pass for an empty one: all cards would look free.
    """
    asked = {**query, "limit": str(limit), **({"continue": rest} if rest else {})}
    page = decoded(server.get(path, asked, deadline_s=deadline_s), Page)
    version = page.metadata.resource_version
    if not page.kind.endswith("List") or not version:
        why = f"the answer is no list (kind {page.kind!r}, version {version!r})"
        raise Unavailable(f"GET {path}", why, "try again later")
    return page


D = TypeVar("D")


def decoded(data: bytes | msgspec.Raw, kind: type[D]) -> D:
    """What the API server said.

    Raises:
        Unavailable: it is nothing of that kind.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unavailable("the API server's answer", str(error), "try again later") from error
