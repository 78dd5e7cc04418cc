"""Reads the objects of an overview once, or follows them.

A list that the user may not read is no error: a note names the right, and the rest is shown.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from hami_py.cluster.state import NODES, PODS, QUOTAS
from hami_py.cluster.view import Listed
from hami_py.kube import ApiServer, Followed, Reflector, list_version, path_of
from hami_py.kube.errors import Forbidden
from hami_py.model import pods
from hami_py.model.pods import objects
from hami_py.monitor import History
from hami_py.overview.agents import Answers, ask, ask_history
from hami_py.overview.build import Judged, Objects, build, judge
from hami_py.overview.objects import AgentPod, Named, SeenNode, SeenPod, Store
from hami_py.overview.report import Overview

_LIST_S = 30.0
_AGENT_S = 2.0

_AGENTS = "app.kubernetes.io/part-of=hami,app.kubernetes.io/component=node-agent"


@dataclass(frozen=True)
class Scope:
    """The part of a cluster that is read.

    Attributes:
        namespace: show the pods of this one alone; ``None``: of all.
        own: the user's namespace, which is shown if all others may not be read.
        system: the namespace of the node agents.
        pod_selector: the label of pods that request cards, which the webhook sets.
    """

    namespace: str | None = None
    own: str = "default"
    system: str = "hami-system"
    pod_selector: str = "hami.io/pod=true"


T = TypeVar("T", bound=Named)


@dataclass
class _Source(Generic[T]):
    """A list, and what became of reading it."""

    path: str
    kind: type[T]
    query: dict[str, str] = field(default_factory=dict)
    store: Store[T] = field(default_factory=Store)
    version: str | None = None
    forbidden: Forbidden | None = None

    def read(self, server: ApiServer) -> None:
        self.forbidden = None
        try:
            found, undecoded, self.version = list_version(
                server, self.path, self.kind, query=self.query, deadline_s=_LIST_S
            )
            self.store.replace(found, undecoded)
        except Forbidden as error:
            self.forbidden = error

    def follower(self, server: ApiServer) -> Reflector[T]:
        """Goes on from the list that was read."""
        followed = Followed(server, self.path, self.kind, self.store, self.query)
        return Reflector(followed, self.version)

    def listed(self) -> Listed[T] | None:
        return self.store.listed() if self.forbidden is None else None


class Reader:
    """Reads one cluster."""

    def __init__(
        self,
        server: ApiServer,
        scope: Scope,
        settings: pods.PodSettings | None = None,
        *,
        agent_s: float = _AGENT_S,
    ) -> None:
        self._server, self._scope = server, scope
        self._settings = settings or pods.PodSettings()
        self._agent_s = agent_s
        selected = {"labelSelector": scope.pod_selector} if scope.pod_selector else {}
        self._nodes = _Source(NODES, SeenNode)
        self._quotas = _Source(QUOTAS, objects.ResourceQuota)
        self._pods = _Source(PODS, SeenPod, selected)
        at = path_of(scope.system, "pods")
        self._agents = _Source(at, AgentPod, {"labelSelector": _AGENTS})
        self._reflectors: list[Reflector[Any]] = []
        self._judged: tuple[tuple[int, ...], Judged] | None = None

    def read(self) -> Overview:
        """The cluster now.

        Raises:
            KubeError: the API server does not answer; ``Forbidden``: nothing may be read.
        """
        if not self._reflectors:
            self._list()
        return self._build()

    def history(self, node: str) -> History | None:
        """The last hour of a node; ``None``: its agent does not answer, or may not be asked."""
        agents = self._agents.listed()
        if agents is None:
            return None
        return ask_history(self._server, agents.objects, node, self._agent_s)

    @contextlib.contextmanager
    def following(self) -> Iterator[None]:
        """Follow the objects by watches; ``read`` then asks only the node agents."""
        self._list()
        sources = (self._nodes, self._quotas, self._pods, self._agents)
        reflectors = [each.follower(self._server) for each in sources if each.forbidden is None]
        with contextlib.ExitStack() as ends:
            for reflector in reflectors:
                reflector.start()
                ends.callback(reflector.stop)
            self._reflectors = reflectors
            ends.callback(setattr, self, "_reflectors", [])
            yield

    def _list(self) -> None:
        sources = (self._pods, self._nodes, self._quotas, self._agents)
        with ThreadPoolExecutor(len(sources)) as threads:
            list(threads.map(lambda source: source.read(self._server), sources))
        if self._pods.forbidden is not None:
            self._pods.path = path_of(self._shown_alone, "pods")
            self._pods.read(self._server)
            if self._pods.forbidden is not None and self._nodes.forbidden is not None:
                raise self._pods.forbidden

    @property
    def _shown_alone(self) -> str:
        """The namespace that is shown if not all may be read."""
        return self._scope.namespace or self._scope.own

    def _build(self) -> Overview:
        agents = self._agents.listed()
        answers = Answers(forbidden=self._agents.forbidden)
        if agents is not None:
            answers = ask(self._server, agents.objects, self._agent_s)
        # Read before the objects: a change in between is then judged the next time.
        versions = tuple(source.store.version for source in (self._pods, self._nodes, self._quotas))
        found = Objects(
            self._pods.listed() or Listed([]),
            self._nodes.listed(),
            self._quotas.listed(),
            has_all_pods=self._pods.path == PODS and self._pods.forbidden is None,
        )
        namespace = self._scope.namespace if found.has_all_pods else self._shown_alone
        judged = self._judge(versions, found, namespace)
        return build(judged, answers, self._notes(answers), namespace)

    def _judge(self, versions: tuple[int, ...], found: Objects, namespace: str | None) -> Judged:
        """Judges the objects, if they have changed since the last time."""
        if self._judged is None or self._judged[0] != versions:
            self._judged = versions, judge(found, self._settings, namespace)
        return self._judged[1]

    def _notes(self, answers: Answers) -> Iterator[str]:
        for missing, what in (
            (self._nodes.forbidden, "nodes and their cards are not shown"),
            (self._pods.forbidden, "pods are not shown"),
            (self._quotas.forbidden, "quotas are not shown"),
            (answers.forbidden, "what is used is not shown"),
        ):
            if missing is not None:
                yield f"{what}: {_right(missing)}"
        agents = self._agents.listed()
        if agents is not None and not agents.objects:
            where = self._scope.system
            yield f"no node agent runs in namespace {where}: name theirs with --system-namespace"
        failures = [each.failure for each in self._reflectors if each.failure is not None]
        whys = [_right(each) for each in failures if isinstance(each, Forbidden)]
        # An API server that is away fails all of them in the same way.
        whys += [str(each) for each in failures if not isinstance(each, Forbidden)][:1]
        for why in whys:
            yield f"changes are shown late: {why}"
        if self._pods.path != PODS and self._pods.forbidden is None:
            alone = self._shown_alone
            yield f"only pods of namespace {alone} are shown: you may not list those of all"


def _right(missing: Forbidden) -> str:
    """The API server's own words, such as ``User "a" cannot list resource "nodes" in …``."""
    _, _, said = missing.why.partition("forbidden: ")
    return said or missing.why
