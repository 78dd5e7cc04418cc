"""What a namespace's pods may have together: HAMi's names in a ``ResourceQuota``.

Kubernetes itself counts ``requests.nvidia.com/gpumem`` once per container, however many cards it
has. HAMi's users write ``limits.nvidia.com/gpumem`` instead, which the API server stores and does
not enforce; there memory is MiB times cards. Scopes are not looked at: such a quota holds for all
pods of its namespace. Of several quotas each holds.
"""

from hami_py.errors import InvalidValue
from hami_py.model.pods.counts import unit_name
from hami_py.model.pods.objects import Quantities, ResourceQuota
from hami_py.model.pods.quantity import Counted, count
from hami_py.model.pods.settings import DEFAULT, PodSettings
from hami_py.model.pods.wire import Quota

_MOST = (1 << 53) - 1
"""More than all cards there are, and still exact wherever it is read."""

_MOST_MIB = (1 << 30) - 1
"""Just below 1 PiB, 3,600 of the largest cards: ``1Gi``, which is to be 1 GiB, is beyond."""


def read_quota(quota: ResourceQuota, settings: PodSettings = DEFAULT) -> Quota | None:
    """The quota for the allocator, or None if it limits nothing of ours.

    Raises:
        InvalidValue: a number is not understood or negative, or stands there under two names.
    """
    hard = quota.spec.hard or {}
    limits: dict[str, int] = {}
    for profile in settings.profiles:
        unit = profile.memory_unit_mib
        rows = (
            ("gpu", profile.gpu, Counted("cards", 0, _MOST, 4), 1),
            ("memory_mib", profile.memory, _memory(unit), unit),
            ("cores", profile.cores, Counted("percent of a card's time", 0, _MOST, 200), 1),
        )
        for name, resource, counted, factor in rows:
            number = _read(hard, f"limits.{resource}", counted)
            if number is None:
                continue
            number *= factor
            if limits.setdefault(name, number) != number:
                field = f"spec.hard[limits.{resource}]"
                fix = f"another name says {limits[name] // factor}: keep one"
                raise InvalidValue(field, str(number // factor), fix)
    if not limits:
        return None
    metadata = quota.metadata
    return Quota(metadata.namespace or "", metadata.name, **limits)


def _memory(unit: int) -> Counted:
    most = _MOST_MIB // unit
    return Counted(f"{unit_name(unit)}, summed over cards", 0, most, 40000 // unit, mib=unit)


def _read(hard: Quantities, name: str, counted: Counted) -> int | None:
    return count(hard[name], f"spec.hard[{name}]", counted) if name in hard else None
