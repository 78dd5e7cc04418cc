"""The fixtures of the client tests: where `hami run` creates its slices, and its environment."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support import coordinator
from support.artifacts import Artifacts
from support.stub import StubServer


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Path]:
    """The value of HAMI_RUNTIME_DIR; a coordinator started there ends with the test."""
    path = tmp_path / "runtime"
    path.mkdir(mode=0o700)
    yield path
    coordinator.end(path / "hami")


@pytest.fixture
def env(artifacts: Artifacts, runtime: Path) -> Callable[[StubServer], dict[str, str]]:
    """`env(gpu)` is what `hami run` is run with."""
    ours = {"HAMI_LIBRARY": str(artifacts.library), "HAMI_RUNTIME_DIR": str(runtime)}
    return lambda gpu: {**gpu.env, **ours, "HOME": str(Path.home())}
