"""Quotas of cards, as the allocator is to see them.

Of one that cannot be read nobody knows what it allows, so it allows nothing more, also after a
restart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hami_py.errors import InvalidValue
from hami_py.kube import Undecoded
from hami_py.model import pods
from hami_py.model.pods import objects, wire

if TYPE_CHECKING:
    from hami_py.scheduler.cluster import Cluster

__all__ = ["QuotaSink"]


class QuotaSink:
    """Quotas, by namespace and name."""

    def __init__(self, cluster: Cluster) -> None:
        self.is_listed = False
        self._cluster = cluster
        self._known: set[tuple[str, str]] = set()

    def limits(self, namespace: str) -> bool:
        """Whether a namespace has quotas of ours."""
        return any(there == namespace for there, _ in tuple(self._known))

    def replace(
        self, quotas: list[objects.ResourceQuota], undecoded: Sequence[Undecoded] = ()
    ) -> None:
        """These are all the quotas."""
        there = {_key(quota) for quota in quotas} | {_key(item) for item in undecoded}
        for key in self._known - there:
            self._remove(key)
        for quota in quotas:
            self.changed(quota)
        for item in undecoded:
            self.undecoded(item)
        self.is_listed = True

    def changed(self, quota: objects.ResourceQuota) -> None:
        """A quota came or changed."""
        try:
            seen = pods.read_quota(quota, self._cluster.settings)
        except InvalidValue as error:
            self._cluster.unreadable("resourcequota {}/{}".format(*_key(quota)), error)
            seen = _nothing(quota)
        if seen is None:
            self._remove(_key(quota))
        else:
            self._set(seen)

    def undecoded(self, item: Undecoded) -> None:
        """A quota is there and cannot be decoded: it allows what it was known to allow."""
        if _key(item) not in self._known:
            self._set(_nothing(item))

    def gone(self, quota: objects.ResourceQuota | Undecoded) -> None:
        """A quota was deleted."""
        self._remove(_key(quota))

    def _set(self, quota: wire.Quota) -> None:
        self._cluster.allocator.set_quota(wire.encode(quota))
        self._cluster.waker.changed()
        self._known.add((quota.namespace, quota.name))

    def _remove(self, key: tuple[str, str]) -> None:
        if key in self._known:
            self._known.discard(key)
            self._cluster.allocator.remove_quota(*key)
            self._cluster.waker.changed()


def _key(quota: objects.ResourceQuota | Undecoded) -> tuple[str, str]:
    return quota.metadata.namespace or "", quota.metadata.name


def _nothing(quota: objects.ResourceQuota | Undecoded) -> wire.Quota:
    return wire.Quota(*_key(quota), gpu=0, memory_mib=0, cores=0)
