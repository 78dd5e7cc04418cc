"""Containers that start: on which cards, and what is known of them after that."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hami_py._native import LimitsPage
from hami_py.agent import preparation
from hami_py.agent.holds import EVICT_AFTER_S, Holds
from hami_py.agent.preparation import Preparation
from hami_py.agent.state import NodeState
from hami_py.errors import StateError
from hami_py.model import gang_of_namespace
from hami_py.node.devices import DeviceRecord
from hami_py.plugin.service import NotYet
from unit.agent.build import pod, record, settings, state
from unit.node.build import on

Start = Callable[[DeviceRecord], None]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def node(tmp_path: Path) -> NodeState:
    return state(settings(tmp_path), "A", "B")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def holds(clock: Clock) -> Holds:
    return Holds(clock)


@pytest.fixture
def start(node: NodeState, holds: Holds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """`start(record)`: the kubelet starts the container of this record of its own."""
    answers: Any = None
    prepared = Preparation(settings(tmp_path), node, answers, holds)

    def start(of: DeviceRecord) -> None:
        monkeypatch.setattr(preparation, "read_records", lambda *_: [of])
        prepared.pre_start([*of.ids])

    return start


SIDECAR = {"initContainers": [{"name": "side", "restartPolicy": "Always"}]}


def sidecar(**ended: int) -> dict[str, Any]:
    """The status of a sidecar."""
    return {"initContainerStatuses": [{"name": "side", "state": {"terminated": ended or None}}]}


def test_a_sidecar_that_restarts_keeps_its_card(node: NodeState, start: Start) -> None:
    mine = {"side": on("B", 7000)}
    node.pods.changed(pod("p", mine, spec=SIDECAR, status=sidecar()))
    node.pods.changed(pod("q", {"main": on("A", 7000)}))
    start(record("p", "side", "B::0"))
    # Between its end and its restart the kubelet reports that it has ended.
    node.pods.changed(pod("p", mine, spec=SIDECAR, status=sidecar(exitCode=0)))
    with pytest.raises(NotYet):
        start(record("q", "main", "B::1"))
    start(record("p", "side", "B::0"))
    assert {slot: entry.cards for slot, entry in node.ledger.entries.items()} == {
        "p-side": (on("B", 7000),)
    }


def test_init_containers_that_may_run_again_keep_their_card(node: NodeState, start: Start) -> None:
    """In a new sandbox they do, unless the pod is never restarted."""
    mine = {"init": on("B", 7000), "main": on("B", 1000)}
    first = {"initContainers": [{"name": "init"}], "containers": [{"name": "main"}]}
    done = {
        "initContainerStatuses": [{"name": "init", "state": {"terminated": {"exitCode": 0}}}],
        "conditions": [{"type": "Initialized", "status": "True"}],
    }
    node.pods.changed(pod("p", mine, spec=first))
    start(record("p", "init", "B::0"))
    node.pods.changed(pod("p", mine, spec=first, status=done))
    start(record("p", "main", "B::0"))
    node.pods.changed(pod("q", {"main": on("A", 7000)}))
    with pytest.raises(NotYet):
        start(record("q", "main", "B::1"))
    never = {**first, "restartPolicy": "Never"}
    node.pods.changed(pod("p", mine, spec=never, status=done))
    start(record("q", "main", "B::1"))
    assert node.ledger.entries["q-main"].cards == (on("B", 7000),)
    assert node.ledger.changed.keys() == {"q"}, "p's init container had card B"


def test_a_container_that_runs_after_a_wait_is_not_evicted(
    node: NodeState, holds: Holds, clock: Clock, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.pods.changed(pod("p", {"main": on("A", 6000)}))
    node.pods.changed(pod("q", {"main": on("B", 6000)}))
    start(record("q", "main", "B::0"))
    with pytest.raises(NotYet):
        start(record("p", "main", "B::1"))
    node.pods.changed(pod("q", {}, status={"phase": "Succeeded"}))
    node.ledger.remove(["q-main"])

    def fails(*_: object) -> None:
        raise StateError("the slot", "No space left on device", "free some space")

    with monkeypatch.context() as full:
        full.setattr(node.slots, "ensure", fails)
        with pytest.raises(NotYet, match="No space"):
            start(record("p", "main", "B::1"))
    start(record("p", "main", "B::1"))
    clock.now = EVICT_AFTER_S + 1
    assert holds.to_evict(node.pods.get) is None
    assert holds.all() == []


GPU = {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ({"hami.io/gang": "job"}, "job"),
        ({"hami.io/gang": ""}, None),
        ({}, None),
        # The webhook refuses it, and its author has changed it after that.
        ({"hami.io/gang": "a b"}, None),
    ],
    ids=str,
)
def test_the_gang_of_a_pod_is_on_its_container_s_limits_page(
    node: NodeState,
    start: Start,
    tmp_path: Path,
    written: dict[str, str],
    name: str | None,
) -> None:
    node.pods.changed(pod("p", {"main": on("A", 1000)}, spec=GPU, annotations=written))
    start(record("p", "main", "A::0"))
    gang = gang_of_namespace("default", name) if name else None
    page = settings(tmp_path).paths.slots / "p-main" / "limits"
    assert node.ledger.entries["p-main"].gang == name
    assert LimitsPage.open(page).gang() == gang
    # After a reboot the slot is made again, from the ledger alone.
    node.slots.remove("p-main")
    node.pods.changed(pod("p", {"main": on("A", 1000)}, spec=GPU))
    start(record("p", "main", "A::0"))
    assert LimitsPage.open(page).gang() == gang
