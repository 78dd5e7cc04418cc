"""Bind: cards are reserved, and one write says so.

What is hard about it is the time until the watch tells of the binding. Where no answer came, it may
be there, may come yet, or may never have been made; and a pod may come and go while the watch is
away. So what was sent is kept until the watch has told: meanwhile the pod can be bound to the same
node again, which is the same write, but to no other, and if the watch does not tell in time the API
server is asked what became of it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import quote

import msgspec

from hami_py.errors import HamiError, InvalidValue
from hami_py.kube import ApiServer, bind, check_annotations, keeps_labels_of_bindings
from hami_py.kube.errors import Conflict, NotFound, Unavailable
from hami_py.model import pods
from hami_py.model.pods import objects, wire
from hami_py.scheduler.bound import Bound
from hami_py.scheduler.cluster import Cluster
from hami_py.scheduler.extender_api import BindArgs
from hami_py.scheduler.lease import Lease
from hami_py.scheduler.standing import stands
from hami_py.scheduler.takeover import Takeover
from hami_py.scheduler.timing import Timing
from hami_py.scheduler.waiting import WaitingPod

__all__ = ["Binder"]

_log = logging.getLogger(__name__)


@dataclass
class _Write:
    """A binding. ``ended_ns``: when it was answered, or given up; None: that is still to come."""

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
        self._takeover = Takeover(
            cluster, server, followed, self._has_bound, lease=lease, bind_s=timing.bind_s
        )
        self._server = server
        self._follows_label = bool(followed)
        # Not known yet.
        self._keeps_labels: bool | None = None
        self._timing = timing
        self._clock_ns = clock_ns
        self._lock = threading.Lock()
        self._writes: dict[str, _Write] = {}

    def node_of(self, uid: str) -> str | None:
        """The node that a pod is bound to, or may be, before the watch has told of it."""
        with self._lock:
            write = self._writes.get(uid)
            return write.args.node if write is not None else None

    def bind(self, args: BindArgs, began_ns: int) -> None:
        """Reserves cards for the pod and binds it; again is the same.

        Args:
            args: which, and where.
            began_ns: when that was asked for, which may be a while ago: many are bound at once, and
                they wait for each other.

        Raises:
            HamiError: it is not bound, or it is not known whether it is.
        """

        def left_s() -> float:
            """Of the time for all of it.

            Raises:
                Unavailable: there is none, and the lease may be another's by now.
            """
            left = self._timing.bind_s - (self._clock_ns() - began_ns) / 1e9
            if left <= 0:
                raise Unavailable(
                    _called(args), "there is no time left to bind it", "try again later"
                )
            return left

        args.check_names()
        pod = self._cluster.waiting.find(args.pod_uid) or self._look_up(args, left_s)
        if pod is None:
            self._bind_without_cards(args, left_s)
            return
        if not pod.is_labelled:
            self._check_followed(args, left_s)
        self._takeover.check(args, began_ns, left_s)
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
                    # That we may not, say, tells nothing of an attempt that was let through.
                    with self._lock:
                        self._writes[args.pod_uid] = before
            raise
        finally:
            with self._lock:
                write.ended_ns = self._clock_ns()
        self._cluster.waiting.forget(args.pod_uid)

    def _check_followed(self, args: BindArgs, left_s: Callable[[], float]) -> None:
        """Whether the watch will tell of a pod without the label once it is bound.

        Raises:
            InvalidValue: it will not, so after a restart the pod's cards would be given again.
        """
        if not self._follows_label:
            return
        if self._keeps_labels is None:
            self._keeps_labels = keeps_labels_of_bindings(self._server, left_s())
        if not self._keeps_labels:
            raise InvalidValue(
                "metadata.labels",
                "",
                f"{_called(args)} was made where the webhook is not asked, and Kubernetes before "
                "1.35 drops the labels of a binding: make it in a namespace without "
                "hami.io/webhook: ignore, or run the extender with --pod-selector ''",
            )

    def go_on(self) -> bool:
        """Does some of what bindings wait for and is too long for one; whether there is more."""
        return self._takeover.go_on()

    def settle(self) -> None:
        """Asks what became of bindings that the watch should have told of by now."""
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
        # The same assignment is always the same text.
        return write is not None and pods.encode_assignment(write.assignment) == bound.assignment

    def _reserve(self, args: BindArgs, request: wire.PodRequest) -> tuple[_Write, _Write | None]:
        """What is to be written, and an earlier one of the same cards that may be there or come."""
        if args.node not in self._cluster.nodes:
            # The API server would take a binding to a node that is not there.
            raise NotFound(
                f"node {args.node}", "it is gone, or has no cards any more", "try another one"
            )
        with self._lock:
            before = self._writes.get(args.pod_uid)
            if before is not None and (before.ended_ns is None or before.args.node != args.node):
                raise Conflict(
                    _called(args),
                    f"it is being bound to node {before.args.node}",
                    "try again when that is known to have failed",
                )
            if before is None:
                reserved = self._cluster.allocator.reserve(
                    wire.encode(request), args.node, self._clock_ns()
                )
                assignment = msgspec.json.decode(reserved, type=wire.Assignment)
            else:
                # Not reserved anew: of a card that has failed, that would take others and leave to
                # anybody what the earlier one may have given away.
                assignment = before.assignment
                if not stands(self._cluster.allocator, request, assignment):
                    raise Conflict(
                        _called(args),
                        "the cards that it was to have would not do any more",
                        "try again when it is known that it has not got them",
                    )
            write = self._writes[args.pod_uid] = _Write(args, assignment)
        return write, before

    def _end(self, write: _Write, *, release: bool) -> None:
        uid = write.args.pod_uid
        with self._lock:
            # Unless it is being bound once more.
            if self._writes.get(uid) is write:
                del self._writes[uid]
                if release:
                    self._cluster.allocator.release(uid)
                    self._cluster.waker.changed()

    def _post(
        self,
        args: BindArgs,
        annotations: dict[str, str],
        assignment: wire.Assignment,
        left_s: Callable[[], float],
    ) -> None:
        try:
            # The labels also onto a pod that the webhook was not asked about: else the watch would
            # not tell of it, and its cards would look free.
            self._write(args, annotations, pods.annotations.LABELS, left_s())
        except Conflict as error:
            has = self._assignment(args, self._timing.bind_s)
            if has is None:
                raise
            if has != assignment:
                raise _BoundOtherwise(error.what, error.why, error.fix, error.status) from error
            # An earlier attempt of ours, whose answer was lost, has done it.

    def _write(
        self,
        args: BindArgs,
        annotations: Mapping[str, str],
        labels: Mapping[str, str],
        deadline_s: float,
    ) -> None:
        bind(
            self._server,
            namespace=args.pod_namespace,
            pod=args.pod_name,
            uid=args.pod_uid,
            node=args.node,
            annotations=annotations,
            labels=labels,
            deadline_s=deadline_s,
        )

    def _assignment(self, args: BindArgs, deadline_s: float) -> wire.Assignment | None:
        """The cards that the pod has by now; None: it has none, or is not bound, or over, or gone.

        Raises:
            Unavailable: that cannot be told.
        """
        try:
            pod = self._pod(args, deadline_s)
            is_there = pod.uid == args.pod_uid and not pod.is_over
            return pods.assignment_of(pod) if is_there else None
        except NotFound:
            return None
        except HamiError as error:
            fix = "try again later"
            raise Unavailable(_called(args), f"its cards are not known ({error})", fix) from error

    def _look_up(self, args: BindArgs, left_s: Callable[[], float]) -> WaitingPod | None:
        """A pod that no filter and no watch has told of; None: it asks for no card.

        Another replica was asked before, or it asks for zero.
        """
        pod = self._pod(args, left_s())
        if pod.uid != args.pod_uid:
            raise NotFound(_called(args), "it is another pod of the same name by now", "forget it")
        request = pods.read_request(pod, self._cluster.settings)
        return WaitingPod.of(pod, request) if request is not None else None

    def _bind_without_cards(self, args: BindArgs, left_s: Callable[[], float]) -> None:
        """kube-scheduler leaves binding to us where a resource of ours is named, be it with 0."""
        try:
            self._write(args, {}, {}, left_s())
        except Conflict:
            pod = self._pod(args, left_s())
            if (pod.uid, pod.spec.node_name) != (args.pod_uid, args.node):
                raise
            # An earlier attempt, whose answer was lost, has done it.

    def _pod(self, args: BindArgs, deadline_s: float) -> objects.Pod:
        namespace, name = quote(args.pod_namespace, safe=""), quote(args.pod_name, safe="")
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        return pods.decode_pod(self._server.get(path, deadline_s=deadline_s))


class _BoundOtherwise(Conflict):
    """It is bound already, with other cards: ours stay reserved for it until the watch has told."""


def _called(args: BindArgs) -> str:
    return f"pod {args.pod_namespace}/{args.pod_name}"
