"""What an extender is asked, answered: filter, prioritize, bind and preempt.

Only ``bind`` writes to the API server, and it writes once. Everything else is the allocator's
answer for the state that the watches have told so far. ``filter`` and ``prioritize`` may hold cards
in memory for a while (``holds``); asking again extends that, and no more.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping

import msgspec

from hami_py.errors import HamiError, InvalidValue
from hami_py.kube import ApiServer
from hami_py.model import pods
from hami_py.model.pods import objects, wire
from hami_py.model.pods.decoding import Decoder
from hami_py.scheduler import preemption
from hami_py.scheduler.binding import Binder
from hami_py.scheduler.cluster import Cluster
from hami_py.scheduler.extender_api import (
    BindArgs,
    BindResult,
    FilterArgs,
    FilterResult,
    HostPriority,
    PreemptArgs,
    PreemptResult,
)
from hami_py.scheduler.holds import Holds
from hami_py.scheduler.lease import Lease
from hami_py.scheduler.timing import Timing
from hami_py.scheduler.waiting import check_room

__all__ = ["Verbs"]

_decode_names = Decoder(list[str], "NodeNames")

_NOT_KNOWN = "the cluster is not known yet; the pod is tried again until it is"
_PROMISED = "the cards that would do are promised to other pods just now; it is tried again"
_NOT_ALL = "looking at all nodes would take too long; it is tried again, and goes on from here"
_BEING_BOUND = "it is being bound to node {}; it is tried again when that is known to have failed"


class _Fitting(msgspec.Struct):
    """Of an ExtenderFilterResult, the names as they are written."""

    names: msgspec.Raw = msgspec.field(name="NodeNames")


class Verbs:
    """The extender's verbs over one cluster. Threads may share it.

    Attributes:
        binder: who writes.
        holds: how long cards are held.
    """

    def __init__(
        self,
        cluster: Cluster,
        server: ApiServer,
        timing: Timing,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        followed: Mapping[str, str] | None = None,
        *,
        lease: Lease | None = None,
    ) -> None:
        self.binder = Binder(cluster, server, timing, clock_ns, followed or {}, lease=lease)
        self.holds = Holds(cluster, timing, clock_ns)
        self._cluster = cluster
        self._left_off = preemption.LeftOff()
        self._clock_ns = clock_ns
        self._read_last: tuple[objects.Pod, wire.PodRequest | None] | None = None

    def filter(self, args: FilterArgs) -> FilterResult | bytes:
        """The nodes with cards that the pod fits on, and why it does not fit on the others.

        A pod that is refused waits until something happens in the cluster. Where it may fit in a
        moment, and nothing would be seen to happen, the answer is an error: such a pod is tried
        again after kube-scheduler's back-off, and evicts nobody.
        """
        try:
            request = self._read(args.pod)
        except InvalidValue as error:
            return _unresolvable(_decode_names(args.names), error)
        if request is None:
            return FilterResult(node_names=_decode_names(args.names))
        if not self._cluster.is_known:
            return FilterResult(node_names=[], error=_NOT_KNOWN)
        self.holds.end(request.pod.uid)
        self._cluster.waiting.asked(args.pod, request)
        try:
            check_room(args.pod, request)
            return self._where(args.pod, request, args.names)
        except InvalidValue as error:
            return _unresolvable(_decode_names(args.names), error)

    def _read(self, pod: objects.Pod) -> wire.PodRequest | None:
        """The pod's request; priorities are asked for with the pod that was filtered."""
        last = self._read_last
        if last is not None and (last[0] is pod or last[0] == pod):
            return last[1]
        request = pods.read_request(pod, self._cluster.settings)
        self._read_last = pod, request
        return request

    def _where(
        self, pod: objects.Pod, request: wire.PodRequest, names: bytes
    ) -> FilterResult | bytes:
        bound_to = self.binder.node_of(request.pod.uid)
        if bound_to is not None:
            there = [name for name in _decode_names(names) if name == bound_to]
            names = msgspec.json.encode(there)
        asked = wire.encode(request)
        changes = self._cluster.waker.changes
        now_ns = self._clock_ns()
        fits, whole, answer = self._cluster.allocator.filter_names(asked, names, now_ns)
        # Of thousands of nodes, or of as many reasons: nobody here looks at them without need.
        if fits == 1:
            # Then kube-scheduler asks for no priorities.
            names = msgspec.json.decode(answer, type=_Fitting).names
            self._rate_and_hold(pod, asked, bytes(names))
        if fits:
            return answer
        if bound_to is not None:
            return FilterResult(node_names=[], error=_BEING_BOUND.format(bound_to))
        if not whole:
            return FilterResult(node_names=[], error=_counted(answer, _NOT_ALL))
        if self._is_only_promised(asked, names, now_ns):
            return FilterResult(node_names=[], error=_counted(answer, _PROMISED))
        self._cluster.waker.refused(changes)
        return answer

    def _is_only_promised(self, asked: bytes, names: bytes, now_ns: int) -> bool:
        """A hold that lasts for minutes is nothing to be waited for, and others may be evicted."""
        soon_ns = now_ns + self.holds.short_ns
        allocator = self._cluster.allocator
        return allocator.only_promised(asked, _decode_names(names), now_ns, soon_ns)

    def prioritize(self, args: FilterArgs) -> list[HostPriority] | bytes:
        """How good the nodes are; the best is held for the pod."""
        try:
            request = self._read(args.pod)
        except InvalidValue:
            request = None
        if request is None or not self._cluster.is_known:
            return [HostPriority(name, 0) for name in _decode_names(args.names)]
        return self._rate_and_hold(args.pod, wire.encode(request), args.names)

    def _rate_and_hold(self, pod: objects.Pod, asked: bytes, names: bytes) -> bytes:
        hold_ns = self.holds.begin(pod)
        return self._cluster.allocator.prioritize_names(asked, names, self._clock_ns(), hold_ns)

    def arrived(self, args: BindArgs) -> tuple[BindArgs, int]:
        """What ``bind`` is to be called with when its turn comes: its time begins here."""
        return args, self._clock_ns()

    def bind(self, args: BindArgs, asked_ns: int | None = None) -> BindResult:
        """Reserves cards for the pod and binds it, in one write; again is the same.

        Args:
            args: which, and where.
            asked_ns: when that was asked for; None: now.
        """
        if not self._cluster.is_known:
            return BindResult(_NOT_KNOWN)
        try:
            self.binder.bind(args, self._clock_ns() if asked_ns is None else asked_ns)
        except HamiError as error:
            return BindResult(str(error))
        return BindResult()

    def preempt(self, args: PreemptArgs) -> PreemptResult:
        """The nodes where evicting these pods, or some more, makes room for the pod's cards."""
        chosen = preemption.proposed(args)
        try:
            request = pods.read_request(args.pod, self._cluster.settings)
        except InvalidValue:
            return PreemptResult()
        if request is None:
            return PreemptResult(chosen)
        if not self._cluster.is_known or not self._cluster.budgets.is_listed:
            return PreemptResult()
        now_ns, left_off = self._clock_ns(), self._left_off
        return PreemptResult(preemption.victims(self._cluster, request, chosen, now_ns, left_off))


def _unresolvable(names: list[str], error: InvalidValue) -> FilterResult:
    """No node will ever do; kube-scheduler shows the reason on the pod."""
    reasons = dict.fromkeys(names, str(error))
    return FilterResult(node_names=[], failed_and_unresolvable_nodes=reasons)


def _counted(answer: bytes, why: str) -> str:
    """With the reasons of the nodes, as kube-scheduler would have counted them."""
    result = msgspec.json.decode(answer, type=FilterResult)
    reasons = Counter(
        [
            *result.failed_nodes.values(),
            *result.failed_and_unresolvable_nodes.values(),
        ]
    )
    counted = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    return f"{counted}: {why}"
