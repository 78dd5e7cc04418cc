"""Lists on the API server, read page by page and returned only if they are complete.

One object that cannot be decoded must not hide all others: it is logged, and passed on as
``Undecoded``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import msgspec

from hami_py.kube.errors import Unavailable
from hami_py.kube.followed import Naming, Undecoded
from hami_py.kube.server import ApiServer, Status
from hami_py.model.pods.decoding import prepare

_log = logging.getLogger(__name__)

PAGE = 500
"""Objects per page, as client-go requests them; a page of pods is about 2 MB."""

_LIST_S = 60.0


class ListMeta(msgspec.Struct, rename="camel"):
    """A list's version, and the token of its next page."""

    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class Page(msgspec.Struct):
    """A page of a list. API servers write ``items`` always, even of an empty list, as an array."""

    kind: str
    metadata: ListMeta
    items: list[msgspec.Raw]


class _Named(msgspec.Struct):
    metadata: Naming


prepare(Page, Status, _Named)


T = TypeVar("T")


def list_objects(
    server: ApiServer,
    path: str,
    kind: type[T],
    *,
    query: Mapping[str, str] | None = None,
    deadline_s: float = _LIST_S,
) -> tuple[list[T], list[Undecoded]]:
    """Reads all objects of a list, as the receiver's ``replace`` takes them.

    All pages together may take ``deadline_s``.

    Returns:
        The objects that could be decoded, and those that could not.

    Raises:
        KubeError: the list is not complete; see ``hami_py.kube.errors``.
    """
    return list_version(server, path, kind, query=query, deadline_s=deadline_s)[:2]


def list_version(
    server: ApiServer,
    path: str,
    kind: type[T],
    *,
    query: Mapping[str, str] | None = None,
    deadline_s: float = _LIST_S,
) -> tuple[list[T], list[Undecoded], str]:
    """As ``list_objects``, with the list's version, from which a reflector may go on."""
    decoder = msgspec.json.Decoder(kind)
    objects: list[T] = []
    undecoded: list[Undecoded] = []
    version = ""
    ends_at = time.monotonic() + deadline_s

    def left_s() -> float:
        left = ends_at - time.monotonic()
        if left <= 0:
            raise Unavailable(
                f"GET {path}", f"not complete after {deadline_s:g} s", "try again later"
            )
        return left

    for page in pages(server, path, query or {}, left_s):
        version = version or page.metadata.resource_version
        for raw in page.items:
            item = decoded_object(decoder, path, raw)
            if isinstance(item, Undecoded):
                undecoded.append(item)
            elif item is not None:
                objects.append(item)
    return objects, undecoded, version


def decoded_object(
    decoder: msgspec.json.Decoder[T], path: str, raw: msgspec.Raw
) -> T | Undecoded | None:
    """Decodes one object; ``None``: it has no name."""
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        why = str(error)
    try:
        named = msgspec.json.decode(raw, type=_Named).metadata
    except msgspec.ValidationError:
        _log.warning("%s: an object without a name is ignored: %s", path, why)
        return None
    # A copy, because a view would keep the whole page in memory.
    return Undecoded(named, raw.copy(), why)


def pages(
    server: ApiServer,
    path: str,
    query: Mapping[str, str],
    left_s: Callable[[], float],
    limit: int = PAGE,
) -> Iterator[Page]:
    """The pages of a list; each request may take ``left_s()``, which may raise."""
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
    """Reads one page: the first, or the one that ``continue_`` of the previous page names.

    An answer with status 200 that is not a list must not count as an empty list: all cards would
    look free.
    """
    query = {**query, "limit": str(limit), **({"continue": rest} if rest else {})}
    page = decoded(server.get(path, query, deadline_s=deadline_s), Page)
    version = page.metadata.resource_version
    if not page.kind.endswith("List") or not version:
        why = f"the answer is not a list (kind {page.kind!r}, version {version!r})"
        raise Unavailable(f"GET {path}", why, "try again later")
    return page


def decoded(data: bytes | msgspec.Raw, kind: type[T]) -> T:
    """Decodes an answer of the API server.

    Raises:
        Unavailable: it does not match the type.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unavailable("the API server's answer", str(error), "try again later") from error
