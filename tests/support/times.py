"""`--times FILE` writes how many seconds each test took, and what is around it (its fixtures)."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--times", type=Path, help="the file for how long each test took, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    # With pytest-xdist, the process that reports, and not those that test.
    if config.getoption("times") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Times(config.getoption("times")))


class _Times:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._tests: dict[str, float] = {}
        self._around: dict[str, float] = defaultdict(float)
        self._begin = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self._tests[report.nodeid] = round(report.duration, 3)
        else:
            self._around[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        around = {name: round(seconds, 3) for name, seconds in self._around.items()}
        whole = round(time.monotonic() - self._begin, 1)
        found = {"seconds": whole, "tests": self._tests, "around": around}
        self._file.write_text(json.dumps(found))
