"""Requests for other limits: judged once, and in force when they are reported so."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hami_py._native import LimitsPage
from hami_py.agent import resize
from hami_py.agent.resize import Resizer
from hami_py.agent.settings import AgentSettings
from hami_py.agent.state import NodeState
from hami_py.kube import Event
from hami_py.model.pods import PodSettings
from hami_py.model.pods.wire import CardAllocation
from unit.agent.build import entry, pod, settings, state
from unit.node.build import on

BEFORE = on("A", 6000, 30)


@pytest.fixture
def of(tmp_path: Path) -> AgentSettings:
    return settings(tmp_path)


@pytest.fixture
def node(of: AgentSettings) -> NodeState:
    """A node on which a container of the pod p runs."""
    node = state(of, "A")
    start(node, "p", BEFORE)
    return node


@pytest.fixture(autouse=True)
def _no_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resize, "list_objects", lambda *_, **__: ([], None))


def start(node: NodeState, uid: str, card: CardAllocation) -> None:
    node.pods.changed(pod(uid, {"main": card}))
    node.ledger.put(entry(uid, card))
    node.prepare(entry(uid, card))


def request(node: NodeState, wanted: CardAllocation) -> None:
    """Write the annotation."""
    card = {"card": wanted.card, "memory_mib": wanted.memory_mib, "cores": wanted.cores}
    text = json.dumps({"version": 1, "containers": {"main": [card]}})
    node.pods.changed(pod("p", {"main": BEFORE}, annotations={"hami.io/resize": text}))


def judge(node: NodeState) -> list[str]:
    """One round; what is told about each request."""
    api: Any = None
    told: list[Event] = []
    Resizer(api, PodSettings(), node, told.append).follow()
    return [f"{each.reason}: {each.message}" for each in told]


def refused(node: NodeState) -> str:
    """Why the only request is refused."""
    (told,) = judge(node)
    reason, _, why = told.partition(": ")
    assert reason == "ResizeRefused"
    return why


CHANGED = ["Resized: its limits were changed"]


def limit_mib(page: Path) -> int:
    limit = LimitsPage.open(page).rows()[0].memory_limit
    assert limit is not None
    return limit >> 20


def test_a_smaller_limit_is_in_force_and_is_judged_once(node: NodeState, of: AgentSettings) -> None:
    request(node, on("A", 2000, 30))
    assert judge(node) == CHANGED
    assert limit_mib(of.paths.slots / "p" / "limits") == 2000
    assert judge(node) == []


def test_a_page_that_a_container_uses_is_not_replaced(node: NodeState, of: AgentSettings) -> None:
    """A program of the container may damage its account, and repair it later."""
    mounted = of.paths.runtime / "mounted"
    os.link(of.paths.slots / "p" / "limits", mounted)
    os.truncate(of.paths.slots / "p" / "account", 10)
    request(node, on("A", 2000, 30))
    assert judge(node) == CHANGED
    assert limit_mib(mounted) == 2000


def test_a_limit_that_cannot_be_written_is_refused(
    node: NodeState, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError("Input/output error")

    monkeypatch.setattr(node.slots, "set_limits", fails)
    request(node, on("A", 2000, 30))
    assert "Input/output error" in refused(node)
    assert node.ledger.entries["p"].cards == (BEFORE,)
    bound = node.view().pods["p"]
    assert bound.assignment.containers["main"] == (BEFORE,)


def test_a_refused_request_is_not_applied_by_the_next_agent(
    node: NodeState, of: AgentSettings
) -> None:
    start(node, "q", on("A", 2000))
    request(node, on("A", 7000, 30))
    assert "7000" in refused(node)
    asked = node.pods.all()
    again = state(of, "A")
    again.ledger.remove(["q"])
    again.pods.replace([each for each in asked if each.uid == "p"])
    assert judge(again) == []
    request(again, on("A", 7001, 30))
    assert judge(again) == CHANGED


def test_a_time_limit_cannot_be_removed(node: NodeState) -> None:
    request(node, on("A", 6000, 0))
    assert refused(node).endswith("cores 0 would remove its time limit; request 1 to 100")
