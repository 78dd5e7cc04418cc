"""The metrics of a container show only limits that are enforced."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hami_py.agent.figures import Figures
from hami_py.agent.observer import Observer
from hami_py.agent.state import NodeState
from hami_py.kube import Reference
from hami_py.model.limits import Mode
from hami_py.model.pods import PodSettings
from hami_py.model.pods.wire import NodeMode, PodName
from hami_py.monitor import ContainerFigures, NodeFigures
from hami_py.node.ledger import Entry
from unit.agent.build import LIBRARY, pod, settings, state
from unit.node.build import on


def exposed(folder: Path, of_pods: PodSettings) -> ContainerFigures:
    """The figures of a container that has not started."""
    node = state(replace(settings(folder), pods=of_pods), "A")
    node.pods.changed(pod("p", {"main": on("A", 3000, 30)}))
    (found,) = collected(node).containers
    return found


def collected(
    node: NodeState, beyond: dict[tuple[str | None, str], int] | None = None
) -> NodeFigures:
    about = Reference("Node", "n1", "n1")
    nothing: Any = None
    observer = Observer(node, nothing, about, nothing, slots=10)
    observer.beyond = beyond or {}
    return Figures("n1", node, observer).collect(registered=True, waiting=0)


@pytest.mark.parametrize(
    ("of_pods", "level", "share", "has_limit"),
    [
        (PodSettings(), "preload", 0.3, True),
        (PodSettings(core_policy="disable"), "preload", None, True),
        (PodSettings(library_directory="/opt/hami"), "none", None, False),
    ],
)
def test_a_limit_that_is_not_enforced_has_no_series(
    tmp_path: Path, of_pods: PodSettings, level: str, share: float | None, has_limit: bool
) -> None:
    found = exposed(tmp_path, of_pods)
    assert (found.level, found.share) == (level, share)
    assert (found.limit is not None) is has_limit


@pytest.mark.parametrize(("mode", "number"), [("full", 1), ("share", 0)])
def test_only_a_pod_with_limits_exceeds_them(tmp_path: Path, mode: NodeMode, number: int) -> None:
    node = state(settings(tmp_path), "A")
    node.pods.changed(pod("p", {"main": on("A")}))
    name, cards = PodName("p", "default", "p"), (on("A"),)
    node.ledger.put(Entry("p", name, "main", ("A::0",), cards, cards, LIBRARY, mode, "normal"))
    assert len(collected(node, {("p", "A"): 1 << 30}).excess) == number


@pytest.mark.parametrize(
    ("cores", "mode", "soft"), [(30, "soft", True), (30, "hard", False), (0, "soft", None)]
)
def test_a_share_is_shown_as_soft_or_hard(
    tmp_path: Path, cores: int, mode: Mode, soft: bool | None
) -> None:
    node = state(settings(tmp_path), "A")
    cards = (on("A", 3000, cores),)
    name = PodName("p", "default", "p")
    entry = Entry("p", name, "main", ("A::0",), cards, cards, LIBRARY, "full", "normal", None, mode)
    node.ledger.put(entry)
    (found,) = collected(node).containers
    assert found.soft is soft
