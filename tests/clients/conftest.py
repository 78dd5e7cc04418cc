"""The fixtures of the client tests: the directory in which `hami run` creates its slices."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support import coordinator


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Path]:
    """The value of HAMI_RUNTIME_DIR; a coordinator started there ends with the test."""
    path = tmp_path / "runtime"
    path.mkdir(mode=0o700)
    yield path
    coordinator.end(path / "hami")
