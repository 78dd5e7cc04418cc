"""Who was bound on a node, or in a namespace, by others: looked at once, page by page.

A namespace may have more pods than can be listed within the time of one binding. So what has been
looked at stays, and whoever comes next goes on from there.

What counts are pods that others had bound before the first page was asked for: nobody else has
bound any since, or this look is nobody's any more (``takeover``). Such a pod is in each later
state of the list, too, unless it is gone, so the pages need not be of one moment. And where the
watch has told once that it is bound, nothing more is to be looked for: what becomes of it the watch
tells as well. A pod that is not known when its page comes may have gone since that page's moment,
of which the watch may have told long ago; so it is asked for by its name.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from hami_py.kube import ApiServer, Undecoded, list_objects
from hami_py.kube.errors import Expired, Rejected, Unavailable
from hami_py.kube.lists import decoded_object, page_of
from hami_py.model.pods import objects
from hami_py.scheduler.bound import Bound

__all__ = ["Look", "pods_of"]

_decoder = msgspec.json.Decoder(objects.Pod)


class _Name(NamedTuple):
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"pod {self.namespace}/{self.name}"


class Look:
    """One list of pods. Threads may share it: a page that two have read counts once.

    Args:
        server: where to look.
        path: of the list.
        fields: the field selector.
        followed: the query of the watch of pods; of others it never tells.
        is_known: whether the watch has told that a pod is bound so, or it was bound here.

    Attributes:
        looked_at: pods that were on the pages so far.
        is_late: it takes too long for a binding, and somebody reads it page by page.
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
        self.looked_at = 0
        self.is_late = False
        self._server = server
        self._path = path
        self._followed = followed
        self._query = {**followed, "fieldSelector": fields}
        self._is_known = is_known
        self._lock = threading.Lock()
        # What the next page is asked for with; None: there is none.
        self._rest: str | None = ""
        # Bound by others, as far as can be read, and not known when they were looked at.
        self._missing: dict[_Name, Bound | None] = {}

    @property
    def is_listed(self) -> bool:
        """Whether all pages were read."""
        return self._rest is None

    def finish(self, left_s: Callable[[], float]) -> None:
        """Reads the pages that are left, and waits for nobody.

        Raises:
            Unavailable: the watch has still to tell of somebody, or ``left_s`` says so.
            KubeError: the API server does not say.
        """
        while not self.is_listed:
            self.read_page(left_s())
        for name, bound in tuple(self._missing.items()):
            if bound is None or not self._is_known(bound):
                self._ask_for(name, left_s())
            self._missing.pop(name, None)

    def read_page(self, deadline_s: float) -> None:
        """Reads the next one.

        Raises:
            KubeError: the API server does not say.
        """
        asked = self._rest
        if asked is None:
            return
        try:
            page = page_of(self._server, self._path, self._query, asked, deadline_s=deadline_s)
        except (Expired, Rejected) as error:
            # What was told to go on with is kept for minutes, and by a server that has it.
            self._turn(asked, error.rest if isinstance(error, Expired) else "")
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
        self._turn(asked, page.metadata.continue_ or None, missing, len(page.items))

    def _turn(
        self,
        asked: str,
        rest: str | None,
        missing: Mapping[_Name, Bound | None] | None = None,
        read: int = 0,
    ) -> None:
        with self._lock:
            if self._rest == asked:
                self._missing.update(missing or {})
                self.looked_at = self.looked_at + read if asked else read
                self._rest = rest

    def _ask_for(self, name: _Name, deadline_s: float) -> None:
        query = {**self._followed, "fieldSelector": f"metadata.name={name.name}"}
        path = pods_of(name.namespace)
        there, undecoded = list_objects(
            self._server, path, objects.Pod, query=query, deadline_s=deadline_s
        )
        pods: list[objects.Pod | Undecoded] = [*there, *undecoded]
        for pod in pods:
            try:
                is_missing = self._is_missing(Bound.of(pod))
            except msgspec.ValidationError as error:
                why = f"it cannot be read whether {name} has cards: {error}"
                raise Unavailable(self._what, why, "look at that pod") from error
            if is_missing:
                why = f"the watch has not told yet that {name} is bound"
                raise Unavailable(self._what, why, "try again later")

    def _is_missing(self, bound: Bound | None) -> bool:
        # What stands in the assignment does not matter: where nobody here can read it, the node is
        # barred once the watch has told of it, and not before.
        return bound is not None and not self._is_known(bound)


def pods_of(namespace: str) -> str:
    """The path of a namespace's pods."""
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"
