"""Assignments that have changed on a node reach the API server, each by itself."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hami_py.agent import reporter
from hami_py.agent.holds import Holds
from hami_py.agent.reporter import Reporter
from hami_py.agent.state import NodeState
from hami_py.errors import StateError
from hami_py.kube import EventWriter, events
from hami_py.model.pods import encode_assignment
from hami_py.model.pods.annotations import ASSIGNMENT
from hami_py.model.pods.wire import Assignment, CardAllocation
from hami_py.node.decision import Hold
from support.launcher import until
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


def test_a_pod_that_waits_is_told_once_in_ten_minutes_although_the_free_memory_changes(
    node: NodeState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.pods.changed(pod("p", {"main": on("A")}))
    posted: list[str] = []
    api: Any = SimpleNamespace(post=lambda _, body, **__: posted.append(body["message"]))
    writer, holds = EventWriter(api, "hami-node", "n1"), Holds()
    report = Reporter(api, settings(tmp_path), node, holds, writer)._report_holds
    with monkeypatch.context() as patched:
        for second in range(650):
            patched.setattr(events.time, "monotonic", lambda now=second: float(now))
            holds.hold("p", "main", Hold(f"card A has {second} MiB free, and 5000 are needed"))
            report()
        holds.hold("p", "main", Hold("card A is not on this node any more", "delete the pod"))
        report()
    writer.start()
    until(lambda: len(posted) == 3, "three events are written")
    writer.stop()
    assert posted == [
        "container main waits: card A has 0 MiB free, and 5000 are needed; "
        "do nothing: the kubelet asks again",
        "container main waits: card A has 600 MiB free, and 5000 are needed; "
        "do nothing: the kubelet asks again",
        "container main waits: card A is not on this node any more; delete the pod",
    ]
