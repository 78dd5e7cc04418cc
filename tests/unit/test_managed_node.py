"""`hami run` on a node of Kubernetes whose agent schedules the cards."""

import fcntl
from dataclasses import replace
from pathlib import Path

import pytest

from hami_py import config
from hami_py.coordinator import LOCK
from hami_py.errors import StateError
from hami_py.slices.coordinator import require_unmanaged


@pytest.fixture
def settings(tmp_path: Path) -> config.Settings:
    return replace(config.read({}), node_runtime=tmp_path)


def test_no_share_is_scheduled_beside_a_node_agent(settings: config.Settings) -> None:
    with (settings.node_runtime / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StateError, match="the node agent of Kubernetes schedules the cards"):
            require_unmanaged(settings)


def test_a_lock_that_an_agent_has_left_is_no_agent(settings: config.Settings) -> None:
    (settings.node_runtime / LOCK).touch()
    require_unmanaged(settings)


def test_a_machine_without_an_agent_is_fine(settings: config.Settings) -> None:
    require_unmanaged(settings)
    require_unmanaged(replace(settings, node_runtime=settings.node_runtime / "none"))
