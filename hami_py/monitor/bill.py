"""The cost of the cards of a month, by the records of Prometheus.

The chart's rules record the cards that pods have, in parts. Their value at each full minute counts
for the minute before it. Days are read one by one, because Prometheus limits how many samples a
query reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import NamedTuple

from hami_py.errors import InvalidValue
from hami_py.monitor.prometheus import Prometheus

_MINUTE_S = 60
_DAY_S = 86_400
_USE_S = 900
"""The use of a pod is an average of this time, so it is recorded for so long after the pod."""


class Row(NamedTuple):
    """Card-hours of one model; ``names`` are the values of the labels that tell rows apart."""

    names: tuple[str, ...]
    model: str
    reserved: float
    used: float


class Bill(NamedTuple):
    """The rows by names and model, and the times that Prometheus lacks, in seconds since 1970."""

    rows: list[Row]
    missing: list[tuple[int, int]]


def labels_of(by: str) -> tuple[str, ...]:
    """The labels that tell rows apart: ``by`` is namespace, pod, or label:KEY, a label of pods.

    Raises:
        InvalidValue: it is another text.
    """
    kind, _, key = by.partition(":")
    if by in ("namespace", "pod"):
        return ("namespace", "pod")[: 1 + (by == "pod")]
    if kind != "label" or not key:
        raise InvalidValue("--by", by, "write namespace, pod, or label:KEY, like label:team")
    # As kube-state-metrics names it.
    return ("label_" + re.sub("[^a-zA-Z0-9_]", "_", key),)


def month_of(month: datetime, now_s: float) -> tuple[int, int]:
    """The beginning and the end of the month of a date, in UTC, but not after the last full minute.

    Raises:
        InvalidValue: it has not begun.
    """
    first = datetime(month.year, month.month, 1, tzinfo=timezone.utc)
    after = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    start_s, now_s = int(first.timestamp()), int(now_s) // _MINUTE_S * _MINUTE_S
    if now_s <= start_s:
        raise InvalidValue("--month", f"{first:%Y-%m}", "choose a month that has begun")
    return start_s, min(int(after.timestamp()), now_s)


def read_bill(
    prometheus: Prometheus, labels: Sequence[str], namespace: str | None, start_s: int, end_s: int
) -> Bill:
    """Read the card-hours between two full minutes; ``namespace``: None = of all.

    Raises:
        StateError: Prometheus does not answer a query.
    """
    only = "" if namespace is None else f'{{namespace="{namespace}"}}'
    sums: dict[tuple[tuple[str, ...], str], list[float]] = {}
    minutes: list[int] = []
    for from_s in range(start_s, end_s, _DAY_S):
        to_s = min(from_s + _DAY_S, end_s)
        times = {"start": str(from_s + _MINUTE_S), "end": str(to_s), "step": str(_MINUTE_S)}
        for series in prometheus.ask("query_range", query="max(hami:cards:count)", **times):
            minutes += [int(at) for at, _ in series.values]
        for column, cards in enumerate(("cards:sum", "cards_used:sum")):
            query = _hours(labels, cards, only, to_s - from_s)
            for series in prometheus.ask("query", query=query, time=str(to_s)):
                names = tuple(series.metric.get(label, "") for label in labels)
                row = sums.setdefault((names, series.metric.get("modelName", "")), [0.0, 0.0])
                row[column] += float(series.value[1])
    return Bill([Row(*key, *sums[key]) for key in sorted(sums)], [*_gaps(minutes, start_s, end_s)])


def _hours(labels: Sequence[str], cards: str, only: str, seconds: int) -> str:
    """A query for the card-hours of the last seconds, which end at a full minute."""
    *_, label = labels
    recorded = f"hami:{'namespace' if label == 'namespace' else 'pod'}_{cards}{only}"
    # A second less, because Prometheus 2 counts the beginning of a range, and 3 does not.
    hours = f"sum_over_time({recorded}[{seconds - 1}s:{_MINUTE_S}s]) / 60"
    if label.startswith("label_"):
        pods = f"last_over_time(kube_pod_labels{only}[{seconds + _USE_S}s])"
        known = f"{hours} * on (namespace, pod) group_left ({label}) "
        known += f"topk by (namespace, pod) (1, {pods})"
        hours = f"{known} or on (Hostname, modelName, namespace, pod) {hours}"
    return f"sum by ({', '.join(labels)}, modelName) ({hours})"


def _gaps(minutes: Sequence[int], start_s: int, end_s: int) -> Iterator[tuple[int, int]]:
    """The times between the minutes; a minute is named by its end."""
    last_s = start_s
    for at_s in (*minutes, end_s + _MINUTE_S):
        if at_s - _MINUTE_S > last_s:
            yield last_s, at_s - _MINUTE_S
        last_s = at_s
