"""Assignments that have changed on a node reach the API server, each by itself."""

from pathlib import Path
from typing import Any

import pytest

from hami_py.agent import reporter
from hami_py.agent.holds import Holds
from hami_py.agent.reporter import Reporter
from hami_py.agent.state import NodeState
from hami_py.errors import StateError
from hami_py.model.pods import encode_assignment
from hami_py.model.pods.annotations import ASSIGNMENT
from hami_py.model.pods.wire import Assignment, CardAllocation
from unit.agent.build import pod, settings, state
from unit.node.build import on


@pytest.fixture
def node(tmp_path: Path) -> NodeState:
    return state(settings(tmp_path), "A", "B")


@pytest.fixture
def publish(tmp_path: Path, node: NodeState) -> Any:
    """One round of the reporter."""
    nothing: Any = None
    return Reporter(nothing, settings(tmp_path), node, Holds(), nothing).publish_assignments


def assignment(uid: str, **containers: CardAllocation) -> Assignment:
    return Assignment(1, uid, "n1", {name: (card,) for name, card in containers.items()})


def test_a_change_during_a_write_is_kept(
    node: NodeState, publish: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.pods.changed(pod("p", {"one": on("A"), "two": on("A")}))
    node.pods.changed(pod("q", {"main": on("A")}))
    shown = assignment("p", one=on("A"), two=on("A"))
    node.ledger.put(changed={"p": shown, "q": assignment("q", main=on("B"))})
    again = assignment("p", one=on("A"), two=on("B"))
    # The second container of p starts on another card while the assignment of q is written.
    monkeypatch.setattr(
        reporter, "patch_metadata", lambda *_, **__: node.ledger.put(changed={"p": again})
    )
    publish()
    assert node.ledger.changed["p"] == again


def test_a_pod_whose_assignment_is_refused_does_not_stop_the_others(
    node: NodeState, publish: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for uid in "abc":
        node.pods.changed(pod(uid, {"main": on("A")}))
    node.ledger.put(changed={uid: assignment(uid, main=on("B")) for uid in "abc"})
    written = []

    def patch(api: object, path: str, **_: object) -> None:
        if path.endswith("/a"):
            raise StateError("pod a", "metadata.annotations: Too long", "shorten them")
        written.append(path.rpartition("/")[2])

    monkeypatch.setattr(reporter, "patch_metadata", patch)
    publish()
    assert written == ["b", "c"]


def test_an_assignment_is_written_once_while_the_watch_does_not_show_it_yet(
    node: NodeState, publish: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.pods.changed(pod("p", {"main": on("A")}))
    node.ledger.put(changed={"p": assignment("p", main=on("B"))})
    now, written = [0.0], []
    monkeypatch.setattr(reporter.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(reporter, "patch_metadata", lambda *_, **__: written.append(now[0]))
    publish()
    publish()
    assert written == [0.0]
    node.ledger.put(changed={"p": assignment("p", main=on("C"))})
    publish()
    assert written == [0.0, 0.0], "another one is written at once"
    now[0] = 60.0
    publish()
    assert written == [0.0, 0.0, 60.0], "somebody has removed it"


def test_a_pod_that_gets_its_first_card_back_is_written_again(
    node: NodeState, publish: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.pods.changed(pod("p", {"main": on("A")}))
    written: list[str] = []

    def patch(*_: object, annotations: dict[str, str], **__: object) -> None:
        written.append(annotations[ASSIGNMENT])

    monkeypatch.setattr(reporter, "patch_metadata", patch)
    first, second = assignment("p", main=on("A")), assignment("p", main=on("B"))
    node.ledger.put(changed={"p": second})
    publish()
    # The watch still shows card A from before the first write.
    node.ledger.put(changed={"p": first})
    publish()
    publish()
    assert written == [encode_assignment(second), encode_assignment(first)]
    assert not node.ledger.changed
