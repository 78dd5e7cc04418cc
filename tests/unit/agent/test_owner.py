"""The owner of a node's cards: by its label, on disk, and only changed on an empty node."""

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hami_py.agent.node import NodeStore, OwnNode
from hami_py.agent.owner import OwnerLabel, kept_owner
from hami_py.agent.publication import publish
from hami_py.agent.state import NodeState
from hami_py.kube import Event, Reference
from hami_py.model.pods import HAMI
from hami_py.node.ledger import Ledger
from hami_py.node.paths import Paths
from unit.agent.build import entry, settings, state
from unit.node.build import on

NODE = Reference("Node", "n1", "n1")


def labelled(owner: str | None, **more: Any) -> OwnNode:
    labels = {} if owner is None else {"hami.io/owner": owner}
    written = {"metadata": {"name": "n1", "labels": labels, **more.pop("metadata", {})}, **more}
    return msgspec.json.decode(json.dumps(written), type=OwnNode)


@pytest.fixture
def node(tmp_path: Path) -> NodeState:
    return state(settings(tmp_path), "A")


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return settings(tmp_path).paths


def kept(paths: Paths, node: OwnNode | None, stopping: threading.Event | None = None) -> str:
    """The owner of a node that the API server shows, or does not."""
    found = NodeStore(lambda: None)
    found.node = node
    return kept_owner(paths, Ledger(paths.ledger), found, stopping or threading.Event())


@pytest.mark.parametrize(
    ("label", "owner"), [(None, "hami"), ("hami", "hami"), ("others", "others"), ("x", "hami")]
)
def test_a_new_node_has_the_owner_of_its_label(paths: Paths, label: str, owner: str) -> None:
    assert kept(paths, labelled(label)) == owner


def test_a_new_node_waits_for_its_label(paths: Paths) -> None:
    nodes, stopping, found = NodeStore(lambda: None), threading.Event(), list[str]()
    arguments = (paths, Ledger(paths.ledger), nodes, stopping)
    waiting = threading.Thread(target=lambda: found.append(kept_owner(*arguments)))
    waiting.start()
    waiting.join(0.5)
    assert found == []
    nodes.node = labelled("others")
    waiting.join(10)
    assert found == ["others"]


@pytest.mark.parametrize("content", [b"", b"\xff", b"nvidia"])
@pytest.mark.parametrize(("claims", "owner"), [((), "hami"), ((("u", "r", "d"),), "others")])
def test_without_a_readable_file_the_ledger_says_whose_the_containers_are(
    paths: Paths, content: bytes, claims: tuple[tuple[str, str, str], ...], owner: str
) -> None:
    """Also on a node that an agent without owners has served, whatever its label is now."""
    paths.owner.write_bytes(content)
    Ledger(paths.ledger).put(entry("p", on("A", 1000), claims=claims))
    other = "others" if owner == "hami" else "hami"
    for node in (None, labelled(other)):
        assert kept(paths, node) == owner


def test_what_was_kept_counts_more_than_the_label(paths: Paths) -> None:
    paths.owner.write_text("others")
    assert kept(paths, labelled("hami")) == "others"


def test_an_agent_that_ends_does_not_wait(paths: Paths) -> None:
    stopping = threading.Event()
    stopping.set()
    assert kept(paths, None, stopping) == "hami"


def follow(node: NodeState, paths: Paths) -> tuple[list[str], int]:
    """Follow the label once: the events, and how often the agent was restarted."""
    events, restarts = list[Event](), list[None]()
    label = OwnerLabel(node, paths, events.append, NODE, lambda: restarts.append(None))
    label.follow()
    return [f"{event.reason}: {event.message}" for event in events], len(restarts)


def test_an_empty_node_follows_its_label(node: NodeState, paths: Paths) -> None:
    node.node.node = labelled("others")
    assert follow(node, paths) == ([], 1)
    assert kept(paths, None) == "others"


def test_a_node_whose_cards_are_used_keeps_its_owner(node: NodeState, paths: Paths) -> None:
    node.ledger.put(entry("p", on("A", 1000)))
    node.node.node = labelled("others")
    ((event,), restarts) = follow(node, paths)
    assert restarts == 0
    assert event == (
        "OwnerNotChanged: the node's cards stay those of hami, because pods have some, such as "
        "default/p; drain the node"
    )
    assert paths.owner.read_text() == "hami"


def test_a_wrong_label_changes_nothing(node: NodeState, paths: Paths) -> None:
    node.node.node = labelled("x")
    ((event,), restarts) = follow(node, paths)
    assert restarts == 0
    assert event.endswith('[hami.io/owner]: "x" is refused: write hami or others; it stays hami')


class Patched:
    """An API server that keeps what is patched."""

    def __init__(self) -> None:
        self.bodies: list[tuple[str, Any]] = []

    def patch(self, path: str, body: Mapping[str, Any], kind: str, *, deadline_s: float) -> bytes:
        self.bodies.append((path, body))
        return b"{}"


def test_a_node_of_others_publishes_nothing_and_withdraws_the_rest(node: NodeState) -> None:
    api: Any = Patched()
    node.owner = "others"
    amounts = {"nvidia.com/gpu": "8", "nvidia.com/gpumem": "8000", "cpu": "4"}
    status = {"capacity": amounts, "allocatable": amounts}
    node.node.node = labelled(
        "others", metadata={"annotations": {"hami.io/cards": "x"}}, status=status
    )
    publish(api, node, HAMI)
    (_, annotations), (_, resources) = api.bodies
    assert annotations["metadata"]["annotations"] == {"hami.io/cards": None}
    assert resources["status"]["capacity"] == {"nvidia.com/gpumem": None}
    node.node.node = labelled("others")
    publish(api, node, HAMI)
    assert len(api.bodies) == 2
