"""Worlds of containers that share cards; their programs are compiled once."""

from collections.abc import Callable
from pathlib import Path

import pytest

from support.artifacts import Artifacts
from support.world import Kit, World


@pytest.fixture(scope="session")
def kit(artifacts: Artifacts, compiled_folder: Path) -> Kit:
    """The programs."""
    return Kit.in_folder(artifacts, compiled_folder)


@pytest.fixture
def world(kit: Kit, tmp_path: Path) -> Callable[..., World]:
    """``world(cards="a100,a100")`` is a place for containers, on the virtual clock."""

    def make(**options: object) -> World:
        return World(kit, tmp_path, **options)

    return make
