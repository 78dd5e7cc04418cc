"""The extender's verbs: filter, prioritize, bind and preempt.

Only ``bind`` writes to the API server, and it makes one write. The other verbs return the
allocator's answer for the state that the watches have reported so far. ``filter`` and
``prioritize`` may hold cards in memory for a while (``holds``); repeating them extends the hold.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping

import msgspec

from hami_py.cluster.nodes import NO_CARDS
from hami_py.cluster.state import Cluster
from hami_py.cluster.waiting import check_room
from hami_py.errors import HamiError, InvalidValue
from hami_py.kube import ApiServer
from hami_py.model import pods
from hami_py.model.pods import objects, wire
from hami_py.model.pods.decoding import Decoder, prepare
from hami_py.scheduler import preemption
from hami_py.scheduler.binding.binder import Binder
from hami_py.scheduler.binding.lease import Lease
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
from hami_py.scheduler.settings import Timing

_decode_names = Decoder(list[str], "NodeNames")

_NOT_KNOWN = "the cluster is not known yet; kube-scheduler tries the pod again"
_HELD = "the cards that fit are held for other pods for some seconds; the pod is tried again"
_NOT_ALL = "the time ended before all nodes were checked; the next attempt continues from here"
_BEING_BOUND = "it is being bound to node {}; it is tried again once that binding has failed"


class _Fitting(msgspec.Struct):
    """The names of an ExtenderFilterResult, not decoded."""

    names: msgspec.Raw = msgspec.field(name="NodeNames")


prepare(_Fitting, FilterResult)


class Verbs:
    """The extender's verbs for one cluster. Threads may share it."""

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
        self._last_nodes = preemption.LastNodes()
        self._clock_ns = clock_ns
        self._read_last: tuple[objects.Pod, wire.PodRequest | None] | None = None

    def filter(self, args: FilterArgs) -> FilterResult | bytes:
        """The nodes with cards that the pod fits on, and why it does not fit on the others.

        kube-scheduler tries a refused pod again after a change in the cluster. If the pod may fit
        in a moment without such a change, the answer is an error instead: then kube-scheduler tries
        the pod again after its back-off, and evicts no pod for it.
        """
        try:
            request = self._read(args.pod)
        except InvalidValue as error:
            return _unresolvable(_decode_names(args.names), error)
        if request is None:
            return FilterResult(node_names=_decode_names(args.names))
        if not self._cluster.is_known:
            return FilterResult(node_names=[], error=_NOT_KNOWN)
        # kube-scheduler begins a new attempt, so an earlier one has failed.
        self.holds.end(request.pod.uid)
        self._cluster.waiting.filtered(args.pod, request)
        try:
            check_room(args.pod, request)
            return self._find_nodes(args.pod, request, args.names)
        except InvalidValue as error:
            return _unresolvable(_decode_names(args.names), error)

    def _read(self, pod: objects.Pod) -> wire.PodRequest | None:
        """The pod's request; kept, because kube-scheduler prioritizes the pod that it filtered."""
        last = self._read_last
        if last is not None and (last[0] is pod or last[0] == pod):
            return last[1]
        request = pods.read_request(pod, self._cluster.settings)
        self._read_last = pod, request
        return request

    def _find_nodes(
        self, pod: objects.Pod, request: wire.PodRequest, names: bytes
    ) -> FilterResult | bytes:
        bound_to = self.binder.node_of(request.pod.uid)
        if bound_to is not None:
            there = [name for name in _decode_names(names) if name == bound_to]
            names = msgspec.json.encode(there)
        encoded = wire.encode(request)
        changes = self._cluster.requeuer.changes
        now_ns = self._clock_ns()
        # The names and reasons of thousands of nodes stay encoded unless they are needed here.
        fits, whole, answer = self._cluster.allocator.filter_names(encoded, names, now_ns)
        if fits == 1:
            # With one node, kube-scheduler does not call prioritize.
            names = msgspec.json.decode(answer, type=_Fitting).names
            self._score_and_hold(pod, encoded, bytes(names))
        if fits:
            return answer
        answer = self._with_blocks(answer)
        if bound_to is not None:
            return FilterResult(node_names=[], error=_BEING_BOUND.format(bound_to))
        if not whole:
            return FilterResult(node_names=[], error=_counted(answer, _NOT_ALL))
        if self._is_only_held(encoded, names, now_ns):
            return FilterResult(node_names=[], error=_counted(answer, _HELD))
        self._cluster.requeuer.refused(changes)
        return answer

    def _with_blocks(self, answer: bytes) -> bytes:
        """The answer with the reasons of nodes that the allocator does not have because of them."""
        blocked = self._cluster.nodes.briefly_blocked()
        if not blocked:
            return answer
        result = msgspec.json.decode(answer, type=FilterResult)
        reasons = result.failed_and_unresolvable_nodes
        reasons |= {
            name: blocked[name]
            for name, reason in reasons.items()
            if reason == NO_CARDS and name in blocked
        }
        return msgspec.json.encode(result)

    def _is_only_held(self, encoded: bytes, names: bytes, now_ns: int) -> bool:
        """Whether the pod would fit if the short holds ended.

        Long holds last for minutes, so the pod need not wait for them: it may evict others.
        """
        soon_ns = now_ns + self.holds.short_ns
        allocator = self._cluster.allocator
        return allocator.fits_without_unbound(encoded, _decode_names(names), now_ns, soon_ns)

    def prioritize(self, args: FilterArgs) -> list[HostPriority] | bytes:
        """The scores of the nodes; cards on the best one are held for the pod."""
        try:
            request = self._read(args.pod)
        except InvalidValue:
            request = None
        if request is None or not self._cluster.is_known:
            return [HostPriority(name, 0) for name in _decode_names(args.names)]
        return self._score_and_hold(args.pod, wire.encode(request), args.names)

    def _score_and_hold(self, pod: objects.Pod, encoded: bytes, names: bytes) -> bytes:
        hold_ns = self.holds.begin(pod)
        return self._cluster.allocator.prioritize_names(encoded, names, self._clock_ns(), hold_ns)

    def arrived(self, args: BindArgs) -> tuple[BindArgs, int]:
        """The arguments for ``bind``: its time begins now, even if a thread is free only later."""
        return args, self._clock_ns()

    def bind(self, args: BindArgs, arrived_ns: int | None = None) -> BindResult:
        """Reserves cards for the pod and binds it, in one write; it may be repeated."""
        if not self._cluster.is_known:
            return BindResult(_NOT_KNOWN)
        try:
            self.binder.bind(args, self._clock_ns() if arrived_ns is None else arrived_ns)
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
        now_ns, last = self._clock_ns(), self._last_nodes
        found = preemption.victims(self._cluster, request, chosen, now_ns, last)
        if found:
            named = {node: [pod.uid for pod in each.pods or []] for node, each in found.items()}
            self._cluster.preemptors.named(request, named, now_ns)
        return PreemptResult(found)


def _unresolvable(names: list[str], error: InvalidValue) -> FilterResult:
    """The answer that no node can ever fit; kube-scheduler shows the reason on the pod."""
    reasons = dict.fromkeys(names, str(error))
    return FilterResult(node_names=[], failed_and_unresolvable_nodes=reasons)


def _counted(answer: bytes, why: str) -> str:
    """An error with the nodes' reasons, counted as kube-scheduler would count them."""
    result = msgspec.json.decode(answer, type=FilterResult)
    reasons = Counter(
        [
            *result.failed_nodes.values(),
            *result.failed_and_unresolvable_nodes.values(),
        ]
    )
    counted = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    return f"{counted}: {why}"
