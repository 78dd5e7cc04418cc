"""The first bindings after another replica's.

kube-scheduler asks the replica beside it, and one of them at a time. But a binding that the one
before was asked for may still be on its way, and what it has bound is known here only once the
watch has told of it, which may be away. So whoever has kube-scheduler's lease anew waits until that
binding is over (``lease``), and looks first; so does, without a lease, whoever was not asked for a
while. It looks before its first binding to a node who is bound there, and before its first one in a
namespace with quotas who is bound in it. Where the watch has not told of all of them, the pod is
tried again later; so it is where a list takes longer than a binding may, which then goes on beside
(``go_on``).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from hami_py.kube import ApiServer
from hami_py.kube.errors import KubeError, Unavailable
from hami_py.model.pods import objects
from hami_py.scheduler.bound import Bound
from hami_py.scheduler.cluster import PODS, Cluster
from hami_py.scheduler.extender_api import BindArgs
from hami_py.scheduler.lease import Lease, Tenure
from hami_py.scheduler.look import Look, pods_of

__all__ = ["Takeover"]

_log = logging.getLogger(__name__)

_PAGE_S = 60.0
"""How long one page may take where no binding waits for it."""

_NOT_OVER = ",".join(f"status.phase!={phase}" for phase in sorted(objects.OVER))


class Takeover:
    """Which nodes and namespaces were looked at since others may have bound. Threads may share it.

    Args:
        cluster: what the watches have told.
        server: where to look.
        followed: the query of the watch of pods.
        is_ours: whether a pod was bound by this replica, with the assignment that it has.
        lease: kube-scheduler's; None: there is one kube-scheduler alone.
        bind_s: how long a binding may take. Without a lease, whoever was asked no longer ago than
            this is taken for the only one asked since.
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
        self._looks: dict[str, Look] = {}

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
                self._looks = {}
            self._asked_ns, self._tenure = now_ns, tenure
            looks = self._looks
        self._look(looks, PODS, f"spec.nodeName={args.node}", left_s)
        if self._cluster.quotas.limits(args.pod_namespace):
            # Jobs that are over may be many more than those that run, and count nowhere.
            self._look(looks, pods_of(args.pod_namespace), _NOT_OVER, left_s)

    def _begins(self, now_ns: int) -> bool:
        return self._asked_ns is None or now_ns - self._asked_ns > self._bind_ns

    def go_on(self) -> bool:
        """Reads a page of each list that takes too long for a binding.

        Returns:
            Whether there is more to read: else these lists are whole, or the API server does not
            say, and the next binding tries itself.
        """
        with self._lock:
            late = [look for look in self._looks.values() if look.is_late]
        for look in late:
            try:
                look.read_page(_PAGE_S)
            except KubeError as error:
                _log.warning("%s", error)
                look.is_late = False
            else:
                look.is_late = not look.is_listed
        return any(look.is_late for look in late)

    def _look(
        self, looks: dict[str, Look], path: str, fields: str, left_s: Callable[[], float]
    ) -> None:
        what = f"{path} {fields}"
        with self._lock:
            look = looks.get(what)
            if look is None:
                look = looks[what] = self._begin(path, fields)
        if look.is_late:
            why = f"{look.looked_at} pods are listed so far, which goes on"
            raise Unavailable(what, why, "try again later")
        try:
            look.finish(left_s)
        except KubeError:
            if not look.is_listed and not _is_left(left_s):
                look.is_late = True
            raise

    def _begin(self, path: str, fields: str) -> Look:
        return Look(self._server, path, fields, self._followed, self._is_known)

    def _is_known(self, bound: Bound) -> bool:
        return self._cluster.pods.knows(bound) or self._is_ours(bound)


def _is_left(left_s: Callable[[], float]) -> bool:
    try:
        return left_s() > 0
    except Unavailable:
        return False
