"""What is followed on the API server, and what whoever keeps the copy is told.

An object that cannot be decoded is not one that is absent: what holds cards would look gone. So it
is told of, too: that it is there, and which it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import msgspec

from hami_py.kube.server import ApiServer

__all__ = ["Followed", "Naming", "Sink", "Undecoded"]

T = TypeVar("T")


class Naming(msgspec.Struct):
    """What an object is called (``ObjectMeta``)."""

    name: str = ""
    namespace: str | None = None
    uid: str | None = None


class Undecoded(msgspec.Struct, frozen=True):
    """An object that is not as its kind says.

    Attributes:
        metadata: which it is.
        raw: all of it, as JSON.
        why: what is wrong with it, in a line.
    """

    metadata: Naming
    raw: msgspec.Raw
    why: str = ""

    @property
    def name(self) -> str:
        """As kubectl's users write it, with the namespace if it has one."""
        there = self.metadata
        return f"{there.namespace}/{there.name}" if there.namespace else there.name


class Sink(Protocol[T]):
    """Whoever keeps the copy. Called by one thread, the reflector's."""

    def replace(self, objects: list[T], undecoded: Sequence[Undecoded] = ()) -> None:
        """These are all there are."""

    def changed(self, item: T) -> None:
        """This one came, or is now so."""

    def undecoded(self, item: Undecoded) -> None:
        """This one came, or changed, and nobody can say how it is now."""

    def gone(self, item: T | Undecoded) -> None:
        """This one is gone; it is given as it was last."""


@dataclass(frozen=True)
class Followed(Generic[T]):
    """What is followed, and for whom.

    Attributes:
        server: the API server.
        path: of the list.
        kind: what its objects are decoded as: a type with the fields that are read.
        sink: whoever keeps the copy.
        query: selectors.
    """

    server: ApiServer
    path: str
    kind: type[T]
    sink: Sink[T]
    query: Mapping[str, str] = field(default_factory=dict)
