"""Quotas of cards.

If a quota is invalid, its limits are not known, so it allows nothing more, also after a restart.
"""

from __future__ import annotations

from collections.abc import Sequence

from hami_py.cluster.shared import SharedState
from hami_py.errors import InvalidValue
from hami_py.kube import Undecoded
from hami_py.model import pods
from hami_py.model.pods import objects, wire


class QuotaSink:
    """Quotas, by namespace and name."""

    def __init__(self, shared: SharedState) -> None:
        self.is_listed = False
        self._shared = shared
        self._known: set[tuple[str, str]] = set()

    def limits(self, namespace: str) -> bool:
        """Whether a namespace has a quota of cards."""
        return any(there == namespace for there, _ in tuple(self._known))

    def replace(
        self, quotas: list[objects.ResourceQuota], undecoded: Sequence[Undecoded] = ()
    ) -> None:
        """Takes a whole list of quotas; quotas that are not in it were deleted."""
        there = {_key(quota) for quota in quotas} | {_key(item) for item in undecoded}
        for key in self._known - there:
            self._remove(key)
        for quota in quotas:
            self.changed(quota)
        for item in undecoded:
            self.undecoded(item)
        self.is_listed = True

    def changed(self, quota: objects.ResourceQuota) -> None:
        """Takes a quota that is new or changed."""
        try:
            seen = pods.read_quota(quota, self._shared.settings)
        except InvalidValue as error:
            self._shared.report_invalid("resourcequota {}/{}".format(*_key(quota)), error)
            seen = _nothing(quota)
        if seen is None:
            self._remove(_key(quota))
        else:
            self._set(seen)

    def undecoded(self, item: Undecoded) -> None:
        """Takes a quota that cannot be decoded: it keeps the limits that it was known to have."""
        if _key(item) not in self._known:
            self._set(_nothing(item))

    def deleted(self, quota: objects.ResourceQuota | Undecoded) -> None:
        """Takes the deletion of a quota."""
        self._remove(_key(quota))

    def _set(self, quota: wire.Quota) -> None:
        self._shared.allocator.set_quota(wire.encode(quota))
        self._shared.requeuer.changed()
        self._known.add((quota.namespace, quota.name))

    def _remove(self, key: tuple[str, str]) -> None:
        if key in self._known:
            self._known.discard(key)
            self._shared.allocator.remove_quota(*key)
            self._shared.requeuer.changed()


def _key(quota: objects.ResourceQuota | Undecoded) -> tuple[str, str]:
    return quota.metadata.namespace or "", quota.metadata.name


def _nothing(quota: objects.ResourceQuota | Undecoded) -> wire.Quota:
    return wire.Quota(*_key(quota), gpu=0, memory_mib=0, cores=0)
