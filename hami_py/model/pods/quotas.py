"""Reading a ``ResourceQuota`` with HAMi's names: the most that a namespace's pods may have.

Kubernetes itself counts ``requests.nvidia.com/gpumem`` once per container, however many cards it
has. HAMi's users write ``limits.nvidia.com/gpumem`` instead, which the API server stores and does
not enforce; there memory is MiB times cards. Scopes are ignored: such a quota holds for all pods of
its namespace. If there are several quotas, each of them holds.
"""

from hami_py.errors import InvalidValue
from hami_py.model.pods.objects import ResourceQuota
from hami_py.model.pods.quantities import CountRule, count, unit_name
from hami_py.model.pods.settings import DEFAULT, PodSettings
from hami_py.model.pods.wire import Quota

_MAX = (1 << 53) - 1
"""More than all cards that exist, and exact in every JSON reader."""

_MAX_MIB = (1 << 30) - 1
"""Just below 1 PiB, 3,600 of the largest cards, and small enough to refuse ``1Gi`` for 1 GiB."""


def read_quota(quota: ResourceQuota, settings: PodSettings = DEFAULT) -> Quota | None:
    """The quota for the allocator, or None if it limits no resource of hami.

    Raises:
        InvalidValue: a number is malformed or negative, or two names contradict each other.
    """
    hard = quota.spec.hard or {}
    limits: dict[str, int] = {}
    for profile in settings.profiles:
        unit = profile.memory_unit_mib
        rows = (
            ("gpu", profile.gpu, CountRule("cards", 0, _MAX, 4), 1),
            ("memory_mib", profile.memory, _memory(unit), unit),
            ("cores", profile.cores, CountRule("percent of a card's time", 0, _MAX, 200), 1),
        )
        for name, resource, rule, factor in rows:
            written = f"limits.{resource}"
            if written not in hard:
                continue
            number = count(hard[written], f"spec.hard[{written}]", rule) * factor
            if limits.setdefault(name, number) != number:
                fix = f"another name sets {limits[name] // factor}: keep one of them"
                raise InvalidValue(f"spec.hard[{written}]", str(number // factor), fix)
    if not limits:
        return None
    metadata = quota.metadata
    return Quota(metadata.namespace or "", metadata.name, **limits)


def _memory(unit: int) -> CountRule:
    most = _MAX_MIB // unit
    return CountRule(f"{unit_name(unit)}, summed over cards", 0, most, 40000 // unit, mib=unit)
