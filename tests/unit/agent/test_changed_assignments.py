"""Assignments that have changed on a node reach the API server, each by itself."""

from pathlib import Path
from typing import Any

import pytest

from hami_py.agent import resize
from hami_py.agent.resize import Resizer
from hami_py.agent.state import NodeState
from hami_py.errors import StateError
from hami_py.model.pods import encode_assignment
from hami_py.model.pods.annotations import ASSIGNMENT
from hami_py.model.pods.wire import Assignment, CardAllocation
from unit.agent.build import pod, settings, state
from unit.node.build import on

SMALL, LARGE = on("A", 1000), on("A", 2000)


@pytest.fixture
def node(tmp_path: Path) -> NodeState:
    return state(settings(tmp_path), "A", "B")


@pytest.fixture
def publish(tmp_path: Path, node: NodeState) -> Any:
    """One round."""
    nothing: Any = None
    return Resizer(nothing, settings(tmp_path).pods, node, nothing).publish


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The assignments that are written."""
    found: list[str] = []

    def patch(*_: object, annotations: dict[str, str], **__: object) -> None:
        found.append(annotations[ASSIGNMENT])

    monkeypatch.setattr(resize, "patch_metadata", patch)
    return found


def assignment(uid: str, card: CardAllocation) -> Assignment:
    return Assignment(1, uid, "n1", {"main": (card,)})


def test_a_pod_whose_assignment_is_refused_does_not_stop_the_others(
    node: NodeState, publish: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for uid in "abc":
        node.pods.changed(pod(uid, {"main": SMALL}))
    node.ledger.put(changed={uid: assignment(uid, LARGE) for uid in "abc"})
    written = []

    def patch(api: object, path: str, **_: object) -> None:
        if path.endswith("/a"):
            raise StateError("pod a", "metadata.annotations: Too long", "shorten them")
        written.append(path.rpartition("/")[2])

    monkeypatch.setattr(resize, "patch_metadata", patch)
    publish()
    assert written == ["b", "c"]


def test_an_assignment_is_written_until_the_api_server_shows_it(
    node: NodeState, publish: Any, written: list[str]
) -> None:
    node.pods.changed(pod("p", {"main": SMALL}))
    node.ledger.put(changed={"p": assignment("p", LARGE)})
    publish()
    publish()
    large = encode_assignment(assignment("p", LARGE))
    assert written == [large, large]
    node.pods.changed(pod("p", {"main": LARGE}))
    publish()
    assert written == [large, large]
    node.pods.changed(pod("p", {"main": SMALL}))
    publish()
    assert written == [large] * 3, "somebody has changed it"


def test_a_pod_that_gets_its_first_limits_back_is_written_again(
    node: NodeState, publish: Any, written: list[str]
) -> None:
    """The watch may show the first ones from before they were changed."""
    node.pods.changed(pod("p", {"main": SMALL}))
    node.ledger.put(changed={"p": assignment("p", LARGE)})
    publish()
    node.ledger.put(changed={"p": assignment("p", SMALL)})
    publish()
    node.pods.changed(pod("p", {"main": LARGE}))
    publish()
    assert written == [encode_assignment(assignment("p", card)) for card in (LARGE, SMALL)]


def test_nothing_is_written_about_a_pod_that_has_ended(
    node: NodeState, publish: Any, written: list[str]
) -> None:
    node.pods.changed(pod("p", {"main": SMALL}, status={"phase": "Failed"}))
    node.ledger.put(changed={uid: assignment(uid, LARGE) for uid in ("p", "deleted")})
    publish()
    assert written == []
