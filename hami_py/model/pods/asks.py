"""From the resources of one container to what it asks for.

Every number is read by one grammar (quantity.py) and one table of what it counts (counts.py).
Nothing that is wrong makes a container one without a GPU: it is an error that says how to fix it.
"""

from collections.abc import Mapping

import msgspec

from hami_py.errors import InvalidValue
from hami_py.model.pods.counts import Row, Table
from hami_py.model.pods.names import NameProfile
from hami_py.model.pods.objects import Container, Pod, Quantity, Resources
from hami_py.model.pods.quantity import count, number
from hami_py.model.pods.settings import PodSettings
from hami_py.model.pods.wire import Ask, Kind, Memory, Size

WHOLE_PERCENT = 100


# Structs for their speed: of 100,000 pods each container becomes one or two of these.
class Place(msgspec.Struct, frozen=True):
    """A container of a pod, and how messages call it.

    Attributes:
        container: the container.
        number: its place in its list.
        kind: when it runs.
    """

    container: Container
    number: int
    kind: Kind

    @property
    def path(self) -> str:
        """``spec.containers[0]``, as Kubernetes writes it."""
        return f"spec.{'containers' if self.kind == 'app' else 'initContainers'}[{self.number}]"


class Reading(msgspec.Struct, frozen=True):
    """What a container asks for.

    Attributes:
        ask: cards, memory and cores.
        profile: whose names it used.
        priority: 0 before 1 on the same card; None = nothing is said.
        missing: what its limits have to get so that everybody reads the same in them.
    """

    ask: Ask
    profile: NameProfile
    priority: int | None
    missing: Mapping[str, int]


def places(pod: Pod) -> tuple[Place, ...]:
    """The containers in the order in which the kubelet starts them: init containers first."""
    found = [
        Place(each, i, "sidecar" if each.is_sidecar else "init")
        for i, each in enumerate(pod.spec.init_containers or ())
    ]
    found += [Place(each, i, "app") for i, each in enumerate(pod.spec.containers or ())]
    return tuple(found)


def read_container(place: Place, pod: Pod, settings: PodSettings) -> Reading | None:
    """What a container asks for, or None if that is no GPU.

    Raises:
        InvalidValue: a number that is not understood or out of range, or a contradiction.
    """
    resources = place.container.resources
    if resources is None or not (resources.limits or resources.requests):
        return None
    table = _table(place, resources, settings)
    if table is None:
        return None
    cards, memory = _get(place, resources, table.gpu), _get(place, resources, table.memory)
    cores, priority = _get(place, resources, table.cores), _get(place, resources, table.priority)
    percentage = _get(place, resources, table.percentage)
    profile = table.profile
    if not (cards or memory or percentage or cores):
        if priority is not None:
            fix = f"it asks for no GPU: add {profile.gpu}, or leave this out"
            raise InvalidValue(_field(place, table.priority), str(priority), fix)
        return None
    if memory is not None and percentage:
        fix = f"{profile.memory} says how much already: keep one of them"
        raise InvalidValue(_field(place, table.percentage), str(percentage), fix)

    wanted = _cards(place, pod, table, settings, cards)
    if memory is not None:
        memory = _each(place, table, settings, memory, wanted)
    missing: dict[str, int] = {}
    if cards is None:
        missing[profile.gpu] = wanted
    if memory is None and not percentage and settings.default_memory_mib:
        each = -(-settings.default_memory_mib // profile.memory_unit_mib)
        memory = each * profile.memory_unit_mib
        missing[profile.memory] = each * (wanted if profile.memory_is_total else 1)
    size: Memory = "whole"
    if memory is not None:
        size = Size(mib=memory)
    elif percentage and percentage != WHOLE_PERCENT:
        size = Size(percent=percentage)
    if cores is None:
        cores = settings.whole_card_cores if size == "whole" else settings.default_cores
        if cores:
            missing[profile.cores] = cores
    ask = Ask(place.container.name, place.kind, wanted, size, cores)
    return Reading(ask, profile, priority, missing)


def _table(place: Place, resources: Resources, settings: PodSettings) -> Table | None:
    """Whose names a container uses; several profiles may share the name of the cards."""
    written = {*(resources.limits or ()), *(resources.requests or ())}
    found = [table for table in settings.tables if not table.names.isdisjoint(written)]
    if len(found) > 1:
        particular = [table for table in found if not table.particular.isdisjoint(written)]
        if len(particular) > 1:
            one, other = (min(table.particular & written) for table in particular[:2])
            fix = f"{one} is there too: keep the names of one kind"
            path, quantity = _written(place, other) or (place.path, "")
            raise InvalidValue(path, str(quantity), fix)
        found = particular or found
    return found[0] if found else None


def _written(place: Place, name: str) -> tuple[str, Quantity] | None:
    """A quantity and its path: the limit, else what is requested."""
    resources = place.container.resources or Resources()
    for where, quantities in (("limits", resources.limits), ("requests", resources.requests)):
        if quantities and name in quantities:
            return f"{place.path}.resources.{where}[{name}]", quantities[name]
    return None


def _field(place: Place, row: Row | None) -> str:
    """The path of what was read."""
    found = row and _written(place, row.name)
    return found[0] if found else place.path


def _get(place: Place, resources: Resources, row: Row | None) -> int | None:
    """The number, or None where nothing is written. Limit and request have to be the same."""
    if row is None:
        return None
    limit = resources.limits.get(row.name) if resources.limits else None
    request = resources.requests.get(row.name) if resources.requests else None
    quantity = request if limit is None else limit
    if quantity is None:
        return None
    found = number(quantity, row.counted)
    if found is None:
        return count(quantity, _field(place, row), row.counted)
    if request is not None and limit is not None and request != limit:
        field = f"{place.path}.resources.requests[{row.name}]"
        if count(request, field, row.counted) != found:
            fix = f"the limit is {found}: write the same, or leave it out"
            raise InvalidValue(field, str(request), fix)
    return found


def _cards(place: Place, pod: Pod, table: Table, settings: PodSettings, written: int | None) -> int:
    """How many cards, by the resource, the label or the default."""
    label, labelled = table.profile.cards_label, None
    # The label speaks of shared cards alone, which are all where memory has a default.
    is_shared = settings.default_memory_mib or _written(place, table.memory.name)
    if label is not None and label in pod.labels and is_shared:
        labelled = count(pod.labels[label], f"metadata.labels[{label}]", table.label)
    if written == 0:
        fix = f"memory or cores are asked for beside it: write {max(settings.default_cards, 1)}"
        raise InvalidValue(_field(place, table.gpu), "0", f"{fix}, or leave those out")
    if written and labelled and written != labelled:
        fix = f"the label {label} says {labelled}: write the same, or leave one out"
        raise InvalidValue(_field(place, table.gpu), str(written), fix)
    cards = written or labelled or settings.default_cards
    if not cards:
        fix = "it is required beside memory and cores: add it"
        raise InvalidValue(f"{place.path}.resources.limits[{table.gpu.name}]", "", fix)
    return cards


def _each(place: Place, table: Table, settings: PodSettings, memory: int, cards: int) -> int:
    """MiB that one card gives of the memory that is written."""
    profile = table.profile
    if not profile.memory_is_total:
        return memory * profile.memory_unit_mib
    if memory % cards:
        fix = f"it is divided among {cards} cards: write a multiple of {cards}"
        raise InvalidValue(_field(place, table.memory), str(memory), fix)
    each = memory // cards * profile.memory_unit_mib
    if each > settings.max_memory_mib:
        fix = f"that is {each} MiB on each of {cards} cards, write at most "
        fix += str(settings.max_memory_mib // profile.memory_unit_mib * cards)
        raise InvalidValue(_field(place, table.memory), str(memory), fix)
    return each
