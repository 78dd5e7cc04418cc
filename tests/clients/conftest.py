"""What the tests of clients share: where `hami run` makes its slices."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support import coordinator


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Path]:
    """What XDG_RUNTIME_DIR names; a coordinator that it was given ends with the test."""
    path = tmp_path / "runtime"
    path.mkdir(mode=0o700)
    yield path
    coordinator.end(path / "hami")
