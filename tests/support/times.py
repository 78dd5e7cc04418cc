"""`--times FILE` writes how long each test took: set-up, the test and what follows, in seconds."""

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
        self._seconds: dict[str, float] = defaultdict(float)
        self._begin = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # pytest-xdist adds the group to the name.
        name = report.nodeid
        group = name.rfind("@")
        if group > name.rfind("]"):
            name = name[:group]
        self._seconds[name] += report.duration

    def pytest_sessionfinish(self) -> None:
        tests = {name: round(seconds, 3) for name, seconds in self._seconds.items()}
        whole = round(time.monotonic() - self._begin, 1)
        self._file.write_text(json.dumps({"seconds": whole, "tests": tests}))
