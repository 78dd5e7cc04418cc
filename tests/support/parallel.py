"""Two test processes side by side (pytest-xdist), as deterministic as one.

    pytest -n 2

A file runs in one process, so that what its tests share is made once. `@pytest.mark.alone` is for a
test that measures time on the real clock, or compares what there is on the machine: no other test
runs meanwhile. Such files come last. The slowest files come first, as far as
docs/results/check.json names their tests, so that the processes end together.

Files share nothing else of the machine: their ports, addresses and folders differ by the number of
the test process (`processes`), by a process's own, or are pytest's temporary folders.
"""

from __future__ import annotations

import fcntl
import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.processes import shared_folder

RECORD = Path(__file__).parents[2] / "docs" / "results" / "check.json"

_SHARED = pytest.StashKey[tempfile.TemporaryDirectory[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "alone: no other test runs meanwhile")
    if config.getoption("numprocesses", default=None):
        config.option.dist = "loadfile"
        # The order is ours.
        config.option.loadscopereorder = False
        config.stash[_SHARED] = tempfile.TemporaryDirectory(prefix="hami-tests-")


def pytest_unconfigure(config: pytest.Config) -> None:
    if _SHARED in config.stash:
        config.stash[_SHARED].cleanup()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["shared_folder"] = node.config.stash[_SHARED].name


# After the tiers' hook: deselected tests have no place in the order.
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the files."""
    if shared_folder(config) is None:
        return
    seconds = _recorded()
    total: dict[str, float] = defaultdict(float)
    for item in items:
        total[_file(item)] += seconds[item.nodeid]
    alone = {_file(item) for item in items if item.get_closest_marker("alone")}
    # Stable: in a file the tests keep their order.
    items.sort(key=lambda item: (_file(item) in alone, -total[_file(item)]))


def _file(item: pytest.Item) -> str:
    return item.nodeid.split("::", 1)[0]


def _recorded() -> dict[str, float]:
    """Seconds by test, of the slowest, with their fixtures."""
    seconds: dict[str, float] = defaultdict(float)
    if RECORD.is_file():
        for row in json.loads(RECORD.read_text())["rows"]:
            seconds[row["name"].removesuffix(" (fixtures)")] += row["value"]
    return seconds


# Outermost: the wait is in no test's time limit.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """All tests hold one lock together; a test that must be alone holds it for itself."""
    folder = shared_folder(item.config)
    if folder is None:
        return (yield)
    with (folder / "lock").open("a") as lock:
        alone = item.get_closest_marker("alone") is not None
        fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        try:
            return (yield)
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)
