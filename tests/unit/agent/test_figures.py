"""The metrics of a container show only limits that are enforced."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hami_py.agent.figures import Figures
from hami_py.agent.holds import Holds
from hami_py.agent.observer import Observer
from hami_py.kube import Reference
from hami_py.model.pods import PodSettings
from hami_py.monitor import ContainerFigures
from unit.agent.build import pod, settings, state
from unit.node.build import on


def exposed(folder: Path, of_pods: PodSettings) -> ContainerFigures:
    """The figures of a container that has not started."""
    node = state(replace(settings(folder), pods=of_pods), "A")
    node.pods.changed(pod("p", {"main": on("A", 3000, 30)}))
    about = Reference("Node", "n1", "n1")
    nothing: Any = None
    observer = Observer(node, nothing, about, nothing, period_s=1.0, slots=10)
    figures = Figures("n1", node, observer, Holds()).collect(registered=True)
    (found,) = figures.containers
    return found


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
