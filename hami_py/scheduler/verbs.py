"""What an extender is asked, answered: filter, prioritize, bind and preempt.

Only ``bind`` writes, and it writes once. Everything else is the allocator's answer for the state
that the watches have told so far, so asking twice changes nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from hami_py.errors import HamiError, InvalidValue
from hami_py.kube import ApiServer, bind
from hami_py.kube.errors import Conflict, KubeError, NotFound, Unavailable
from hami_py.model import pods
from hami_py.model.pods import objects, wire
from hami_py.scheduler.cluster import Cluster
from hami_py.scheduler.wire import (
    BindArgs,
    BindResult,
    FilterArgs,
    FilterResult,
    HostPriority,
    MetaPod,
    MetaVictims,
    PreemptArgs,
    PreemptResult,
)

__all__ = ["Timing", "Verbs"]

_log = logging.getLogger(__name__)

_BEST = 10
"""The best score that an extender may give (MaxExtenderPriority)."""


@dataclass(frozen=True)
class Timing:
    """How long things are waited for, and kept.

    Attributes:
        hold_s: how long the best node found for a pod is kept for it, in memory only: binding is
            asynchronous, and the next pods are filtered before it is done.
        bind_s: how long the API server may take for a binding; kube-scheduler waits 30 s for us.
    """

    hold_s: float = 5.0
    bind_s: float = 10.0


class Verbs:
    """The extender's verbs over one cluster. Threads may share it."""

    def __init__(
        self,
        cluster: Cluster,
        server: ApiServer,
        timing: Timing,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._cluster = cluster
        self._server = server
        self._timing = timing
        self._clock_ns = clock_ns

    def filter(self, args: FilterArgs) -> FilterResult:
        """The nodes with cards that the pod fits on, and why it does not fit on the others."""
        names = _names(args)
        try:
            request = pods.read_request(args.pod, self._cluster.settings)
        except InvalidValue as error:
            # No node will ever do; kube-scheduler shows the reason on the pod.
            reasons = dict.fromkeys(names, str(error))
            return FilterResult(node_names=[], failed_and_unresolvable_nodes=reasons)
        if request is None:
            return FilterResult(node_names=names)
        self._cluster.remember(request)
        found = self._cluster.allocator.filter(wire.encode(request), names, self._clock_ns())
        feasible, failed, unresolvable = found
        return FilterResult(feasible, failed, unresolvable)

    def prioritize(self, args: FilterArgs) -> list[HostPriority]:
        """How good the nodes are; the best is held for the pod."""
        names = _names(args)
        try:
            request = pods.read_request(args.pod, self._cluster.settings)
        except InvalidValue:
            request = None
        if request is None:
            return [HostPriority(name, 0) for name in names]
        hold_ns = int(self._timing.hold_s * 1e9)
        scores = self._cluster.allocator.score(
            wire.encode(request), names, self._clock_ns(), hold_ns
        )
        return [HostPriority(name, (score * _BEST + 50) // 100) for name, score in scores]

    def bind(self, args: BindArgs) -> BindResult:
        """Reserves cards for the pod and binds it, in one write; again is the same."""
        request = self._cluster.pending(args.pod_uid)
        try:
            request = request or self._look_up(args)
            reserved = self._cluster.allocator.reserve(
                wire.encode(request), args.node, self._clock_ns()
            )
            assignment = msgspec.json.decode(reserved, type=wire.Assignment)
            self._write(args, request, assignment)
        except HamiError as error:
            return BindResult(str(error))
        self._cluster.forget(args.pod_uid)
        return BindResult()

    def preempt(self, args: PreemptArgs) -> PreemptResult:
        """The nodes where evicting these pods, or some more, makes room for the pod's cards.

        kube-scheduler has chosen by what it sees itself, so all of those stay chosen.
        """
        proposed = _proposed(args)
        request = pods.read_request(args.pod, self._cluster.settings)
        if request is None:
            return PreemptResult(proposed)
        answer = {}
        for node, victims in sorted(proposed.items()):
            chosen = [pod.uid for pod in victims.pods or []]
            candidates = self._cluster.pods.candidates(node, chosen)
            needed = self._cluster.allocator.victims(
                wire.encode(request), node, msgspec.json.encode(candidates)
            )
            if needed is not None:
                everybody = dict.fromkeys([*chosen, *needed])
                answer[node] = MetaVictims(
                    [MetaPod(uid) for uid in everybody], victims.num_pdb_violations
                )
        return PreemptResult(answer)

    def _write(self, args: BindArgs, request: wire.Request, assignment: wire.Assignment) -> None:
        annotations = pods.bind_annotations(request, assignment)
        try:
            bind(
                self._server,
                namespace=args.pod_namespace,
                pod=args.pod_name,
                uid=args.pod_uid,
                node=args.node,
                annotations=annotations,
                # Also onto a pod that the webhook was not asked about: else the watch would not
                # tell of it, and its cards would look free.
                labels=pods.annotations.LABELS,
                deadline_s=self._timing.bind_s,
            )
        except Unavailable:
            # It may have been written all the same: the watch will tell, or the reservation
            # expires.
            raise
        except Conflict:
            if not self._is_bound_there(args, assignment):
                self._cluster.allocator.release(args.pod_uid)
                raise
        except KubeError:
            self._cluster.allocator.release(args.pod_uid)
            raise

    def _is_bound_there(self, args: BindArgs, assignment: wire.Assignment) -> bool:
        """An earlier attempt of ours, whose answer was lost, has done it."""
        pod = self._pod(args)
        return (
            pod.uid == args.pod_uid
            and pod.spec.node_name == args.node
            and pods.assignment_of(pod) == assignment
        )

    def _look_up(self, args: BindArgs) -> wire.Request:
        """A pod that no filter and no watch has told of: another replica was asked before."""
        pod = self._pod(args)
        if pod.uid != args.pod_uid:
            raise NotFound(
                f"pod {args.pod_namespace}/{args.pod_name}",
                "it is another pod of the same name by now",
                "forget it",
            )
        request = pods.read_request(pod, self._cluster.settings)
        if request is None:
            raise InvalidValue(
                f"pod {args.pod_namespace}/{args.pod_name}",
                "",
                "it asks for no card, so kube-scheduler binds it itself: list our resources as "
                "managedResources of the extender",
            )
        return request

    def _pod(self, args: BindArgs) -> objects.Pod:
        path = f"/api/v1/namespaces/{args.pod_namespace}/pods/{args.pod_name}"
        return pods.decode_pod(self._server.get(path, deadline_s=self._timing.bind_s))


def _names(args: FilterArgs) -> list[str]:
    if args.node_names is not None:
        return args.node_names
    nodes = args.nodes.items if args.nodes is not None else None
    return [node.name for node in nodes or []]


def _proposed(args: PreemptArgs) -> dict[str, MetaVictims]:
    if args.meta_victims is not None:
        return args.meta_victims
    return {
        node: MetaVictims(
            [MetaPod(pod.uid) for pod in victims.pods or []], victims.num_pdb_violations
        )
        for node, victims in (args.victims or {}).items()
    }
