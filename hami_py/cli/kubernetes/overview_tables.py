"""The tables of ``hami inspect``, ``hami top node``, ``hami top pod`` and ``hami quota``. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from hami_py.cli.output import align
from hami_py.cli.values import OF_CLUSTER, written
from hami_py.model import SliceUse, legible
from hami_py.model.columns import CARDS, Column, Value, columns, orders
from hami_py.overview import NamespaceReport, NodeReport, Overview, WaitingPod

_MOST_WAITING = 10
"""The waiting pods that are shown without ``-d``."""

N = TypeVar("N", int, float)
R = TypeVar("R")


def inspect_lines(overview: Overview, *, details: bool, wide: bool) -> Iterator[str]:
    """The table that users of ``kubectl inspect cgpu`` know, with what is used."""
    if overview.nodes:
        if details:
            for node in overview.nodes:
                yield from _details(node, overview.containers)
        else:
            table = list(
                align([_heads(overview.nodes), *map(_cells(overview.nodes), overview.nodes)])
            )
            yield from table
            yield "-" * max(map(len, table))
        yield from _totals(overview.nodes)
    elif overview.containers:
        # The nodes cannot be read; the user's own pods can.
        yield from pod_lines(overview.containers, "name")
    else:
        yield "no node has cards"
    yield from _waiting(overview.waiting, shows_all=details)
    if wide:
        yield ""
        yield from _card_lines(overview.nodes)
    yield from _remarks(overview.nodes)


def _width(nodes: Sequence[NodeReport]) -> int:
    return max((len(node.cards) for node in nodes), default=0)


def _heads(nodes: Sequence[NodeReport]) -> tuple[str, ...]:
    cards = (f"GPU{at}(Used/Allocated/Total)" for at in range(_width(nodes)))
    return ("NAME", "IPADDRESS", *cards, "CORES%", "MODE", "LEVEL", "GPU Memory(GiB)")


def _cells(nodes: Sequence[NodeReport]) -> Callable[[NodeReport], tuple[str, ...]]:
    width = _width(nodes)

    def cells(node: NodeReport) -> tuple[str, ...]:
        cards = [
            "/".join(map(_gib, (card.memory_used, card.memory_allocated, card.memory)))
            for card in node.cards
        ]
        cards += [""] * (width - len(cards))
        cores = "/".join(_percent(card.share_allocated) for card in node.cards)
        total = sum(card.memory for card in node.cards)
        memory = f"{_gib(_sum(card.memory_allocated for card in node.cards))}/{_gib(total)}"
        level = node.level or "-"
        return (node.name, node.address or "-", *cards, cores or "-", node.mode, level, memory)

    return cells


def _details(node: NodeReport, containers: Iterable[SliceUse]) -> Iterator[str]:
    yield f"NAME:      {node.name}"
    yield f"IPADDRESS: {node.address or '-'}"
    yield ""
    of_pods: dict[tuple[str, str], list[SliceUse]] = {}
    said: dict[str, str] = {}
    for each in containers:
        if each.node == node.name:
            of_pods.setdefault((each.pod, each.namespace), []).append(each)
            if each.enforcement is not None:
                said[_levels(each)] = each.enforcement
    heads = (f"GPU{at}(Used/Allocated)" for at in range(len(node.cards)))
    rows = [("NAME", "NAMESPACE", *heads, "LEVEL")]
    for names, have in of_pods.items():
        cells = []
        for card in node.cards:
            on = [each for each in have if each.use.uuid == card.uuid]
            used = _sum(each.use.memory_used if each.is_known else None for each in on)
            allocated = _sum(each.use.memory_limit for each in on)
            cells.append(f"{_gib(used)}/{_gib(allocated)}" if on else "0")
        rows.append((*names, *cells, ",".join(sorted({_levels(each) for each in have}))))
    yield from align(rows)
    yield from (f"{levels}: {why}" for levels, why in said.items())
    total = sum(card.memory for card in node.cards)
    allocated = _sum(card.memory_allocated for card in node.cards)
    yield f"Allocated : {_part(allocated, total)}"
    yield f"Total :     {_gib(total)}"
    yield "-" * 60


def _levels(each: SliceUse) -> str:
    return f"{each.level or '-'}/{each.time_level or '-'}"


def _totals(nodes: Iterable[NodeReport]) -> Iterator[str]:
    cards = [card for node in nodes for card in node.cards]
    total = sum(card.memory for card in cards)
    allocated = _sum(card.memory_allocated for card in cards)
    used = _sum((card.memory_used for card in cards), partly=True)
    text = f"{_gib(allocated)}/{_gib(total)}"
    if allocated is not None and total:
        text += f" ({round(100 * allocated / total)}%)"
    yield f"Allocated/Total GPU Memory In Cluster: {text}   Used: {_part(used, total)}"


def _part(amount: int | None, total: int) -> str:
    if amount is None or not total:
        return _gib(amount)
    return f"{_gib(amount)} ({round(100 * amount / total)}%)"


def _waiting(waiting: Sequence[WaitingPod], *, shows_all: bool) -> Iterator[str]:
    if not waiting:
        return
    reasons = Counter(pod.reason for pod in waiting)
    top = min(reasons, key=lambda reason: (-reasons[reason], reason))
    pods = "1 pod" if len(waiting) == 1 else f"{len(waiting)} pods"
    yield f"Pending: {pods} (top reason: {top})"
    shown = waiting if shows_all else waiting[:_MOST_WAITING]
    rows = [(pod.namespace, pod.pod, str(pod)) for pod in shown]
    yield from align([("NAMESPACE", "NAME", "REASON"), *rows])
    if len(shown) < len(waiting):
        yield f"not shown without -d: {len(waiting) - len(shown)} pods"


def _card_lines(nodes: Iterable[NodeReport]) -> Iterator[str]:
    shown = columns("cards", CARDS)
    rows = [[node.name, *_cells_of(shown, card)] for node in nodes for card in node.cards]
    yield from align([["NODE", *(column.heads["cards"] for column in shown)], *rows])


def _cells_of(columns: Iterable[Column], row: R) -> list[str]:
    return [written(column.value(row), column.unit, OF_CLUSTER) for column in columns]


def _remarks(nodes: Iterable[NodeReport]) -> Iterator[str]:
    for node in nodes:
        for card in node.cards:
            if card.state != "schedulable":
                yield f"{node.name}: GPU{_number(card.index)} ({card.uuid}) is {card.state}"
        if node.blocked:
            yield f"{node.name}: gets no new pods: {legible(node.blocked)}"
        if node.silent:
            yield f"{node.name}: its use is unknown: {legible(node.silent)}"


def pod_lines(rows: Sequence[SliceUse], order: str) -> Iterator[str]:
    """A line for each container and card, sorted by a column of ``orders("pods")``, or by name."""
    shown, by = columns("pods"), orders("pods").get(order)
    cells = [_cells_of(shown, row) for row in _sorted(rows, by.value if by else None)]
    yield from align([[column.heads["pods"] for column in shown], *cells])


def node_lines(nodes: Sequence[NodeReport], order: str) -> Iterator[str]:
    """A line for each node, with the sums over its cards; 100% is the time of one card."""
    shown, by = columns("nodes", CARDS), orders("nodes", CARDS).get(order)
    lines = [["NAME", "GPUS", *(column.heads["nodes"] for column in shown), "MODE", "LEVEL"]]
    for node in _sorted(nodes, partial(_total, by) if by else None):
        sums = [written(_total(column, node), column.unit, OF_CLUSTER) for column in shown]
        lines.append([node.name, str(len(node.cards)), *sums, node.mode, node.level or "-"])
    yield from align(lines)
    yield from _remarks(nodes)


def _total(column: Column, node: NodeReport) -> float | None:
    values = (column.value(card) for card in node.cards)
    return _sum(None if value is None else float(value) for value in values)


def _sorted(rows: Sequence[R], order: Callable[[R], Value] | None) -> list[R]:
    """The largest first, those that are unknown last; by name without an order."""

    def place(row: R) -> float:
        value = None if order is None else order(row)
        return 1.0 if value is None else -float(value)

    return sorted(rows, key=place)


_NAMESPACE_HEADS = (
    *("NAMESPACE", "QUOTA", "GPUS", "GPUS LIMIT", "MEMORY(GiB)", "MEMORY LIMIT(GiB)"),
    *("PEAK(GiB)", "WASTE(GiB)", "SHARE%", "SHARE LIMIT%"),
)


def namespace_lines(rows: Iterable[NamespaceReport]) -> Iterator[str]:
    """A line for each quota, and for each namespace without one."""
    lines = [_NAMESPACE_HEADS]
    for row in rows:
        waste = None if row.memory_peak is None else max(0, row.memory - row.memory_peak)
        lines.append(
            (
                *(row.namespace, row.quota or "-"),
                *(_number(row.cards), _number(row.cards_limit)),
                *(_gib(row.memory), _gib(row.memory_limit), _gib(row.memory_peak), _gib(waste)),
                *(_percent(row.share), _percent(row.share_limit)),
            )
        )
    yield from align(lines)


def _gib(memory: float | None) -> str:
    return written(memory, "bytes", OF_CLUSTER)


def _percent(share: float | None) -> str:
    return written(share, "part", OF_CLUSTER)


def _number(number: float | None) -> str:
    return written(number, "number", OF_CLUSTER)


def _sum(numbers: Iterable[N | None], *, partly: bool = False) -> N | None:
    """The sum; ``None`` if one is unknown, or with ``partly`` if all are."""
    known, count = [], 0
    for number in numbers:
        count += 1
        if number is not None:
            known.append(number)
    is_known = bool(known) or not count if partly else len(known) == count
    return sum(known[1:], known[0]) if is_known and known else (None if count else 0)
