"""Bind: reserve cards for the pod, and write the binding with its assignment in one write.

The difficult part is the time until the watch reports the binding. A write without an answer may
have taken effect, may take effect later, or may have failed, and a pod may be created and deleted
while the watch is disconnected. So each write is kept until the watch has reported its result.
Until then the pod can be bound to the same node again, which repeats the same write, but to no
other node. If the watch does not report it in time, the binder reads the pod from the API server.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from hami_py._native import Allocator
from hami_py.cluster.bound import Bound
from hami_py.cluster.explanation import NodeView
from hami_py.cluster.state import Cluster
from hami_py.cluster.waiting import WaitingPod
from hami_py.errors import HamiError, InvalidValue
from hami_py.kube import ApiServer, bind, check_annotations, keeps_labels_of_bindings, path_of
from hami_py.kube.errors import Conflict, NotFound, Unavailable
from hami_py.model import pods
from hami_py.model.pods import objects, wire
from hami_py.scheduler.binding.failover import FailoverCheck
from hami_py.scheduler.binding.lease import Lease
from hami_py.scheduler.extender_api import BindArgs
from hami_py.scheduler.settings import Timing

_log = logging.getLogger(__name__)


@dataclass
class _Write:
    """A binding's write.

    Attributes:
        ended_ns: when it was answered or given up; ``None``: it is still on its way.
    """

    args: BindArgs
    assignment: wire.Assignment
    ended_ns: int | None = None


class Binder:
    """Binds the pods of one cluster. Threads may share it."""

    def __init__(
        self,
        cluster: Cluster,
        server: ApiServer,
        timing: Timing,
        clock_ns: Callable[[], int],
        followed: Mapping[str, str],
        *,
        lease: Lease | None = None,
    ) -> None:
        self._cluster = cluster
        self._failover = FailoverCheck(
            cluster, server, followed, self._has_bound, lease=lease, bind_s=timing.bind_s
        )
        self._server = server
        self._follows_label = bool(followed)
        # None: not known yet.
        self._keeps_labels: bool | None = None
        self._timing = timing
        self._clock_ns = clock_ns
        self._lock = threading.Lock()
        self._writes: dict[str, _Write] = {}

    def node_of(self, uid: str) -> str | None:
        """The node of a binding whose result the watch has not reported yet, if there is one."""
        with self._lock:
            write = self._writes.get(uid)
            return write.args.node if write is not None else None

    def bind(self, args: BindArgs, began_ns: int) -> None:
        """Reserves cards for the pod and binds it; repeating the call repeats the same write.

        The request may have arrived (``began_ns``) a while ago, because many pods are bound at once
        and their threads wait for each other.

        Raises:
            HamiError: the pod is not bound, or it is not known whether it is.
        """

        def left_s() -> float:
            """The time that is left for this binding.

            Raises:
                Unavailable: none is left, so another replica may hold the lease by now.
            """
            left = self._timing.bind_s - (self._clock_ns() - began_ns) / 1e9
            if left <= 0:
                raise Unavailable(
                    _called(args), "there is no time left to bind it", "try again later"
                )
            return left

        args.check_names()
        pod = self._cluster.waiting.find(args.pod_uid) or self._read_waiting(args, left_s)
        if pod is None:
            self._bind_without_cards(args, left_s)
            return
        if not pod.is_labelled:
            self._check_followed(args, left_s)
        self._failover.check(args, began_ns, left_s)
        write, before = self._reserve(args, pod.request)
        try:
            annotations = pods.bind_annotations(pod.request, write.assignment)
            check_annotations(pod.annotated, annotations)
            self._post(args, annotations, write.assignment, left_s)
        except HamiError as error:
            if not isinstance(error, (Unavailable, _BoundOtherwise)):
                if before is None or isinstance(error, (Conflict, NotFound)):
                    self._end(write, release=True)
                else:
                    # This write was rejected, but an earlier one may have taken effect.
                    with self._lock:
                        self._writes[args.pod_uid] = before
            raise
        finally:
            with self._lock:
                write.ended_ns = self._clock_ns()
        self._cluster.waiting.forget(args.pod_uid)

    def _check_followed(self, args: BindArgs, left_s: Callable[[], float]) -> None:
        """Checks that the watch will report a pod without the label once it is bound.

        Raises:
            InvalidValue: it will not, so after a restart the pod's cards would look free.
        """
        if not self._follows_label:
            return
        if self._keeps_labels is None:
            self._keeps_labels = keeps_labels_of_bindings(self._server, left_s())
        if not self._keeps_labels:
            raise InvalidValue(
                "metadata.labels",
                "",
                f"{_called(args)} was created without a review by the webhook, and Kubernetes "
                "before 1.35 drops the labels of a binding: create it in a namespace without "
                "hami.io/webhook: ignore",
            )

    def continue_listing(self) -> bool:
        """Reads lists that take too long for one binding; returns whether there is more to read."""
        return self._failover.continue_listing()

    def check_unreported(self) -> None:
        """Reads the pods of bindings that the watch should have reported by now."""
        late = self._clock_ns() - int(self._timing.doubt_s * 1e9)
        with self._lock:
            due = [
                write
                for write in self._writes.values()
                if write.ended_ns is not None and write.ended_ns <= late
            ]
        for write in due:
            if self._cluster.pods.is_placed(write.args.pod_uid):
                self._end(write, release=False)
                continue
            try:
                if self._assignment(write.args, self._timing.bind_s) is None:
                    self._end(write, release=True)
                    continue
            except HamiError as error:
                _log.warning("%s", error)
            with self._lock:
                write.ended_ns = self._clock_ns()

    def _has_bound(self, bound: Bound) -> bool:
        with self._lock:
            write = self._writes.get(bound.uid)
        # Equal assignments have equal texts.
        return write is not None and pods.encode_assignment(write.assignment) == bound.assignment

    def _reserve(self, args: BindArgs, request: wire.PodRequest) -> tuple[_Write, _Write | None]:
        """The write to make, and an earlier one of the same cards whose result is not known."""
        if args.node not in self._cluster.nodes:
            # The API server accepts a binding to a node that does not exist.
            raise NotFound(
                f"node {args.node}",
                "it does not exist, or has no cards",
                "do nothing: kube-scheduler tries another node",
            )
        with self._lock:
            before = self._writes.get(args.pod_uid)
            if before is not None and (before.ended_ns is None or before.args.node != args.node):
                raise Conflict(
                    _called(args),
                    f"it is being bound to node {before.args.node}",
                    "try again once that binding has failed",
                )
            if before is None:
                reserved = self._cluster.allocator.reserve(
                    wire.encode(request), args.node, self._clock_ns()
                )
                assignment = msgspec.json.decode(reserved, type=wire.Assignment)
            else:
                # Cards are not reserved again: if a card has failed, the allocator would choose
                # others and free those that the earlier write may have assigned.
                assignment = before.assignment
                if not _still_fits(self._cluster.allocator, request, assignment):
                    raise Conflict(
                        _called(args),
                        "the cards reserved for it no longer fit",
                        "try again once its earlier binding is known to have failed",
                    )
            write = self._writes[args.pod_uid] = _Write(args, assignment)
        return write, before

    def _end(self, write: _Write, *, release: bool) -> None:
        uid = write.args.pod_uid
        with self._lock:
            # Unless the pod is being bound again.
            if self._writes.get(uid) is write:
                del self._writes[uid]
                if release:
                    self._cluster.allocator.release(uid)
                    self._cluster.requeuer.changed()

    def _post(
        self,
        args: BindArgs,
        annotations: dict[str, str],
        assignment: wire.Assignment,
        left_s: Callable[[], float],
    ) -> None:
        try:
            # The binding also labels a pod that the webhook has not reviewed. Otherwise the watch
            # would not report the pod, and its cards would look free.
            self._write(args, annotations, pods.annotations.LABELS, left_s())
        except Conflict as error:
            has = self._assignment(args, self._timing.bind_s)
            if has is None:
                raise
            if has != assignment:
                raise _BoundOtherwise(error.what, error.why, error.fix, error.status) from error
            # An earlier attempt, whose answer was lost, has made this binding.

    def _write(
        self,
        args: BindArgs,
        annotations: Mapping[str, str],
        labels: Mapping[str, str],
        deadline_s: float,
    ) -> None:
        bind(
            self._server,
            *(args.pod_namespace, args.pod_name, args.pod_uid, args.node),
            annotations=annotations,
            labels=labels,
            deadline_s=deadline_s,
        )

    def _assignment(self, args: BindArgs, deadline_s: float) -> wire.Assignment | None:
        """The cards of the pod now; ``None``: it has none, is not bound, has ended or is deleted.

        Raises:
            Unavailable: the API server did not answer, or the assignment is invalid.
        """
        try:
            pod = self._read_pod(args, deadline_s)
            is_there = pod.uid == args.pod_uid and not pod.is_over
            return pods.assignment_of(pod) if is_there else None
        except NotFound:
            return None
        except HamiError as error:
            why = f"its cards are not known ({error})"
            raise Unavailable(_called(args), why, "try again later") from error

    def _read_waiting(self, args: BindArgs, left_s: Callable[[], float]) -> WaitingPod | None:
        """Reads a pod that neither filter nor watch has seen; ``None``: it requests no card.

        Either another replica filtered nodes for it, or it requests zero cards.
        """
        pod = self._read_pod(args, left_s())
        if pod.uid != args.pod_uid:
            raise NotFound(
                _called(args),
                "it was replaced by another pod of the same name",
                "do nothing: kube-scheduler drops the old pod",
            )
        request = pods.read_request(pod, self._cluster.settings)
        return WaitingPod.of(pod, request) if request is not None else None

    def _bind_without_cards(self, args: BindArgs, left_s: Callable[[], float]) -> None:
        """Binds a pod that requests zero of a resource: kube-scheduler leaves that to us, too."""
        try:
            self._write(args, {}, {}, left_s())
        except Conflict:
            pod = self._read_pod(args, left_s())
            if (pod.uid, pod.spec.node_name) != (args.pod_uid, args.node):
                raise
            # An earlier attempt, whose answer was lost, has made this binding.

    def _read_pod(self, args: BindArgs, deadline_s: float) -> objects.Pod:
        path = path_of(args.pod_namespace, "pods", args.pod_name)
        return pods.decode_pod(self._server.get(path, deadline_s=deadline_s))


class _BoundOtherwise(Conflict):
    """The pod is bound with other cards; ours stay reserved until the watch has reported it."""


def _still_fits(
    allocator: Allocator, request: wire.PodRequest, assignment: wire.Assignment
) -> bool:
    """Whether cards that were reserved earlier still fit the pod.

    They may have changed since, or another replica may have assigned them to another pod.
    """
    explained = allocator.explain(wire.encode(request), assignment.node)
    seen = msgspec.json.decode(explained, type=NodeView)
    if seen.assignment is None or seen.assignment == assignment:
        return seen.fits
    plans = (seen.assignment, assignment)
    assigned = [one for plan in plans for cards in plan.containers.values() for one in cards]
    sizes = [each.memory for each in request.containers]
    has_mib = all(isinstance(size, wire.Size) and size.mib is not None for size in sizes)
    if any(one.mig for one in assigned) or not has_mib:
        # Another pod may use the MIG instance's placement by now, and a share of memory depends on
        # the card's size.
        return False
    shared = [card for card in seen.cards if not card.mig]
    fitting = {(c.container, card.uuid) for card in shared for c in card.containers if c.fits}
    reserved = [(name, one.card) for name, cards in assignment.containers.items() for one in cards]
    are_distinct = len({card for _, card in reserved}) == len(reserved)
    return are_distinct and fitting.issuperset(reserved)


def _called(args: BindArgs) -> str:
    return f"pod {args.pod_namespace}/{args.pod_name}"
