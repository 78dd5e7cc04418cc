"""Measures a Prometheus scrape of a large cluster, and the filters that run at the same time."""

import threading
import time
from collections.abc import Callable

import msgspec

from bench.results import Row
from bench.rows import percentile
from bench.scheduler_rows import row
from bench.scheduler_state import KINDS, Size, fill, node_name, request
from hami_py._native import Allocator
from hami_py.model.pods import wire

_FILTERS = 400


def scrape(size: Size, runs: int) -> list[Row]:
    """Processor time of what is told by node and by card, and its bytes."""
    allocator = Allocator.restore(fill(size).snapshot)
    rows = [row("filter, nobody scrapes, p50", [_filters(allocator, size)], "ms", n=_FILTERS)]
    for what, metrics in (("node", allocator.node_metrics), ("card", allocator.card_metrics)):
        took = []
        for _ in range(runs):
            began = time.thread_time()
            written = metrics()
            took.append((time.thread_time() - began) * 1e3)
        rows += [
            row(f"a scrape by {what}, processor time, {size}", took, "ms"),
            row(f"a scrape by {what}, size", [len(written) / 1e6], "MB"),
            row(
                f"filter, scraped by {what} without a pause, p50",
                [_scraped(metrics, lambda: _filters(allocator, size))],
                "ms",
                n=_FILTERS,
            ),
        ]
    return rows


def _scraped(metrics: Callable[[], bytes], work: Callable[[], float]) -> float:
    ends = threading.Event()

    def scrapes() -> None:
        while not ends.is_set():
            metrics()

    thread = threading.Thread(target=scrapes)
    thread.start()
    try:
        return work()
    finally:
        ends.set()
        thread.join()


def _filters(allocator: Allocator, size: Size) -> float:
    names = msgspec.json.encode([node_name(at) for at in range(size.nodes)])
    took = []
    for at in range(_FILTERS):
        asked = wire.encode(request(size.pods + at, KINDS[at % len(KINDS)]))
        began = time.perf_counter()
        allocator.filter_names(asked, names, 0)
        took.append((time.perf_counter() - began) * 1e3)
    return percentile(took, 50)
