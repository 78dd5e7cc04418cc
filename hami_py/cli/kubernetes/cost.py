"""``hami cost``: what namespaces, pods or teams have to pay for their parts of cards."""

from __future__ import annotations

import csv
import json
import math
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timezone

import click

from hami_py.cli.output import align, report
from hami_py.cli.service import kubernetes_extra
from hami_py.errors import InvalidValue, StateError
from hami_py.model import check_object_name, legible

_SUMS = ("reserved_card_hours", "used_card_hours", "cost")
_HEADS = ("RESERVED CARD-h", "USED CARD-h", "COST")

_SHOWN_GAPS = 3


@click.command()
@click.option("--prometheus", "url", required=True, metavar="URL", help="Prometheus' address.")
@click.option("--namespace", "-n", help="Only this namespace.")
@click.option(
    "--month", type=click.DateTime(("%Y-%m",)), help="In UTC, like 2026-11. Default: this month."
)
@click.option(
    "--by",
    default="namespace",
    show_default=True,
    metavar="namespace|pod|label:KEY",
    help="What a row is about. Labels of pods need kube-state-metrics.",
)
@click.option(
    "--price",
    "prices",
    multiple=True,
    metavar="MODEL=AMOUNT",
    help="What an hour of a whole card of the model costs. Can be repeated.",
)
@click.option("--format", "form", type=click.Choice(("table", "csv", "json")), default="table")
def cost(
    *,
    url: str,
    namespace: str | None,
    month: datetime | None,
    by: str,
    prices: Sequence[str],
    form: str,
) -> None:
    """Show what parts of cards have cost in a month, by the chart's rules in Prometheus.

    RESERVED is what pods had, whether they used it or not: of each card the larger one of their
    parts of the memory and of the time, over time. COST is RESERVED times the price. USED is the
    time of cards that programs have used; without a share it is not always measured.
    """
    price_of = dict(map(_price, prices))
    if namespace is not None:
        check_object_name("--namespace", namespace)
    with kubernetes_extra():
        from hami_py.monitor.bill import labels_of, month_of, read_bill  # noqa: PLC0415
        from hami_py.monitor.prometheus import Prometheus  # noqa: PLC0415

        labels, server = labels_of(by), Prometheus(url)
        start_s, end_s = month_of(month or datetime.now(timezone.utc), time.time())
        bill = read_bill(server, labels, namespace, start_s, end_s)
    if bill.missing == [(start_s, end_s)]:
        why = f"it has no hami:cards:count from {_utc(start_s)} to {_utc(end_s)}"
        fix = "give it the rules of deploy/chart/files/rules.yaml, or choose another month"
        raise StateError(f"Prometheus at {server.url}", why, fix)
    _report_missing(bill.missing, end_s - start_s)
    for model in sorted({row.model for row in bill.rows} - {*price_of}) if price_of else ():
        report(f"no --price for {legible(model)!r}: its card-hours have no cost")
    costs = [
        row.reserved * price_of[row.model] if row.model in price_of else None for row in bill.rows
    ]
    heads = (*labels, "model", *_SUMS)
    rows = [
        (*row.names, row.model, row.reserved, row.used, each)
        for row, each in zip(bill.rows, costs, strict=True)
    ]
    if form == "json":
        found = {
            **{"from": _utc(start_s), "to": _utc(end_s)},
            "missing": [list(map(_utc, gap)) for gap in bill.missing],
            "rows": [dict(zip(heads, row, strict=True)) for row in rows],
        }
        click.echo(json.dumps(found, indent=2))
    elif form == "csv":
        csv.writer(sys.stdout).writerows((heads, *rows))
    else:
        known = [each for each in costs if each is not None]
        sums = (
            math.fsum(row.reserved for row in bill.rows),
            math.fsum(row.used for row in bill.rows),
        )
        total = ("TOTAL", *[" "] * len(labels), *sums, math.fsum(known) if known else None)
        upper = [*(head.upper() for head in heads[:-3]), *_HEADS]
        click.echo("\n".join(align([upper, *(list(map(_shown, row)) for row in (*rows, total))])))


def _price(text: str) -> tuple[str, float]:
    model, _, amount = text.rpartition("=")
    with suppress(ValueError):
        if model and 0 <= float(amount) < math.inf:
            return model, float(amount)
    raise InvalidValue("--price", text, "write MODEL=AMOUNT, like 'NVIDIA A100-SXM4-80GB=2.50'")


def _report_missing(missing: Sequence[tuple[int, int]], seconds: int) -> None:
    """Name the times that the bill leaves out."""
    if missing:
        named = [f"{_utc(start)} to {_utc(end)}" for start, end in missing[:_SHOWN_GAPS]]
        if len(missing) > len(named):
            named.append(f"and {len(missing) - len(named)} more times")
        lacks = sum(end - start for start, end in missing) / 3600
        of = f"{lacks:.1f} h of {seconds / 3600:.1f} h"
        report(f"not billed: Prometheus has no data for {of}: {', '.join(named)}")


def _utc(instant_s: int) -> str:
    return f"{datetime.fromtimestamp(instant_s, timezone.utc):%Y-%m-%dT%H:%MZ}"


def _shown(value: str | float | None) -> str:
    return f"{value:.2f}" if isinstance(value, float) else legible(value or "") or "-"
