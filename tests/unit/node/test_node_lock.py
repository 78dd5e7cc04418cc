"""Who has the cards of a machine."""

import threading
from pathlib import Path

import pytest

from hami_py.errors import StateError
from hami_py.node.node_lock import node_lock
from hami_py.node.paths import Paths


@pytest.mark.parametrize("of", ["folder", "file"])
def test_a_lock_that_cannot_be_opened_is_an_error_with_a_fix(tmp_path: Path, of: str) -> None:
    paths = Paths(tmp_path / "run", tmp_path / "state")
    if of == "folder":
        paths.state.touch()
    else:
        paths.agent_lock.mkdir(parents=True)
    with (
        pytest.raises(StateError, match=f"{tmp_path}.*; run it as root"),
        node_lock(paths, threading.Event()),
    ):
        pass
