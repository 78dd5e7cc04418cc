"""How the node agent runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from hami_py.model import pods
from hami_py.node.drift import Kind
from hami_py.node.paths import Paths
from hami_py.serving import Listen


@dataclass(frozen=True)
class AgentSettings:
    """How the agent runs.

    Attributes:
        node: the name of the node.
        library: the preload library to install for containers.
        paths: the node's directories.
        pods: how pods are read.
        slots: how many containers may share a card. More than a card's memory usually has room for,
            because the kubelet refuses further pods without asking.
        nvidia_ctk: the program of the node's toolkit that makes CDI specifications; None = the
            agent makes none.
        driver_root: where that program looks for the driver's files; None = where it is configured.
        killed: which findings end the container of their process.
        listen: where health and metrics are served.
        assignment_s: how long the start of a container waits for the pod's assignment. The kubelet
            waits 30 s for the answer; then it tries again.
        preference_s: how long the kubelet waits for the preference among its devices. It admits no
            other pod meanwhile.
        period_s: the pause between two rounds of the agent: comparing the node, looking at the
            processes on the cards, and publishing.
    """

    node: str
    library: Path
    paths: Paths = field(default_factory=Paths)
    pods: pods.PodSettings = field(default_factory=pods.PodSettings)
    slots: int = 32
    nvidia_ctk: str | None = None
    driver_root: str | None = None
    killed: tuple[Kind, ...] = ()
    listen: Listen = field(default_factory=lambda: Listen("0.0.0.0", 9382))  # noqa: S104
    assignment_s: float = 20.0
    preference_s: float = 0.2
    period_s: float = 1.0
