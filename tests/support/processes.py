"""The test processes of one run: how many there are, and the folder that they share."""

import os
from pathlib import Path

import pytest


def number() -> int:
    """The number of this process, from 0 on."""
    return int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


def count() -> int:
    """How many there are."""
    return int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))


def shared_folder(config: pytest.Config) -> Path | None:
    """A folder that all of them see; None where there is one process."""
    found = getattr(config, "workerinput", {}).get("shared_folder")
    return Path(found) if found else None
