"""Running control planes, which tests borrow one after the other: to start one takes seconds.

A control plane that comes back is made as it was when it started. All that was written to etcd
since is undone there, and the API server learns of it as of any other change. One with a server
that a test has stopped or paused, or whose history is compacted, does not come back: it ends.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cluster import objects, waiting
from cluster.api import ApiError
from cluster.control_plane import ControlPlane, Programs
from cluster.objects import PODS

#: Objects that Kubernetes itself writes at any time; tests do not use them.
_OWN = tuple(
    f"/registry/{name}".encode()
    for name in (
        "leases/kube-system/apiserver-",
        "masterleases/",
        "configmaps/kube-system/",
        "flowschemas/",
        "prioritylevelconfigurations/",
        "apiregistration.k8s.io/",
    )
)

#: The objects that exist when the API server has created its own.
_FIRST = (
    *(f"/api/v1/namespaces/{name}" for name in ("default", "kube-system", "kube-node-lease")),
    "/api/v1/namespaces/kube-public",
    "/api/v1/namespaces/default/services/kubernetes",
)

_Entries = dict[bytes, bytes]


class Pool:
    """Control planes with the settings that most tests have; used in `with`."""

    def __init__(self, programs: Programs, folder: Path) -> None:
        self._programs, self._folder = programs, folder
        self._free: list[tuple[ControlPlane, _Entries]] = []
        self._count = 0

    @contextlib.contextmanager
    def borrow(
        self, folder: Path, scheduler: Mapping[str, Any], see: Callable[[ControlPlane], None]
    ) -> Iterator[ControlPlane]:
        """A control plane for this borrower alone, with this configuration of kube-scheduler.

        The borrower's output goes to ``folder``. ``see`` is called before anything can fail.
        """
        with contextlib.ExitStack() as ends:
            # One whose server has crashed since must fail no other test.
            while self._free and not self._free[-1][0].is_as_started:
                self._free.pop()[0].stop()
            if self._free:
                cluster, entries = self._free.pop()
                ends.callback(cluster.stop)
                see(cluster)
                cluster.reschedule(scheduler)
            else:
                self._count += 1
                home = self._folder / f"cluster{self._count}"
                cluster = ControlPlane(self._programs, home, scheduler=scheduler)
                see(cluster)
                ends.enter_context(cluster)
                entries = _first(cluster)
            cluster.folder = folder
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            yield cluster
            if cluster.is_as_started:
                _undo(cluster, entries)
                ends.pop_all()
                self._free.append((cluster, entries))

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *unused: object) -> None:
        for cluster, _ in self._free:
            cluster.stop()


def _first(cluster: ControlPlane) -> _Entries:
    def all_there() -> bool:
        return all(cluster.api.request("GET", path)[0] == 200 for path in _FIRST)

    waiting.until(all_there, "the API server has made what is its own")
    return cluster.entries()


def _undo(cluster: ControlPlane, entries: _Entries) -> None:
    """Make etcd's entries these, but for those that are Kubernetes' own business."""
    # It would acquire its lease again. The next borrower starts one.
    cluster.scheduler.stop()
    now = cluster.entries()
    added = [key for key in now if key not in entries and not key.startswith(_OWN)]
    changed = {
        key: value
        for key, value in entries.items()
        if now.get(key) != value and not key.startswith(_OWN)
    }
    # Pods first: kube-scheduler and others never see one without its node or namespace.
    added.sort(key=lambda key: not key.startswith(b"/registry/pods/"))
    cluster.change_entries(changed, added)
    _wait_until_nothing_is_reviewed(cluster)


def _wait_until_nothing_is_reviewed(cluster: ControlPlane) -> None:
    """The API server notices removed webhooks and policies late, also those a test removed."""
    limits = {"nvidia.com/gpu": 1}
    forged = {"annotations": {"hami.io/assignment": "{}"}}
    for pod in (objects.pod("first", limits), objects.pod("first", metadata=forged)):

        def is_left_alone(pod: Any = pod) -> bool:
            try:
                made = cluster.api.create(f"{PODS}?dryRun=All", pod)
            except ApiError:
                return False
            return bool(made["spec"]["schedulerName"] == "default-scheduler")

        waiting.until(is_left_alone, "no webhook and no policy is in force any more")
