"""Reads the figures of all node agents, through the API server's pod proxy.

Many at a time, and each with its own deadline: an agent that does not answer holds no other up.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from hami_py.errors import HamiError
from hami_py.kube import ApiServer, path_of
from hami_py.kube.errors import Forbidden
from hami_py.monitor import History, NodeFigures, decode, decode_history
from hami_py.overview.objects import AgentPod

_log = logging.getLogger(__name__)

_AT_ONCE = 32
"""As many connections as the client keeps."""

_PORT = 9382


@dataclass
class Answers:
    """The answers of the node agents.

    Attributes:
        silent: by node, why there are none.
        forbidden: the missing right, as the API server reports it; then no agent was asked.
    """

    figures: dict[str, NodeFigures] = field(default_factory=dict)
    silent: dict[str, str] = field(default_factory=dict)
    forbidden: Forbidden | None = None


def ask(server: ApiServer, agents: Iterable[AgentPod], deadline_s: float) -> Answers:
    """Asks all of them for their figures; each may take ``deadline_s``.

    While a new release replaces another, a node has two agents, and one of them is active.
    """
    by_node: dict[str, list[AgentPod]] = {}
    for agent in agents:
        by_node.setdefault(agent.spec.node_name or "", []).append(agent)
    by_node.pop("", None)
    answers = Answers()

    def one(node: str) -> NodeFigures | str:
        if answers.forbidden is not None:
            return ""
        why = "its node agent does not run"
        for agent in filter(lambda agent: agent.is_running, by_node[node]):
            try:
                return decode(server.get(_path(agent, "figures"), deadline_s=deadline_s))
            except Forbidden as error:
                answers.forbidden = error
                return ""
            except HamiError as error:
                why = f"its node agent does not answer: {error.why}"
        return why

    # The first one alone: if it is forbidden, so are all others.
    nodes = list(by_node)
    found = [(node, one(node)) for node in nodes[:1]]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        found += zip(nodes[1:], threads.map(one, nodes[1:]), strict=True)
    for node, answer in found:
        if isinstance(answer, NodeFigures):
            answers.figures[node] = answer
        elif answer:
            answers.silent[node] = answer
    return answers


def ask_history(
    server: ApiServer, agents: Iterable[AgentPod], node: str, deadline_s: float
) -> History | None:
    """The last hour of a node; ``None``: no agent there has answered, or none may be asked."""
    for agent in agents:
        if agent.spec.node_name == node and agent.is_running:
            try:
                return decode_history(server.get(_path(agent, "history"), deadline_s=deadline_s))
            except HamiError as error:
                _log.info("the history of node %s: %s", node, error)
    return None


def _path(agent: AgentPod, page: str) -> str:
    name = f"{agent.metadata.name}:{agent.port or _PORT}"
    return f"{path_of(agent.metadata.namespace or '', 'pods', name)}/proxy/{page}"
