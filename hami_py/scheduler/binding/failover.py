"""The checks of a new leader, before its first bindings.

kube-scheduler sends requests to the extender beside it, and only the leader of its replicas binds.
But a binding of the previous leader may still be on its way, and its results are known here only
once the watch has reported them. The watch may be behind or disconnected. So a replica whose
kube-scheduler has a new lease waits until such a binding has ended (``lease``). Then it lists the
pods that are bound: those on the node before the first binding to each node, and those in the
namespace before the first binding in each namespace with quotas. Without a lease, a replica does
the same if it got no bind request for some time.

If the watch has not reported all of them yet, the binding fails and kube-scheduler tries the pod
again. The same happens if a list takes longer than a binding may; listing then continues in the
background (``continue_listing``).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from hami_py.cluster.bound import Bound
from hami_py.cluster.state import PODS, Cluster
from hami_py.kube import ApiServer, path_of
from hami_py.kube.errors import KubeError, Unavailable
from hami_py.model.pods import objects
from hami_py.scheduler.binding.lease import Lease, Tenure
from hami_py.scheduler.binding.pod_listing import PodListing
from hami_py.scheduler.extender_api import BindArgs

_log = logging.getLogger(__name__)

_PAGE_S = 60.0
"""How long one page may take if no binding waits for it."""

_NOT_OVER = ",".join(f"status.phase!={phase}" for phase in sorted(objects.OVER))


class FailoverCheck:
    """Checks that all bindings of the previous leader are known. Threads may share it.

    Args:
        is_ours: whether this replica made a binding.
        lease: kube-scheduler's lease; ``None``: there is only one kube-scheduler.
        bind_s: how long a binding may take. Without a lease, a replica whose last bind request is
            no longer ago than this counts as the only one with requests since then.
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
        self._requested_ns: int | None = None
        self._tenure: Tenure | None = None
        self._listings: dict[str, PodListing] = {}

    def check(self, args: BindArgs, now_ns: int, left_s: Callable[[], float]) -> None:
        """Checks one binding's node and namespace, unless that was done in this tenure.

        Raises:
            Unavailable: the watch has not reported a binding yet, or another replica may still be
                binding.
            KubeError: the API server did not answer.
        """
        tenure = self._lease.check(now_ns, left_s) if self._lease is not None else None
        with self._lock:
            # While the lease stays the same, no other replica got a bind request.
            last_ns = self._requested_ns
            was_idle = last_ns is None or now_ns - last_ns > self._bind_ns
            may_be_new = tenure is None and was_idle
            if may_be_new or tenure != self._tenure:
                self._listings = {}
            self._requested_ns, self._tenure = now_ns, tenure
            listings = self._listings
        self._list(listings, PODS, f"spec.nodeName={args.node}", left_s)
        if self._cluster.quotas.limits(args.pod_namespace):
            # Pods that have ended do not count, and may be far more than those that run.
            self._list(listings, path_of(args.pod_namespace, "pods"), _NOT_OVER, left_s)

    def continue_listing(self) -> bool:
        """Reads a page of each list that takes too long for a binding.

        Returns:
            Whether there is more to read. If not, the lists are complete, or the API server did not
            answer and the next binding tries again.
        """
        with self._lock:
            late = [listing for listing in self._listings.values() if listing.is_late]
        for listing in late:
            try:
                listing.read_page(_PAGE_S)
            except KubeError as error:
                _log.warning("%s", error)
                listing.is_late = False
            else:
                listing.is_late = not listing.is_listed
        return any(listing.is_late for listing in late)

    def _list(
        self,
        listings: dict[str, PodListing],
        path: str,
        fields: str,
        left_s: Callable[[], float],
    ) -> None:
        what = f"{path} {fields}"
        with self._lock:
            listing = listings.get(what)
            if listing is None:
                listing = listings[what] = PodListing(
                    self._server, path, fields, self._followed, self._is_known
                )
        if listing.is_late:
            why = f"{listing.listed} pods are listed so far, and listing continues"
            raise Unavailable(what, why, "try again later")
        try:
            listing.finish(left_s)
        except KubeError:
            if not listing.is_listed and not _is_left(left_s):
                listing.is_late = True
            raise

    def _is_known(self, bound: Bound) -> bool:
        return self._cluster.pods.knows(bound) or self._is_ours(bound)


def _is_left(left_s: Callable[[], float]) -> bool:
    try:
        return left_s() > 0
    except Unavailable:
        return False
