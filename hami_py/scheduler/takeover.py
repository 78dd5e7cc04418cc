"""The first bindings after another replica's.

kube-scheduler asks the replica beside it, and one of them at a time. But a binding that the one
before was asked for may still be on its way, and what it has bound is known here only once the
watch has told of it, which may be away. So whoever has kube-scheduler's lease anew, or without one
was not asked for a while, waits until that binding is over, and looks first: before its first
binding to a node who is bound there, and before its first one in a namespace with quotas who is
bound in it. Where the watch has not told of all of them, the pod is tried again later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from urllib.parse import quote

import msgspec

from hami_py.kube import ApiServer, Undecoded, list_objects
from hami_py.kube.errors import Unavailable
from hami_py.model.pods import objects
from hami_py.scheduler.bound import Bound
from hami_py.scheduler.cluster import PODS, Cluster
from hami_py.scheduler.lease import Lease, Tenure
from hami_py.scheduler.wire import BindArgs

__all__ = ["Takeover"]

_NOT_OVER = ",".join(f"status.phase!={phase}" for phase in sorted(objects.OVER))


class Takeover:
    """Which nodes and namespaces were looked at since others may have bound. Threads may share it.

    Args:
        cluster: what the watches have told.
        server: where to look.
        followed: the query of the watch of pods.
        is_ours: whether a pod was bound by this replica, with the assignment that it has.
        lease: kube-scheduler's; None: there is one kube-scheduler alone.
        bind_s: how long a binding may take. Whoever was asked less than this ago was the only one
            asked since: another would be waiting still.
    """

    def __init__(
        self,
        cluster: Cluster,
        server: ApiServer,
        followed: Mapping[str, str],
        is_ours: Callable[[Bound], bool],
        *,
        lease: Lease | None,
        bind_s: float,
    ) -> None:
        self._cluster = cluster
        self._server = server
        self._followed = followed
        self._is_ours = is_ours
        self._lease = lease
        self._bind_ns = int(bind_s * 1e9)
        self._lock = threading.Lock()
        self._asked_ns: int | None = None
        self._tenure: Tenure | None = None
        self._seen: set[str] = set()

    def check(self, args: BindArgs, now_ns: int, left_s: Callable[[], float]) -> None:
        """Looks, if nobody has yet.

        Raises:
            Unavailable: the watch has still to tell of somebody, or another may still be binding.
            KubeError: the API server does not say.
        """
        tenure = self._lease.check(now_ns, left_s) if self._lease is not None else None
        with self._lock:
            # Where the lease is the same, nobody else was asked, however long ago we were.
            may_be_new = tenure is None and self._begins(now_ns)
            if may_be_new or tenure != self._tenure:
                self._seen = set()
            self._asked_ns, self._tenure = now_ns, tenure
            seen = self._seen
        self._look(seen, PODS, {"fieldSelector": f"spec.nodeName={args.node}"}, left_s)
        if self._cluster.quotas.limits(args.pod_namespace):
            path = f"/api/v1/namespaces/{quote(args.pod_namespace, safe='')}/pods"
            # Jobs that are over may be many more than those that run, and count nowhere.
            self._look(seen, path, {"fieldSelector": _NOT_OVER}, left_s)

    def _begins(self, now_ns: int) -> bool:
        return self._asked_ns is None or now_ns - self._asked_ns > self._bind_ns

    def _look(
        self, seen: set[str], path: str, query: Mapping[str, str], left_s: Callable[[], float]
    ) -> None:
        what = f"{path} {query.get('fieldSelector', '')}".strip()
        if what in seen:
            return
        asked = {**self._followed, **query}
        there, undecoded = list_objects(
            self._server, path, objects.Pod, query=asked, deadline_s=left_s()
        )
        pods: list[objects.Pod | Undecoded] = [*there, *undecoded]
        for pod in pods:
            name = f"pod {pod.metadata.namespace}/{pod.metadata.name}"
            try:
                bound = Bound.of(pod)
            except msgspec.ValidationError as error:
                why = f"it cannot be read whether {name} has cards: {error}"
                raise Unavailable(what, why, "look at that pod") from error
            # What stands in the assignment does not matter: where nobody here can read it, the
            # node is barred once the watch has told of it, and not before.
            if bound is not None and not self._is_known(bound):
                why = f"the watch has not told yet that {name} is bound"
                raise Unavailable(what, why, "try again later")
        seen.add(what)

    def _is_known(self, bound: Bound) -> bool:
        return self._cluster.pods.is_told(bound) or self._is_ours(bound)
