"""The objects to follow on the API server, and the interface of their receiver.

An object that cannot be decoded must not count as absent: cards in use would look free. So the
receiver gets it as ``Undecoded``, with its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import msgspec

from hami_py.kube.server import ApiServer

T = TypeVar("T")


class Naming(msgspec.Struct, frozen=True):
    """The names of an object (``ObjectMeta``)."""

    name: str = ""
    namespace: str | None = None
    uid: str | None = None


class Undecoded(msgspec.Struct, frozen=True):
    """An object that does not match its type.

    Attributes:
        raw: the whole object as JSON.
    """

    metadata: Naming
    raw: msgspec.Raw
    why: str = ""

    @property
    def name(self) -> str:
        """``name``, or ``namespace/name`` if it has a namespace."""
        there = self.metadata
        return f"{there.namespace}/{there.name}" if there.namespace else there.name


class Sink(Protocol[T]):
    """The receiver, which keeps the copy. Only the reflector's thread calls it."""

    def replace(self, objects: list[T], undecoded: Sequence[Undecoded] = ()) -> None:
        """Takes a whole list; objects that are not in it were deleted."""

    def changed(self, item: T) -> None:
        """Takes an object that is new or changed."""

    def undecoded(self, item: Undecoded) -> None:
        """Takes an object that is new or changed and cannot be decoded."""

    def deleted(self, item: T | Undecoded) -> None:
        """Takes the deletion of an object, with its last content."""


@dataclass(frozen=True)
class Followed(Generic[T]):
    """A kind of object to follow, and its receiver.

    Attributes:
        kind: the type of its objects, with the fields to decode.
    """

    server: ApiServer
    path: str
    kind: type[T]
    sink: Sink[T]
    query: Mapping[str, str] = field(default_factory=dict)
