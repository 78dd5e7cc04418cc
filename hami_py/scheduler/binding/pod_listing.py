"""A list of the pods that were bound on a node, or in a namespace, before this replica took over.

A namespace may have more pods than can be listed within the time of one binding. So a listing keeps
its pages, and the next binding continues where the last one stopped.

Only pods count that other replicas had bound before the first page was requested: since then only
this replica binds, or the listing is obsolete (``failover``). Such a pod is in every later version
of the list unless it was deleted, so the pages need not come from one version. Once the watch has
reported that the pod is bound, nothing is left to find out: the watch reports what happens to it.
A pod that is not known when its page arrives may have been deleted after the page's version, and
the watch may have reported that long ago. So the listing reads such a pod again by its name.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from hami_py.cluster.bound import Bound
from hami_py.kube import ApiServer, Undecoded, list_objects, path_of
from hami_py.kube.errors import Expired, Rejected, Unavailable
from hami_py.kube.lists import decoded_object, page_of
from hami_py.model.pods import objects

_decoder = msgspec.json.Decoder(objects.Pod)


class _Name(NamedTuple):
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"pod {self.namespace}/{self.name}"


class PodListing:
    """One list of pods. Threads may share it: a page that two threads have read counts once.

    Args:
        followed: the query of the watch of pods; the watch reports no other pods.
        is_known: whether the watch has reported this binding, or this replica made it.

    Attributes:
        listed: the number of pods on the pages so far.
        is_late: whether listing takes too long for a binding and continues in the background.
    """

    def __init__(
        self,
        server: ApiServer,
        path: str,
        fields: str,
        followed: Mapping[str, str],
        is_known: Callable[[Bound], bool],
    ) -> None:
        self._what = f"{path} {fields}"
        self.listed = 0
        self.is_late = False
        self._server = server
        self._path = path
        self._followed = followed
        self._query = {**followed, "fieldSelector": fields}
        self._is_known = is_known
        self._lock = threading.Lock()
        # The token that continues the list; None: all pages were read.
        self._rest: str | None = ""
        # Bound by another replica, as far as can be decoded, and not known when they were read.
        self._missing: dict[_Name, Bound | None] = {}

    @property
    def is_listed(self) -> bool:
        """Whether all pages were read."""
        return self._rest is None

    def finish(self, left_s: Callable[[], float]) -> None:
        """Reads the remaining pages and checks that all bindings on them are known.

        Raises:
            Unavailable: the watch has not reported one of them yet, or ``left_s`` raised it.
            KubeError: the API server did not answer.
        """
        while not self.is_listed:
            self.read_page(left_s())
        for name, bound in tuple(self._missing.items()):
            if bound is None or not self._is_known(bound):
                self._check_again(name, left_s())
            self._missing.pop(name, None)

    def read_page(self, deadline_s: float) -> None:
        """Reads the next page, if there is one.

        Raises:
            KubeError: the API server did not answer.
        """
        token = self._rest
        if token is None:
            return
        try:
            page = page_of(self._server, self._path, self._query, token, deadline_s=deadline_s)
        except (Expired, Rejected) as error:
            # A token is valid for some minutes, and only at the server that made it.
            self._turn(token, error.rest if isinstance(error, Expired) else "")
            raise
        missing: dict[_Name, Bound | None] = {}
        for raw in page.items:
            pod = decoded_object(_decoder, self._path, raw)
            if pod is None:
                continue
            name = _Name(pod.metadata.namespace or "", pod.metadata.name)
            try:
                bound = Bound.of(pod)
                if self._is_missing(bound):
                    missing[name] = bound
            except msgspec.ValidationError:
                missing[name] = None
        self._turn(token, page.metadata.continue_ or None, missing, len(page.items))

    def _turn(
        self,
        token: str,
        rest: str | None,
        missing: Mapping[_Name, Bound | None] | None = None,
        listed: int = 0,
    ) -> None:
        with self._lock:
            if self._rest == token:
                self._missing.update(missing or {})
                self.listed = self.listed + listed if token else listed
                self._rest = rest

    def _check_again(self, name: _Name, deadline_s: float) -> None:
        query = {**self._followed, "fieldSelector": f"metadata.name={name.name}"}
        path = path_of(name.namespace, "pods")
        there, undecoded = list_objects(
            self._server, path, objects.Pod, query=query, deadline_s=deadline_s
        )
        pods: list[objects.Pod | Undecoded] = [*there, *undecoded]
        for pod in pods:
            try:
                is_missing = self._is_missing(Bound.of(pod))
            except msgspec.ValidationError as error:
                why = f"it is not known whether {name} has cards: {error}"
                raise Unavailable(self._what, why, "check that pod") from error
            if is_missing:
                why = f"the watch has not yet reported that {name} is bound"
                raise Unavailable(self._what, why, "try again later")

    def _is_missing(self, bound: Bound | None) -> bool:
        # The assignment may be invalid here: then the node is blocked, but only once the watch has
        # reported the pod.
        return bound is not None and not self._is_known(bound)
