"""Two test processes side by side (pytest-xdist), as deterministic as one.

    pytest -n 2

A file runs in one process, so that what its tests share is made once. `@pytest.mark.group("name")`
keeps several files in one process, because their tests share a place of the machine.
`@pytest.mark.alone` is for a test that measures time on the real clock, or compares what there is
on the machine: no other test runs meanwhile. Such files come last. The slowest files come first, as
far as docs/results/check.json names their tests, so that the processes end together.
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
    config.addinivalue_line("markers", "group(name): these tests run in one process")
    config.addinivalue_line("markers", "alone: no other test runs meanwhile")
    if config.getoption("numprocesses", default=None):
        # The order is ours.
        config.option.loadscopereorder = False
        config.stash[_SHARED] = tempfile.TemporaryDirectory(prefix="hami-tests-")


def pytest_unconfigure(config: pytest.Config) -> None:
    if _SHARED in config.stash:
        config.stash[_SHARED].cleanup()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["shared_folder"] = node.config.stash[_SHARED].name


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """The tests of a group, or else of a file, go to one process."""
    from xdist.scheduler import LoadGroupScheduling

    class ByFile(LoadGroupScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            scope: str = super()._split_scope(nodeid)
            return scope if scope != nodeid else nodeid.split("::", 1)[0]

    return ByFile(config, log)


# After the tiers', before pytest-xdist's, which writes the groups into the tests' names.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the files, and tell pytest-xdist the groups."""
    if shared_folder(config) is None:
        return
    seconds = _recorded()
    total: dict[str, float] = defaultdict(float)
    for item in items:
        total[_unit(item)] += seconds.get(item.nodeid, 0.0)
    alone = {_unit(item) for item in items if item.get_closest_marker("alone")}
    # Stable: in a file the tests keep their order.
    items.sort(key=lambda item: (_unit(item) in alone, -total[_unit(item)]))
    for item in items:
        group = item.get_closest_marker("group")
        if group is not None:
            item.add_marker(pytest.mark.xdist_group(*group.args))


def _unit(item: pytest.Item) -> str:
    group = item.get_closest_marker("group")
    return f"@{group.args[0]}" if group else item.nodeid.split("::", 1)[0]


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
