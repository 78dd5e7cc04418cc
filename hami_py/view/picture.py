"""The contents of the page. Units are those of ``hami_py.overview``. Pure."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from hami_py.model import NodeCard, SliceUse
from hami_py.model.columns import Unit, Value, View, columns, record
from hami_py.monitor import History
from hami_py.overview import NamespaceReport, NodeReport, Overview, WaitingPod

_COMPRESSION = 1
"""The fastest: a picture of 200 nodes with 8 cards each is 20 times smaller with it."""


class EventPicture(msgspec.Struct, frozen=True):
    """An event.

    Attributes:
        at: its last time, in ISO 8601; empty: unknown.
    """

    at: str
    is_warning: bool
    kind: str
    namespace: str
    name: str
    reason: str
    message: str
    count: int = 1


class Head(msgspec.Struct, frozen=True):
    """A column of the table of containers.

    Attributes:
        key: the field of a container.
    """

    key: str
    text: str
    unit: Unit
    help: str


class Picture(msgspec.Struct, frozen=True):
    """All but the containers, which the page asks for when a node is opened.

    Attributes:
        title: the cluster's API server, or the machine.
        is_machine: it is one machine, whose containers are slices.
        user: the user's name; empty: there is none.
        nodes: the nodes with cards, by name.
        containers: how many containers each of them has on its cards, in the same order.
        namespaces: what namespaces have, and their quotas.
        events: the latest first.
        columns: those of the table of containers.
    """

    title: str
    is_machine: bool
    user: str
    nodes: tuple[NodeReport, ...] = ()
    containers: tuple[int, ...] = ()
    waiting: tuple[WaitingPod, ...] = ()
    namespaces: tuple[NamespaceReport, ...] = ()
    events: tuple[EventPicture, ...] = ()
    notes: tuple[str, ...] = ()
    columns: tuple[Head, ...] = ()


class NodePicture(msgspec.Struct, frozen=True):
    """A node that is open.

    Attributes:
        containers: those on its cards, by card, namespace, pod and name, with a field for each
            column of the table.
        history: its last hour; ``None``: unknown.
    """

    name: str
    containers: tuple[dict[str, Value], ...] = ()
    history: History | None = None


@dataclass(frozen=True)
class Shown:
    """A picture that is ready to be sent.

    Attributes:
        body: its JSON, compressed by gzip.
        tag: equal for equal pictures.
        at_s: when it was read, by the monotonic clock.
        containers: those of each node; every node of the picture is in it.
    """

    body: bytes
    tag: str
    at_s: float
    containers: dict[str, list[SliceUse]]


def picture(
    overview: Overview,
    at_s: float,
    *,
    title: str,
    is_machine: bool = False,
    user: str = "",
    events: Iterable[EventPicture] = (),
    notes: Iterable[str] = (),
) -> Shown:
    """The picture of a cluster."""
    by_node: dict[str, list[SliceUse]] = {node.name: [] for node in overview.nodes}
    for each in overview.containers:
        by_node.setdefault(each.node, []).append(each)
    known = {node.name: node for node in overview.nodes}
    nodes = [
        known.get(name) or _unknown(name, by_node[name], can_see_nodes=bool(known))
        for name in sorted({*known, *by_node})
    ]
    shown = Picture(
        title,
        is_machine,
        user,
        tuple(nodes),
        # One on two cards is listed twice.
        tuple(len({each.key[:3] for each in by_node[node.name]}) for node in nodes),
        overview.waiting,
        overview.namespaces,
        tuple(events),
        (*overview.notes, *notes),
        tuple(_heads("machine" if is_machine else "page")),
    )
    body = msgspec.json.encode(shown)
    tag = hashlib.sha256(body).hexdigest()[:32]
    return Shown(gzip.compress(body, _COMPRESSION, mtime=0), f'"{tag}"', at_s, by_node)


def _heads(view: View) -> Iterator[Head]:
    for column in columns(view):
        yield Head(column.key, column.heads[view], column.unit, column.help)


def node_picture(shown: Shown, name: str, history: History | None) -> bytes:
    """The JSON of a node that is open."""
    found = sorted(
        shown.containers.get(name, ()),
        key=lambda each: (each.use.index is None, each.use.index or 0, each.use.uuid),
    )
    return msgspec.json.encode(NodePicture(name, tuple(map(record, found)), history))


def _unknown(name: str, containers: Iterable[SliceUse], *, can_see_nodes: bool) -> NodeReport:
    """A node that may not be read, or has no cards: only cards with containers are known."""
    cards = {each.use.uuid: NodeCard(each.use.uuid, each.use.index, "", 0) for each in containers}
    return NodeReport(
        *(name, "", ""),
        cards=tuple(cards[uuid] for uuid in sorted(cards)),
        silent="the node publishes no cards" if can_see_nodes else "you may not see the node",
    )
