"""The first bindings after another replica's.

kube-scheduler asks the replica beside it, and one of them at a time. But a binding that the one
before was asked for may still be on its way, and what it has bound is known here only once the
watch has told of it, which may be away. So whoever was not asked for a while waits until that
binding is over, and looks first: before its first binding to a node who is bound there, and before
its first one in a namespace with quotas who is bound in it. Where the watch has not told of all of
them, the pod is tried again later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from urllib.parse import quote

from hami_py.errors import HamiError
from hami_py.kube import ApiServer, list_objects
from hami_py.kube.errors import Unavailable
from hami_py.model import pods
from hami_py.model.pods import objects
from hami_py.scheduler.cluster import PODS, Cluster
from hami_py.scheduler.lease import Lease
from hami_py.scheduler.wire import BindArgs

__all__ = ["Takeover"]


class Takeover:
    """Which nodes and namespaces were looked at since others may have bound. Threads may share it.

    Args:
        cluster: what the watches have told.
        server: where to look.
        followed: the query of the watch of pods.
        is_ours: whether a pod was bound by this replica, with the cards that it has.
        lease: kube-scheduler's; None: there is one kube-scheduler alone.
        bind_s: how long a binding may take. Whoever was asked less than this ago was the only one
            asked since: another would be waiting still.
    """

    def __init__(
        self,
        cluster: Cluster,
        server: ApiServer,
        followed: Mapping[str, str],
        is_ours: Callable[[objects.Pod], bool],
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
        self._seen: set[str] = set()

    def check(self, args: BindArgs, now_ns: int, left_s: Callable[[], float]) -> None:
        """Looks, if nobody has yet.

        Raises:
            Unavailable: the watch has still to tell of somebody, or another may still be binding.
            KubeError: the API server does not say.
        """
        if self._lease is not None and self._begins(now_ns):
            self._lease.check(now_ns, left_s())
        with self._lock:
            if self._begins(now_ns):
                self._seen = set()
            self._asked_ns = now_ns
            seen = self._seen
        self._look(seen, PODS, {"fieldSelector": f"spec.nodeName={args.node}"}, left_s)
        if self._cluster.quotas.limits(args.pod_namespace):
            path = f"/api/v1/namespaces/{quote(args.pod_namespace)}/pods"
            self._look(seen, path, {}, left_s)

    def _begins(self, now_ns: int) -> bool:
        return self._asked_ns is None or now_ns - self._asked_ns > self._bind_ns

    def _look(
        self, seen: set[str], path: str, query: Mapping[str, str], left_s: Callable[[], float]
    ) -> None:
        what = f"{path} {query.get('fieldSelector', '')}".strip()
        if what in seen:
            return
        asked = {**self._followed, **query}
        # Of one that cannot be decoded the watch has told, and has barred its node if need be.
        there, _ = list_objects(self._server, path, objects.Pod, query=asked, deadline_s=left_s())
        for pod in there:
            if not self._is_known(pod):
                raise Unavailable(
                    what,
                    f"the watch has not told yet that pod {pod.metadata.namespace}/"
                    f"{pod.metadata.name} is bound",
                    "try again later",
                )
        seen.add(what)

    def _is_known(self, pod: objects.Pod) -> bool:
        try:
            has_cards = not pod.is_over and pods.assignment_of(pod) is not None
        except HamiError:
            # Nobody can say which cards it has; the watch has told the operator so.
            return True
        return not has_cards or self._cluster.pods.is_told(pod) or self._is_ours(pod)
